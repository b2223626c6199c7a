"""What is told of files that the model has seen and that are another by now: a diff, or that it must be read again.

Pure. Each change is told once, at the tail, and never edited later (rule R1).
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from context.repo.tree import render_tree

_MOST_LINES: Final = 150  # of one diff
_MOST_CHARS: Final = 8_000  # of one diff
_LARGEST: Final = 400_000  # characters of both versions; comparing more takes too long
_MOST_ALL: Final = 20_000  # characters of all diffs of one turn
_LISTED: Final = 300  # tokens of names of new, or gone, files
_NO_LINE_END: Final = "\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class FileChange:
    """Of a file called `name`. `before`: its text as the model saw it, None: not kept. `after`: its text now, None: it
    is gone, or no text that could be shown. `renamed`: what it is called now.
    """

    name: str
    before: str | None
    after: str | None
    renamed: str | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """`notice` for the model; `known`: whether it knows the new content by it."""

    notice: str
    known: bool


def tell(changes: Sequence[FileChange]) -> list[Told]:
    """One notice for each of `changes`, in order; diffs as long as there is room for them."""
    told, room = [], _MOST_ALL
    for change in changes:
        one = _tell(change, room)
        room -= len(one.notice) if one.known else 0
        told.append(one)
    return told


def _tell(change: FileChange, room: int) -> Told:
    name = change.name
    if change.gone:
        return Told(f"{name} is gone.", known=False)
    if change.renamed is not None and change.before == change.after:
        return Told(f"{name} is now called {change.renamed}; its content is the same.", known=True)
    where = name if change.renamed is None else f"{name} (now {change.renamed})"
    if change.before is None or change.after is None or len(change.before) + len(change.after) > _LARGEST:
        return Told(f"{where} has changed since you saw it: read it again before you rely on it.", known=False)
    diff = unified(change.before, change.after)
    if not diff:
        return Told(f"{where} has changed since you saw it, but in nothing that is shown to you.", known=True)
    if len(diff) > min(room, _MOST_CHARS) or diff.count("\n") > _MOST_LINES:
        lines = sum(line[:1] in "+-" for line in diff.splitlines())
        return Told(
            f"{where} has changed since you saw it, in {lines} lines: read it again before you rely on it.", known=False
        )
    return Told(f"{where} has changed since you saw it, and not by you:\n{diff.rstrip(chr(10))}", known=True)


def unified(before: str, after: str) -> str:
    """The hunks of a unified diff, without its two lines of names."""
    lines = difflib.unified_diff(_lines(before), _lines(after), n=2)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_LINE_END}" for line in list(lines)[2:])


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: what else Python takes for the end of a line is a character of it here."""
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def tell_listing(appeared: Iterable[str], gone: Iterable[str]) -> list[str]:
    """Which files there are now that there were not, and which are no more."""
    notices = []
    for head, paths in (("New files", list(appeared)), ("Files that are gone", list(gone))):
        if paths:
            notices.append(f"{head} ({len(paths):,}):\n{render_tree(paths, _LISTED)}")
    return notices
