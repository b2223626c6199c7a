"""Watches the folders of a repository, so that a long-lived program need not look at all of it before each turn.

On Linux, by watchdog's inotify: one watch for each folder that git does not ignore, one descriptor and one thread for
all of them, and a thread that lists them; of git's own folder only what a switch of branches or a stash changes. What
is told is that something *may* have changed; what did is decided by content. Elsewhere, and where the system does not
report, everything is looked at.
"""

import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from context.repo.watch_places import LIMITS, deciding_files, said_of, unreported

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

_GIT: Final = ".git"
_RULES: Final = ".gitignore"
_PATIENCE_S: Final = 1.0
_MOST_PATHS: Final = 5_000  # remembered; with more of them everything is looked at


@dataclass(frozen=True, slots=True)
class Dirty:
    """What may have changed since the last `take`: `paths` (absolute), or `everything`."""

    paths: frozenset[Path] = frozenset()
    everything: bool = False


class Watch:
    """Of folders below `root`; a context manager. `take` is for any thread. What is written is told when it is closed:
    to be told of each write costs a third of a core while something writes as fast as it can.

    `folders`: those that are not ignored, as absolute paths; it is asked on a thread of its own, at first and whenever
    what is ignored may have changed. `ignored` says so of one that appears later. `warn` gets one line when the system
    does not report.
    """

    def __init__(
        self,
        root: Path,
        folders: Callable[[], Iterable[Path]],
        ignored: Callable[[Path], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._root, self._folders, self._ignored, self._warn = root, folders, ignored, warn
        self._changed = threading.Condition()  # guards all below
        self._paths: set[Path] = set()
        self._everything = True  # nothing is known of what happened before
        self._watched: dict[int, tuple[Path, int]] = {}  # by inotify's watch descriptor: where, and watchdog's id
        self._places: dict[Path, int] = {}  # the other way round
        self._ids = itertools.count()
        self._asked, self._listed = 1, 0  # how often the folders were to be listed, and up to which time they are
        self._reports = self._lost = self._closed = False
        self._inotify: InotifyFD | None = None
        self._thread: threading.Thread | None = None
        self._deciding: Mapping[Path, frozenset[str]] = {}  # folders of which only these files matter
        self._bell: Path | None = None  # a folder of our own; without one nothing is ever quiet
        self._heard = -1

    @property
    def reports(self) -> bool:
        """Whether every folder is watched. While it is not, `take` says everything."""
        return self._reports

    @property
    def watched(self) -> frozenset[Path]:
        with self._changed:
            return frozenset(self._places) - {self._bell}

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            with suppress(OSError):
                self._bell = Path(tempfile.mkdtemp(prefix="keepwarm-"))
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()
        else:
            self._warn(f"Changes are not watched on {sys.platform} yet: files are looked at before each turn.")
        return self

    def __exit__(self, *_: object) -> None:
        self.ready()
        with self._changed:
            inotify, self._inotify, self._reports, self._closed = self._inotify, None, False, True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if inotify is not None:
            inotify.stop()
            inotify.join()
        if self._bell is not None:
            shutil.rmtree(self._bell, ignore_errors=True)

    def ready(self) -> bool:
        """Wait until all folders are watched. Whether they are."""
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None or self._closed or self._asked == self._listed)
            return self._reports

    def quiet(self) -> bool:
        """Whether nothing has happened since the last `take`. Waits for what the system has yet to report."""
        if not self._reports or not self._caught_up():
            return False
        with self._changed:
            return self._reports and not self._everything and not self._paths and self._asked == self._listed

    def _caught_up(self) -> bool:
        """Events come in order: when that of a folder of our own is here, all earlier ones are."""
        if self._bell is None:
            return False
        number = next(self._ids)  # so that one which is heard late is not taken for this one
        try:
            (self._bell / str(number)).mkdir()
            (self._bell / str(number)).rmdir()
        except OSError:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self._heard >= number, _PATIENCE_S)

    def take(self) -> Dirty:
        """What may have changed since the last time."""
        with self._changed:
            dirty = Dirty(frozenset(self._paths), self._everything or not self._reports)
            self._paths.clear()
            self._everything = not self._reports
        return dirty

    # On the thread that lists the folders

    def _run(self) -> None:
        try:
            if (kind := unreported(self._root, self._ignored)) is not None:
                self._give_up(f"Changes on {kind} are not reported")
                return
            from watchdog.observers.inotify_c import InotifyFD

            self._inotify = InotifyFD()
            self._inotify.start()
            if self._bell is not None:
                self._add(self._bell)
            while not self._closed:
                self._schedule(self._asked)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._asked != self._listed)
        except OSError as error:
            self._give_up(said_of(error))
        finally:
            with self._changed:  # nobody waits for a thread that has failed
                self._closed = True
                self._changed.notify_all()

    def _schedule(self, asked: int) -> None:
        """Watch what is not ignored and nothing else. Raises OSError when the system's limit is reached."""
        self._deciding = deciding_files(self._root)
        own = {self._root, *self._deciding}
        before = self.watched
        listed = own | set(self._folders())
        for folder in sorted(before - listed):  # a folder before what is in it; one without files is not listed
            if not folder.is_relative_to(self._root) or (folder in self._places and self._ignored(folder)):
                self._forget(folder)
        tried, added = set[Path](), False
        while folders := listed - tried:
            tried |= folders
            if not [folder for folder in folders if self._add(folder)]:  # or another is in its place by now
                break
            added = True
            listed = own | set(self._folders())  # one that is made before its parent is watched is reported by nobody
        with self._changed:
            self._reports = self._root in self._places and self._inotify is not None
            self._everything |= added  # what happened in them until now was not reported
            self._listed = asked
            self._changed.notify_all()

    def _add(self, folder: Path) -> bool:
        """Whether it was not watched before. One that went meanwhile or is closed to us is left out.

        Raises OSError when the system's limit is reached.
        """
        from watchdog.observers.inotify_c import InotifyConstants as Mask

        wanted = Mask.IN_CREATE | Mask.IN_CLOSE_WRITE | Mask.IN_MOVED_FROM | Mask.IN_MOVED_TO
        wanted |= Mask.IN_DELETE | Mask.IN_ATTRIB | Mask.IN_DELETE_SELF | Mask.IN_MOVE_SELF
        mask: Any = wanted | Mask.IN_ONLYDIR | Mask.IN_DONT_FOLLOW
        if (inotify := self._inotify) is None:
            return False
        number: Any = next(self._ids)
        try:
            place: Any = inotify.add_callback(os.fsencode(folder), mask, self, number)
        except OSError as error:
            if error.errno in LIMITS:
                raise
            return False
        gone: list[Any] = [(place, number)] if place < 0 else []  # watchdog raises nothing for EACCES
        with self._changed:
            same = self._watched.get(place)
            if not gone:
                if same is not None:  # watched already, maybe under another name
                    gone.append((place, same[1]))
                    self._places.pop(same[0], None)
                if (other := self._places.get(folder)) is not None:  # another folder was there before
                    gone.append((other, self._watched.pop(other)[1]))
                self._watched[place], self._places[folder] = (folder, number), place
        inotify.remove_callbacks(gone)
        return place >= 0 and (same is None or same[0] != folder)

    def _forget(self, top: Path) -> None:
        """Watch neither `top` nor what is in it."""
        below = f"{top}{os.sep}"
        with self._changed:
            folders = [folder for folder in self._places if folder == top or str(folder).startswith(below)]
            places = [self._places.pop(folder) for folder in folders]
            gone: list[Any] = [(place, self._watched.pop(place)[1]) for place in places]
            inotify = self._inotify
        if inotify is not None:
            inotify.remove_callbacks(gone)

    def _give_up(self, why: str) -> None:
        """Everything is looked at from now on, which is said once."""
        with self._changed:
            if self._lost or self._closed:
                return
            inotify, self._inotify = self._inotify, None
            self._everything, self._reports, self._lost = True, False, True
        if inotify is not None:
            inotify.stop()
        self._warn(f"{why}: files are looked at before each turn.")
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # On the thread of inotify (watchdog's WatchCallback)

    def on_event(self, event: "InotifyEvent") -> None:
        with self._changed:
            folder, _ = self._watched.get(event.wd, (None, 0))
        if folder is None:
            return
        name = os.fsdecode(event.name)
        if folder == self._bell:
            self._hear(int(name) if name.isdecimal() else -1)
        elif folder in self._deciding:
            if name in self._deciding[folder]:
                self._ask()
        elif name == _RULES or (folder == self._root and name == _GIT):
            self._ask()
        elif folder == self._root and event.is_move_self:
            self._forget(folder)
            self._ask()
        elif not name:
            self._note(None if event.is_delete_self or event.is_move_self else folder)
        else:
            self._note(folder / name)
            if event.is_directory:
                self._follow(folder / name, event)

    def on_watch_deleted(self, wd: int) -> None:
        with self._changed:
            folder, _ = self._watched.pop(wd, (None, 0))
            if folder is not None and self._places.get(folder) == wd:
                del self._places[folder]
        if folder == self._root and not self._closed:
            self._ask()

    def on_queue_overflow(self) -> None:
        self._ask()

    def on_events_lost(self) -> None:
        """Said after `on_queue_overflow`, which has asked already."""

    def _hear(self, number: int) -> None:
        with self._changed:
            self._heard = max(self._heard, number)
            self._changed.notify_all()

    def _note(self, path: Path | None) -> None:
        """`path` may have changed; None: anything may."""
        with self._changed:
            self._everything |= path is None or len(self._paths) >= _MOST_PATHS
            if self._everything:
                self._paths.clear()
            elif path is not None:
                self._paths.add(path)

    def _ask(self) -> None:
        """Anything may have changed, and with it which folders are to be watched."""
        with self._changed:
            self._asked += 1
            self._note(None)
            self._changed.notify_all()

    def _follow(self, top: Path, event: "InotifyEvent") -> None:
        """A folder came, went, or was opened to us."""
        if event.is_moved_from:
            self._forget(top)
        if event.is_create or event.is_moved_to or (event.is_attrib and top not in self._places):
            self._watch_new(top)
            self._note(None)  # what was made in it before it was watched is not reported

    def _watch_new(self, top: Path) -> None:
        pending = [top]
        while pending:
            folder = pending.pop()
            if os.path.islink(folder) or self._ignored(folder):
                continue
            try:
                self._add(folder)  # before it is listed: what is made in between is reported
            except OSError as error:
                self._give_up(said_of(error))
                return
            with suppress(OSError):
                pending += [path for path in folder.iterdir() if path.is_dir()]
