"""Tracked files that are not there: git is asked again only when a folder has changed since the last time.

Git looks at every tracked file for that, which takes as long as all else that a snapshot of 100,000 files needs. But a
name appears in a folder or goes from it only along with the folder's times of modification and of status change (POSIX,
`unlink` and `rename`).
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SETTLED: Final = 2_000_000_000  # nanoseconds; the coarsest time stamps in use are of two seconds (FAT)
_ABSENT: Final = b"-"

Ask = Callable[[], list[bytes] | None]


class _RefusedError(Exception):
    """Git did not answer."""


@dataclass(frozen=True, slots=True)
class FolderStates:
    """Of the folders that files lie in. `state` changes whenever a name in them does; `newest`: the time of the last
    such change, in nanoseconds. `links`: those that are links, relative to the root.
    """

    state: bytes
    newest: int
    links: tuple[bytes, ...]


def folder_states(root: Path, names: Iterable[bytes]) -> FolderStates:
    """The folders of the files below `root` with these names, relative to it."""
    top = os.fsencode(root) + b"/"
    seen, links, newest = [], [], 0
    for folder in folders_of(names):
        try:
            told = os.lstat(top + folder)
        except OSError:
            seen.append(_ABSENT)
            continue
        newest = max(newest, told.st_ctime_ns)
        seen.append(b"%d %d %d %d" % (told.st_mode, told.st_ino, told.st_mtime_ns, told.st_ctime_ns))
        if stat.S_ISLNK(told.st_mode) and folder:
            links.append(folder)
    return FolderStates(b"\n".join(seen), newest, tuple(links))


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """`remembered` gives what was made for a key that says all that it depends on, or makes it; `now`: seconds since
    1970, UTC.
    """

    remembered: Callable[[str, Callable[[], str]], str]
    now: Callable[[], float]

    def names(self, root: Path, tracked: bytes, folders: FolderStates, ask: Ask) -> list[bytes] | None:
        """Those of the tracked files below `root` that are not there; None where git does not say. `tracked`: all that
        git says of them; `folders`: what they lie in; `ask`: asks git.
        """
        if folders.newest > self.now() * 1e9 - _SETTLED:  # another change could leave the same time
            return ask()
        key = hashlib.blake2b(tracked + b"\0\0" + folders.state + os.fsencode(root), digest_size=16).hexdigest()
        try:
            told = self.remembered(f"deleted {key}", lambda: _told(ask()))
        except _RefusedError:
            return None
        return [name for name in os.fsencode(told).split(b"\0") if name]


def _told(names: list[bytes] | None) -> str:
    if names is None:
        raise _RefusedError
    return os.fsdecode(b"\0".join(names))


def folders_of(names: Iterable[bytes]) -> list[bytes]:
    """Those that the files lie in, and their parents."""
    found = {name.rpartition(b"/")[0] for name in names} | {b""}
    for folder in list(found):
        while (folder := folder.rpartition(b"/")[0]) not in found:
            found.add(folder)
    return sorted(found)
