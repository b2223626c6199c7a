"""What a working tree holds: its files, links and folders, with the bytes and modes of each.

Nothing is converted: no line ends, no filters, no encodings. Git is asked for names only, and writes nothing.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from context.repo.files import tree_names

LARGEST: Final = 16 << 20  # bytes; a larger file is left alone
SETTLED_NS: Final = 50_000_000  # a second change within the resolution of a file system's clock leaves no trace
TEMPORARY: Final = ".keepwarm-"  # how the names of files begin that are written on the way to their place

Kind = Literal["file", "link", "folder", "left"]


@dataclass(frozen=True, slots=True)
class Entry:
    """`mode`: permission bits, 0 for a link. `digest`: of a file's bytes or a link's target; "" for a folder.

    Kind `left`: a file that is not kept, because it is too large or cannot be read; `digest` tells its states apart.
    """

    kind: Kind
    mode: int
    digest: str


@dataclass(frozen=True, slots=True)
class Known:
    """An entry, and the state that the system told of it when it was read; "": to be read again."""

    entry: Entry
    state: str


@dataclass(frozen=True, slots=True)
class Tree:
    """By path relative to the root, `/` between folders. `complete` is False where there are too many files to list."""

    known: dict[str, Known]
    complete: bool


class Folders:
    """Which folders below `root` are real ones: a link in the place of one could lead anywhere. Remembers answers."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real = {"": True}

    def holds(self, path: str) -> bool:
        """Whether all folders above `path` are there and none of them is a link."""
        return self._is_real(path.rpartition("/")[0])

    def _is_real(self, folder: str) -> bool:
        if (known := self._real.get(folder)) is not None:
            return known
        real = self.holds(folder) and _is_folder(self._root / folder)
        self._real[folder] = real
        return real


def look(
    root: Path,
    env: Mapping[str, str],
    skip: Path,
    before: Mapping[str, Known],
    keep: Callable[[str, bytes], None],
    wall_ns: Callable[[], int],
) -> Tree:
    """The tree as it is, without ignored files. What is below `skip` is none of it.

    `before`: as it was seen last; what has not changed since is not read, and what has become ignored since still
    counts. `keep` is given each content that was read. `wall_ns`: the system's clock.
    """
    listed, complete = tree_names(root, env)
    names = listed | before.keys()
    folders, found = Folders(root), dict[str, Known]()
    hidden, above = _below(root, skip), os.path.join(root, "")  # joined as text: paths are slow, and there are many
    for name in names:
        if hidden is not None and (name == hidden or name.startswith(f"{hidden}/")):
            continue
        if (TEMPORARY in name and name.rpartition("/")[2].startswith(TEMPORARY)) or not folders.holds(name):
            continue
        known = _seen(above + name, before.get(name), keep, wall_ns)
        if known is not None:
            found[name] = known
    return Tree(found, complete)


def look_at(root: Path, path: str) -> Entry | None:
    """One entry as it is now, None: there is nothing."""
    if not Folders(root).holds(path):
        return None
    known = _seen(os.path.join(root, path), None, lambda *_: None, lambda: 0)
    return known.entry if known else None


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def by_depth(paths: Iterable[str]) -> list[str]:
    """Folders ahead of what they hold."""
    return sorted(paths, key=lambda path: (path.count("/"), os.fsencode(path)))


def _seen(
    path: str, before: Known | None, keep: Callable[[str, bytes], None], wall_ns: Callable[[], int]
) -> Known | None:
    try:
        status = os.lstat(path)
    except OSError:  # gone by now, or a name that this system cannot hold
        return None
    mode, state = stat.S_IMODE(status.st_mode), _state(status)
    if stat.S_ISDIR(status.st_mode):
        return Known(Entry("folder", mode, ""), "")
    if before is not None and before.state == state:
        return before
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(path))
        keep(digest_of(target), target)
        return Known(Entry("link", 0, digest_of(target)), "")
    if not stat.S_ISREG(status.st_mode):  # a pipe, a socket or a device has no content to keep
        return None
    settled = wall_ns() - status.st_ctime_ns > SETTLED_NS
    left = Known(Entry("left", mode, state), "")
    if status.st_size > LARGEST:
        return left
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            data = file.read(LARGEST + 1)
            after = _state(os.fstat(file.fileno()))
    except OSError:
        return left
    if len(data) > LARGEST:
        return left
    digest = digest_of(data)
    keep(digest, data)
    return Known(Entry("file", mode, digest), state if settled and after == state else "")


def _state(status: os.stat_result) -> str:
    """The time of the last change of its state cannot be set by programs, unlike that of its content."""
    file, size = f"{status.st_dev}.{status.st_ino}.{status.st_mode}", status.st_size
    return f"{file}.{size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _below(root: Path, folder: Path) -> str | None:
    """The path of `folder` relative to `root`, None when it lies elsewhere."""
    return str(folder.relative_to(root)).replace(os.sep, "/") if folder.is_relative_to(root) else None
