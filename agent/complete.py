"""What the shell completes behind `--model` and where a session is wanted. Never fails: what cannot be read is none."""

import contextlib
import os
from typing import Final

from agent.config import Folders
from agent.errors import UserError

_MOST: Final = 30  # sessions, the newest


def model_names(incomplete: str) -> list[str]:
    """Models of the catalogue, of the registry and pulled ones that begin like that."""
    from agent.backend_choice import load_catalog
    from backends.llama.models import pulled_models, registry

    folders = Folders.find(os.environ)
    names = {spec.full_name for spec in registry().models.values()}
    with contextlib.suppress(UserError, OSError):
        names |= {model.name for model in pulled_models(folders.models)} | set(load_catalog(folders).names())
    return sorted(name for name in names if name.startswith(incomplete))


def session_ids(incomplete: str) -> list[tuple[str, str]]:
    """Sessions that begin like that, the newest first, with their titles."""
    from agent.ledger import Ledger

    path = Folders.find(os.environ).ledger
    if not path.exists():
        return []
    try:
        with Ledger.open(path) as ledger:
            rows = [row for row in ledger.sessions() if row.id.startswith(incomplete)]
    except (UserError, OSError):
        return []
    return [(row.id, row.title) for row in rows[:_MOST]]
