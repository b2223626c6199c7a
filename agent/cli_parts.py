"""What several commands share."""

import os
import sys
from typing import TYPE_CHECKING

from agent.errors import USAGE, UserError
from context.names import show_name

if TYPE_CHECKING:
    from agent.ledger import Ledger
    from agent.ledger_rows import SessionRow


def chosen_session(ledger: "Ledger", name: str | None) -> "SessionRow":
    """The session called `name`, else the last one of this directory."""
    row = ledger.session(name) if name else ledger.last_used(show_name(os.getcwd()))
    if row is None:
        where = f"called {name!r}" if name else f"in {show_name(os.getcwd())}"
        raise UserError(f"There is no session {where}. `agent sessions` lists them all.", USAGE)
    return row


def print_json(value: object) -> None:
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")
