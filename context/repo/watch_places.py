"""Where changes are reported at all, and where git keeps what decides which files there are."""

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

LIMITS: Final = {errno.ENOSPC: "fs.inotify.max_user_watches", errno.EMFILE: "fs.inotify.max_user_instances"}
_GIT: Final = ".git"
_RULES: Final = ".gitignore"
_LARGEST_LINK: Final = 8_192  # bytes of a file that names git's folder: no path is longer
# Others change files on these, of which this kernel hears nothing (inotify(7), "Limitations and caveats").
_NETWORK: Final = frozenset(
    [
        *("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "lustre", "virtiofs", "vboxsf"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.vmhgfs-fuse"),
    ]
)
_ESCAPED: Final = re.compile(rb"\\([0-3][0-7]{2})")  # white space in the names of mounts


def unreported(root: Path, ignored: Callable[[Path], bool], mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The kind of a file system that does not report changes, if `root` lies on one, or a folder below it does that is
    not `ignored`.
    """
    here, kinds = Path(os.path.realpath(root)), _kinds(mounts)
    around = [place for place in kinds if here.is_relative_to(place)]
    if around and (kind := kinds[max(around, key=lambda place: len(place.parts))]) in _NETWORK:
        return kind
    below = {place: kind for place, kind in kinds.items() if here in place.parents and kind in _NETWORK}
    return next((kind for place, kind in below.items() if not ignored(root / place.relative_to(here))), None)


def said_of(error: OSError) -> str:
    """What a person is told when inotify refuses a folder."""
    limit = LIMITS.get(error.errno or 0)
    why = f"{limit} is reached; raise it with sysctl" if limit else str(error)
    return f"The system watches no more folders ({why})"


def deciding_files(root: Path) -> dict[Path, frozenset[str]]:
    """By their folders, the files outside of what git tracks below `root` that decide what is checked out there and
    what is ignored (gitrepository-layout(5), gitignore(5)). Empty where there is no repository.
    """
    for top in (root, *root.parents):
        if (git := _git_folder(top)) is not None:
            found = {folder: frozenset({_RULES}) for folder in root.parents if folder.is_relative_to(top)}
            return found | {git: frozenset({"HEAD", "index"}), _common(git) / "info": frozenset({"exclude"})}
    return {}


def _git_folder(top: Path) -> Path | None:
    """In a second working tree and in a submodule, `.git` is a file that names it."""
    git = top / _GIT
    with suppress(OSError):
        if git.is_dir():
            return git
        if git.is_file() and git.stat().st_size <= _LARGEST_LINK:
            named = os.fsdecode(git.read_bytes()).removeprefix("gitdir:").strip()
            return None if "\0" in named or top / named == top else top / named
    return None


def _common(git: Path) -> Path:
    """What all working trees of a repository share."""
    try:
        named = os.fsdecode((git / "commondir").read_bytes()).strip()
    except OSError:
        return git
    return git if "\0" in named else git / named


def _kinds(mounts: Path) -> dict[Path, str]:
    """Of each mounted file system, by its place (proc(5), /proc/pid/mounts); of two in one place the last is seen."""
    try:
        lines = [line.split(b" ") for line in mounts.read_bytes().splitlines()]
    except OSError:
        return {}
    return {Path(os.fsdecode(_ESCAPED.sub(_unescaped, line[1]))): os.fsdecode(line[2]) for line in lines}


def _unescaped(found: "re.Match[bytes]") -> bytes:
    return bytes([int(found[1], 8)])
