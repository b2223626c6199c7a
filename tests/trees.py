"""Working trees for tests of checkpoints: every byte and mode of one, and edits that a turn could make."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

Seen = dict[bytes, tuple[str, int, bytes]]
Edit = tuple[str, bytes, bytes, int]

NAMES = [b"a", b"b.txt", b"d", b"d/e", b"d/e/f", b"d/g", "中文.md".encode(), b"\xff\xfe", b"line\nbreak", b"d/link"]
CONTENTS = [b"", b"one\n", b"one\r\ntwo\r\n", b"\0\1\2\xff" * 20, "café\n".encode("latin-1"), b"$Id$\n"]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete", "mode", "link", "folder", "move", "empty"]),
        st.sampled_from(NAMES),
        st.sampled_from([*NAMES, *CONTENTS]),
        st.sampled_from([0o644, 0o755, 0o600, 0o444]),
    ),
    max_size=8,
)


def everything(root: Path, hidden: frozenset[bytes] = frozenset({b".git"})) -> Seen:
    """Kind, mode and bytes of all that is below `root`."""
    found: Seen = {}

    def walk(folder: bytes, prefix: bytes) -> None:
        for name in os.listdir(folder):
            path, key = folder + b"/" + name, prefix + name
            if key in hidden:
                continue
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[key] = ("folder", mode, b"")
                walk(path, key + b"/")
            else:
                with open(path, "rb") as file:
                    found[key] = ("file", mode, file.read())

    walk(os.fsencode(root), b"")
    return found


def edit(root: Path, edits: list[Edit]) -> None:
    """Do what can be done of `edits`."""
    for kind, name, other, mode in edits:
        path = os.fsencode(root) + b"/" + name
        try:
            _DO[kind](path, os.fsencode(root) + b"/" + other if kind == "move" else other, mode)
        except (OSError, ValueError):  # in the way of each other, or a content that is no name
            continue


def _write(path: bytes, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def _delete(path: bytes, _: bytes, mode: int) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _mode(path: bytes, _: bytes, mode: int) -> None:
    if not os.path.islink(path):
        os.chmod(path, mode | (0o700 if os.path.isdir(path) else 0))


def _link(path: bytes, target: bytes, mode: int) -> None:
    if os.path.lexists(path):
        _delete(path, b"", mode)
    os.symlink(target or b"nowhere", path)


def _folder(path: bytes, _: bytes, mode: int) -> None:
    if os.path.isfile(path):
        os.unlink(path)
    os.makedirs(path)


def _empty(path: bytes, _: bytes, mode: int) -> None:
    for name in os.listdir(path):
        _delete(path + b"/" + name, b"", mode)


_DO: dict[str, Callable[[bytes, bytes, int], None]] = {
    "write": _write,
    "delete": _delete,
    "mode": _mode,
    "link": _link,
    "folder": _folder,
    "move": lambda path, other, _: os.rename(path, other),
    "empty": _empty,
}
