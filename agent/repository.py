"""The working directory between two turns: which seen files are another by now, which files came and went.

A file is known by its content (rule: not by its time stamp); the state that the system tells of it only saves reading
it again.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.redact import Redactor
from agent.tools.base import ToolContext, ToolError
from agent.tools.paths import show
from agent.tools.textfile import load
from agent.versions import Versions
from context.canonical import clean_text, digest
from context.disk_changes import FileChange, tell, tell_listing

_MOST_COMPARED = 200  # files that appeared are looked into for one that went
_LARGEST_MOVED = 1 << 20  # bytes of each
_SETTLED_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class News:
    """`notices`: what the model is told. `seen`: what it knows then: the content of each file, None: not any more."""

    notices: list[str]
    seen: dict[Path, str | None]


@dataclass(frozen=True, slots=True)
class _Content:
    """Of a file on disk. `text` None: no text that could be shown."""

    digest: str
    text: str | None


class Repository:
    """Of one session; its methods read the disk and are for a thread of their own."""

    def __init__(self, context: ToolContext, versions: Versions, redact: Redactor) -> None:
        self._context = context
        self._versions = versions
        self._redact = redact
        self._pending: dict[Path, _Content] = {}  # shown with the next command
        self._checked: dict[Path, tuple[tuple[int, ...], str]] = {}  # state on disk, and the digest that it had

    def keep(self, news: Mapping[Path, str]) -> None:
        """Remember the content of files that the model has just seen, to tell later what has changed."""
        for path, known in news.items():
            if (content := self._read(path)) is not None and content.digest == known and content.text is not None:
                self._versions.keep(known, content.text)

    def show_whole(self, files: Mapping[Path, str]) -> None:
        """The model sees all of these files, by path, with these digests: the PROJECT layer holds them. What became of
        one since is news.
        """
        self._context.seen.update(files)
        self.keep(files)

    def show(self, paths: Iterable[str]) -> None:
        """Show the model these files with its next command; relative to the working directory."""
        for name in paths:
            path = (self._context.root / name).resolve()
            if (content := self._read(path)) is not None:
                self._pending[path] = content

    def news(self, before: str | None, now: str | None) -> News:
        """What has changed of the files that the model has seen, and which files came and went between two listings.

        Nothing is taken as told: see `settle`.
        """
        appeared, gone = self._listing_changes(before, now)
        changes: list[FileChange] = []
        found: list[tuple[Path, Path, _Content | None]] = []  # what it was called, what it is called, and its content
        for path, known in sorted(self._context.seen.items()):
            if self._unchanged(path, known):
                continue
            content = self._read(path)
            if content is not None and content.digest == known:
                continue
            name, at, renamed = self._shown(path), path, None
            if content is None and (moved := self._moved(known, appeared)) is not None:
                at, content = moved
                renamed = self._shown(at)
            before_text, after = self._versions.find(known), content.text if content else None
            if renamed is not None:
                before_text = after
            changes.append(FileChange(name, before_text, after, renamed, gone=content is None))
            found.append((path, at, content))
        told = tell(changes)
        shown: list[str] = []
        seen: dict[Path, str | None] = {path: None for path, _, _ in found}
        for (_, at, content), one in zip(found, told, strict=True):
            seen[at] = content.digest if one.known and content else None
        for path, content in self._pending.items():
            if content.text is not None and len(content.text) <= self._context.limits.page_chars:
                shown.append(f"The user shows you {self._shown(path)}:\n{content.text}")
                seen[path] = content.digest
            else:
                shown.append(f"The user points you to {self._shown(path)}: read it.")
        known_names = {self._shown(path) for path in (*seen, *self._context.seen)}
        names = [[name for name in paths if name not in known_names] for paths in (appeared, gone)]
        notices = [*(one.notice for one in told), *shown, *(self._redact(notice) for notice in tell_listing(*names))]
        return News([clean_text(notice) for notice in notices], seen)

    def _shown(self, path: Path) -> str:
        return show(path, self._context.root)

    def _moved(self, known: str, appeared: list[str]) -> tuple[Path, _Content] | None:
        """Where the content of a file is that is gone, among files that appeared."""
        for name in appeared[:_MOST_COMPARED]:
            path = self._context.root / name
            if not 0 < _size(path) <= _LARGEST_MOVED:
                continue
            content = self._read(path)
            if content is not None and content.digest == known:
                return path, content
        return None

    def settle(self, news: News) -> None:
        """The model has been told."""
        self._pending.clear()
        for path, known in news.seen.items():
            if known is None:
                self._context.seen.pop(path, None)
                self._context.shown.pop(path, None)
                continue
            self._context.seen[path] = known
            if path in self._context.shown:  # no page of it is in the prompt as it is now
                self._context.shown[path] = []
            self.keep({path: known})

    def _listing_changes(self, before: str | None, now: str | None) -> tuple[list[str], list[str]]:
        """The files that appeared and those that went."""
        if before is None or now is None or before == now:
            return [], []
        kept, found = self._versions.find(before), self._versions.find(now)
        if kept is None or found is None:  # there is nothing to compare with
            return [], []
        old, new = (set(text.split("\0")) - {""} for text in (kept, found))
        return sorted(new - old, key=os.fsencode), sorted(old - new, key=os.fsencode)

    def _unchanged(self, path: Path, known: str) -> bool:
        checked = self._checked.get(path)
        return checked is not None and checked == (_state(path), known)

    def _read(self, path: Path) -> _Content | None:
        """None: it is gone. A link that has taken the place of a file in the repository could lead to any file of the
        person's: what lies outside has no text.
        """
        try:
            if path.is_relative_to(self._context.root) and not path.resolve().is_relative_to(self._context.root):
                return _Content("", None)
            file = load(path, path.name)
        except FileNotFoundError:
            return None
        except (ToolError, OSError, RuntimeError):  # RuntimeError: links that form a loop, before Python 3.13
            return _Content("", None) if os.path.lexists(path) else None
        # A second change within the resolution of the file system's clock would leave the same state behind.
        if time.time_ns() - file.stat.st_ctime_ns > _SETTLED_NS:
            self._checked[path] = (_signature(file.stat), file.digest)
        return _Content(file.digest, self._redact(file.view))


def keep_listing(paths: Iterable[str], versions: Versions) -> str:
    """Remember a list of files; its digest."""
    text = "\0".join(paths)
    key = digest(os.fsencode(text))
    versions.keep(key, text)
    return key


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _state(path: Path) -> tuple[int, ...]:
    try:
        return _signature(os.stat(path))
    except OSError:
        return ()


def _signature(stat: os.stat_result) -> tuple[int, ...]:
    """The time of the last change of its state cannot be set by programs, unlike that of its content."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
