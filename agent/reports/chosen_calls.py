"""Which calls a report is about, as a person says it."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.cost_record import Selection
from agent.errors import USAGE, UserError
from context.names import show_name

if TYPE_CHECKING:
    from agent.ledger import Ledger
    from agent.ledger_rows import SessionRow

_AGO: Final = re.compile(r"(\d{1,5})([hdw])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168}


def session_called(ledger: "Ledger", name: str) -> "SessionRow":
    """The session, ours or another agent's, whose id is `name` or begins like it. Raises UserError."""
    if (row := ledger.session(name)) is not None:
        return row
    found = [row for row in ledger.costs.sessions(Selection(origin="all")) if row.id.startswith(name)] if name else []
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"{len(found)} sessions begin with {name!r}: {found[0].id}, {found[1].id}, … Say more of it.", USAGE
        )
    raise UserError(f"There is no session called {name!r}. `agent sessions` lists them all.", USAGE)


def chosen(
    now: float, *, since: str | None, days: int | None, repository: str | None, everything: bool, origin: str
) -> Selection | None:
    """None: nothing was said. Raises UserError for what makes no sense."""
    if not (since or days or repository or everything or origin != "ours"):
        return None
    if since and days:
        raise UserError("Say --since or --days, not both.", USAGE)
    begin = None
    if since:
        begin = _time(since, now)
    elif days:
        try:
            midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
            begin = (midnight - timedelta(days=days - 1)).timestamp()
        except (OverflowError, ValueError, OSError):
            begin = None  # longer than there are dates
    directory = show_name(str(Path(repository).resolve())) if repository else None
    return Selection(directory=directory, origin=origin, since=begin)


def _time(said: str, now: float) -> float:
    """A date, a date with a time (local), or so many hours, days or weeks ago: 36h, 7d, 2w."""
    if ago := _AGO.fullmatch(said.strip()):
        return now - int(ago[1]) * _HOURS[ago[2]] * 3600
    try:
        return datetime.fromisoformat(said.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"--since takes a date such as 2026-12-01, or 36h, 7d, 2w; not {said!r}.", USAGE) from error
