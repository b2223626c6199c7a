"""`.keepwarm/config.toml`: settings that come with a repository, and which of them it may make.

The file may be a stranger's. So it may neither spend money nor weaken permissions, nor name programs, models,
endpoints or keys, nor take more of the machine: it may say how a local model draws, lower limits, and add rules of what
is asked about or refused.
"""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.config_file import NAME, ConfigFile, shown, unknown
from agent.errors import USAGE, UserError
from agent.project_folder import project_folder

if TYPE_CHECKING:
    from agent.config import Folders

LOWERS: Final = (  # the smaller value counts
    *("max_cost", "max_cost_session", "max_cost_day", "max_turns"),
    *("files_budget", "tree_budget"),
)
ADDS: Final = ("permissions_ask", "permissions_deny")  # in addition to the person's own rules
SETS: Final = (
    *("temperature", "top_k", "top_p", "min_p", "seed"),
    *("repeat_penalty", "frequency_penalty", "presence_penalty", "penalty_window"),
    *("dry_multiplier", "dry_base", "dry_allowed", "dry_window", "dry_breakers"),
    *("xtc_probability", "xtc_threshold"),
)


def project_file(directory: Path, folders: "Folders") -> ConfigFile | None:
    """The file for whoever works in `directory`; None: there is none. Raises UserError for one that cannot be read."""
    folder = project_folder(directory, folders.config)
    if folder is None:
        return None
    path = folder / NAME
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(f"{shown(path)} is no plain file, and links are not followed out of a repository.", USAGE)
    return ConfigFile.read(path) if path.exists() else None


def may_set(name: str, place: str, known: Iterable[str], own: Path) -> None:
    """Raises UserError for what a repository's file may not set. `own`: the person's file."""
    names = list(known)
    if name in (*LOWERS, *ADDS, *SETS):
        return
    if name not in names and name != "endpoints":
        raise unknown(name, place, (*LOWERS, *ADDS, *SETS))
    raise UserError(
        f"{place} sets {name!r}, which a repository may not: it may make local models draw otherwise "
        f"({', '.join(SETS)}), lower {', '.join(LOWERS)} and add to {', '.join(ADDS)}. Nothing was sent. "
        f"Remove it there; what you want yourself belongs into {shown(own)}.",
        USAGE,
    )


def project_counts(name: str, value: object, before: object) -> bool:
    """Whether the repository's `value` takes the place of the one before: of limits only a smaller one does."""
    if name not in LOWERS:
        return True
    if value is None:  # off
        return False
    return before is None or Decimal(str(value)) < Decimal(str(before))


def project_notice(directory: Path, folders: "Folders") -> str | None:
    """What a session tells the person of the repository's file; None: there is nothing to tell."""
    file = project_file(directory, folders)
    if file is None or not file.values:
        return None
    return (
        f"{shown(file.path)} of this repository sets {', '.join(file.values)}. `agent config` shows what is in force."
    )
