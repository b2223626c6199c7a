"""Watches the folders of a repository, so that a long-lived program need not look at all of it before each turn.

On Linux, by watchdog's inotify: one watch for each folder that git does not ignore, one descriptor and one thread for
all of them; `.git` only for what a switch of branches or a stash changes. What is told is that something *may* have
changed; what did is decided by content. Elsewhere, and where the system does not report, everything is looked at.
"""

import errno
import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

_GIT: Final = ".git"
_GIT_FILES: Final = frozenset({"HEAD", "index"})
_RULES: Final = ".gitignore"
_NETWORK: Final = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"]
)
_PATIENCE_S: Final = 1.0
_MOST_PATHS: Final = 5_000  # remembered; with more of them everything is looked at
_LIMITS: Final = {errno.ENOSPC: "fs.inotify.max_user_watches", errno.EMFILE: "fs.inotify.max_user_instances"}


@dataclass(frozen=True, slots=True)
class Dirty:
    """What may have changed since the last `take`: `paths` (absolute), or `everything`."""

    paths: frozenset[Path] = frozenset()
    everything: bool = False


class Watch:
    """Of folders below `root`; a context manager. `take` is for any thread.

    `folders`: those that are not ignored, as absolute paths; it is asked on a thread of its own. `ignored` says so of
    one that appears later. `warn` gets one line when the system does not report.
    """

    def __init__(
        self,
        root: Path,
        folders: Callable[[], Iterable[Path]],
        ignored: Callable[[Path], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._root, self._folders, self._ignored, self._warn = root, folders, ignored, warn
        self._lock = threading.Lock()
        self._paths: set[Path] = set()
        self._everything = True  # nothing is known of what happened before
        self._watched: dict[int, Path] = {}  # by inotify's watch descriptor
        self._places: dict[Path, int] = {}  # the other way round
        self._ids = itertools.count()  # a folder that was moved is added again, and watchdog minds equal ones
        self._reports = False
        self._inotify: InotifyFD | None = None
        self._starting: threading.Thread | None = None
        self._bell = Path(tempfile.mkdtemp(prefix="keepwarm-"))
        self._rung = threading.Event()

    @property
    def reports(self) -> bool:
        """Whether every folder is watched. While it is not, `take` says everything."""
        return self._reports

    @property
    def watched(self) -> frozenset[Path]:
        with self._lock:
            return frozenset(self._watched.values()) - {self._bell}

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            self._starting = threading.Thread(target=self._start, name="watch", daemon=True)
            self._starting.start()
        else:
            self._warn(f"Changes are not watched on {sys.platform} yet: files are looked at before each turn.")
        return self

    def __exit__(self, *_: object) -> None:
        self.ready()
        inotify, self._inotify, self._reports = self._inotify, None, False
        if inotify is not None:
            inotify.stop()
            inotify.join()
        shutil.rmtree(self._bell, ignore_errors=True)

    def ready(self) -> bool:
        """Wait until all folders are watched. Whether they are."""
        if self._starting is not None:
            self._starting.join()
        return self._reports

    def quiet(self) -> bool:
        """Whether nothing has happened since the last `take`. Waits for what the system has yet to report."""
        if not self._reports or not self._caught_up():
            return False
        with self._lock:
            return self._reports and not self._everything and not self._paths

    def _caught_up(self) -> bool:
        """Events come in order: when that of a file of our own is here, all earlier ones are."""
        self._rung.clear()
        try:
            (self._bell / "bell").write_bytes(b"")
        except OSError:
            return False
        return self._rung.wait(_PATIENCE_S)

    def take(self) -> Dirty:
        """What may have changed since the last time."""
        with self._lock:
            dirty = Dirty(frozenset(self._paths), self._everything or not self._reports)
            self._paths.clear()
            self._everything = not self._reports
        return dirty

    # On the thread that starts it

    def _start(self) -> None:
        if (kind := _file_system(self._root)) in _NETWORK:
            self._warn(f"Changes on {kind} are not reported: files are looked at before each turn.")
            return
        from watchdog.observers.inotify_c import InotifyFD

        try:
            self._inotify = InotifyFD()
            self._inotify.start()
            folders = {self._bell, self._root, self._root / _GIT, *self._folders()}
            while folders:  # one that is made before its parent is watched is reported by nobody
                for folder in folders:
                    self._add(folder)
                folders = set(self._folders()) - self.watched - folders
        except OSError as error:
            self._give_up(error)
            return
        with self._lock:
            self._reports = self._everything = True

    def _add(self, folder: Path) -> None:
        """Raises OSError when the system's limit is reached; a folder that went meanwhile is left out."""
        from watchdog.observers.inotify_c import InotifyConstants as Mask

        wanted = Mask.IN_CREATE | Mask.IN_CLOSE_WRITE | Mask.IN_MOVED_FROM | Mask.IN_MOVED_TO | Mask.IN_DELETE
        wanted |= Mask.IN_ATTRIB | Mask.IN_DELETE_SELF | Mask.IN_MOVE_SELF | Mask.IN_ONLYDIR | Mask.IN_DONT_FOLLOW
        with self._lock:
            inotify = self._inotify
            if inotify is None or folder in self._places:
                return
        mask: Any = wanted
        try:
            place = inotify.add_callback(os.fsencode(folder), mask, self, next(self._ids))  # type: ignore[arg-type]
        except OSError as error:
            if error.errno in _LIMITS:
                raise
            return
        with self._lock:
            if (before := self._watched.get(place)) is not None:  # it was moved
                self._places.pop(before, None)
            self._watched[place], self._places[folder] = folder, place

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            self._reports, self._everything = False, True
        limit = _LIMITS.get(error.errno or 0)
        why = f"{limit} is reached; raise it with sysctl" if limit else str(error)
        self._warn(f"The system watches no more folders ({why}): files are looked at before each turn.")
        if (inotify := self._inotify) is not None:
            self._inotify = None
            inotify.stop()

    # On the thread of inotify (watchdog's WatchCallback)

    def on_event(self, event: "InotifyEvent") -> None:
        with self._lock:
            folder = self._watched.get(event.wd)
        if folder is None:
            return
        if folder == self._bell:
            self._rung.set()
            return
        path = folder / os.fsdecode(event.name) if event.name else folder
        if folder.name == _GIT and folder.parent == self._root:
            if path.name in _GIT_FILES:
                self._note(None)
            return
        self._note(None if path.name == _RULES or event.is_delete_self or event.is_move_self else path)
        if event.is_directory and (event.is_create or event.is_moved_to):
            self._note(None)  # what was made in it before it was watched is not reported
            self._watch_new(path)

    def on_watch_deleted(self, wd: int) -> None:
        with self._lock:
            if (folder := self._watched.pop(wd, None)) is not None and self._places.get(folder) == wd:
                del self._places[folder]

    def on_queue_overflow(self) -> None:
        self._note(None)

    def _note(self, path: Path | None) -> None:
        """`path` may have changed; None: anything may."""
        with self._lock:
            self._everything |= path is None or len(self._paths) >= _MOST_PATHS
            if self._everything:
                self._paths.clear()
            elif path is not None:
                self._paths.add(path)

    def _watch_new(self, top: Path) -> None:
        pending = [top]
        while pending:
            folder = pending.pop()
            if folder.is_symlink() or self._ignored(folder):
                continue
            try:
                self._add(folder)  # before it is listed: what is made in between is reported
            except OSError as error:
                self._give_up(error)
                return
            with suppress(OSError):
                pending += [path for path in folder.iterdir() if path.is_dir()]


def _file_system(path: Path) -> str | None:
    """The kind of file system that `path` lies on (proc(5), /proc/pid/mounts); None: not known."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return None
    mounts = [(mount.replace("\\040", " "), kind) for _, mount, kind, *_ in (line.split(" ") for line in lines)]
    holding = [(len(mount), kind) for mount, kind in mounts if path.is_relative_to(mount)]
    return max(holding)[1] if holding else None
