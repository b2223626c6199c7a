"""The facts of the PROJECT layer, read from the working directory."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from context.canonical import digest
from context.layers.project import ProjectFacts
from context.names import show_name
from context.repo.deleted import DeletedFiles
from context.repo.files import branch, list_files

HOUSE_RULES: Final = "AGENTS.md"
_HOUSE_RULES_LIMIT: Final = 64_000  # bytes; what is longer is no instruction any more
_LARGEST: Final = 16 << 20  # bytes that are read to know the file again


def read_project(
    root: Path,
    date: str,
    env: Mapping[str, str],
    own_rules: Path | None = None,
    deleted: DeletedFiles | None = None,
) -> ProjectFacts:
    """What the snapshot of `root` is made of. Never fails: what cannot be read is left out. `env`: that of git.

    `own_rules`: a file with the person's own. `deleted`: see `list_files`.
    """
    read: dict[Path, str] = {}
    return ProjectFacts(
        platform=f"{platform.system()} {platform.machine()}",
        directory=show_name(str(root)),
        date=date,
        listing=list_files(root, env, deleted),
        branch=branch(root, env),
        house_rules=_rules(root / HOUSE_RULES, root, read),
        own_rules=None if own_rules is None else _rules(own_rules, own_rules.parent, read),
        rules=read,
    )


def _rules(path: Path, root: Path, read: dict[Path, str]) -> str | None:
    """Their text; the digest of their file is put into `read`."""
    try:
        real = path.resolve()
        # A link out of the repository could carry any file of the person's into the prompt; a pipe would never end.
        if not real.is_relative_to(root.resolve()) or not real.is_file():
            return None
        with real.open("rb") as file:
            data = file.read(_LARGEST)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return None
    if b"\0" in data:
        return None  # no text
    read[real] = digest(data)
    text = data[:_HOUSE_RULES_LIMIT].decode("utf-8-sig", errors="replace")
    return f"{text}\n(cut: {path.name} is longer)" if len(data) > _HOUSE_RULES_LIMIT else text
