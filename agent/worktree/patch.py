"""Changes of files as a unified diff, as people read it."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.worktree.entries import Entry
from context.names import show_name


@dataclass(frozen=True, slots=True)
class Change:
    """What stood at `path`, and what stands there. None: nothing."""

    path: str
    before: Entry | None
    after: Entry | None


def patch(changes: Iterable[Change], content: Callable[[str], bytes | None]) -> str:
    """`content` gives the bytes of a digest. Folders are not told; neither is a change there and back."""
    return "".join(_one(change, content) for change in changes if change.before != change.after)


def _one(change: Change, content: Callable[[str], bytes | None]) -> str:
    before, after = change.before, change.after
    kinds = {entry.kind for entry in (before, after) if entry is not None}
    if kinds == {"folder"}:
        return ""
    name = show_name(change.path)
    told = f"diff {name}\n"
    if before and after and before.mode != after.mode and kinds == {"file"}:
        told += f"old mode {before.mode:o}\nnew mode {after.mode:o}\n"
    if before and after and before.digest == after.digest and before.kind == after.kind:
        return told
    old, new = (_lines(entry, content) for entry in (before, after))
    if old is None or new is None:
        return f"{told}Contents differ and are no text.\n"
    names = ("/dev/null" if before is None else f"a/{name}", "/dev/null" if after is None else f"b/{name}")
    return told + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(old, new, *names)
    )


def _lines(entry: Entry | None, content: Callable[[str], bytes | None]) -> list[str] | None:
    if entry is None or entry.kind == "folder":
        return []
    data = content(entry.digest) if entry.kind in ("file", "link") else None
    if data is None or b"\0" in data:
        return None
    try:
        return _split(data.decode())
    except UnicodeDecodeError:
        return None


def _split(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one, as everywhere in diffs."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])
