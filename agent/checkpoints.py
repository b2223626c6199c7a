"""Checkpoints of the working tree: what a turn did to the files can be undone, by tools and by shell commands alike.

The person's git is asked for names and never written. Contents are kept beside the ledger, one record for each working
tree. Ignored files are left alone, and so are files above 16 MiB. What somebody else has changed is never overwritten
unless that is asked for.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.database import DamagedError
from agent.errors import USAGE, UserError
from agent.worktree.entries import Entry, Known, Tree, look
from agent.worktree.patch import Change, patch
from agent.worktree.restore import CHANGED, TOO_LARGE, Kept, Restorer, Source
from agent.worktree.store import AFTER, BEFORE, Checkpoint, Step, Store, TurnSpan
from context.names import show_name
from context.repo.files import tree_names

__all__ = ["AFTER", "BEFORE", "Checkpoint", "Checkpoints", "Kept", "Restored"]

_KEPT_S: Final = 30 * 86_400.0
_MOST: Final = 1 << 30  # bytes of one working tree's contents, compressed; beyond them the oldest checkpoints go
_LOCK_S: Final = 30.0
_SHOWN: Final = 3  # names in a line


@dataclass(frozen=True, slots=True)
class Restored:
    """What an undo, a redo or a restore came to. Paths are relative to the root.

    `turn`: whose files they were; None: there was nothing to undo. `changed`: put back. `kept`: left as they are, and
    why. `unfinished`: the turn was cut short, so that what was changed after it cannot be told from what it did.
    """

    turn: int | None
    changed: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    unfinished: bool = False

    @property
    def conflicts(self) -> tuple[str, ...]:
        """What `force` would overwrite."""
        return tuple(kept.path for kept in self.kept if kept.why == CHANGED)


class Checkpoints:
    """Of the working tree `root`; its methods read the disk and are for a thread of their own.

    `folder`: the program's data folder, of which nothing is covered. `env`: the environment of git. `now`: seconds
    since the epoch. `wall_ns`: the clock of the file system. `take` never raises: without checkpoints the work goes
    on, and `notices` says so. The others raise UserError.
    """

    def __init__(
        self,
        folder: Path,
        root: Path,
        env: Mapping[str, str],
        now: Callable[[], float],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folder = folder / "checkpoints"
        self._data = Path(os.path.realpath(folder))
        self._root = Path(os.path.realpath(root))
        self._env = env
        self._now = now
        self._wall_ns = wall_ns
        self._path = self._folder / f"{hashlib.sha256(os.fsencode(self._root)).hexdigest()[:32]}.db"
        self._last: tuple[int, dict[str, Known]] = (0, {})  # the last checkpoint seen, and the tree at it
        self._told: set[str] = set()
        self._untold: list[str] = []

    def take(self, session: str, turn: int, label: str) -> str | None:
        """Record the tree as it is: `BEFORE` a turn and `AFTER` it, or with another label between turns.

        What changes between a turn's two is its doing; anything else is the person's. Returns the checkpoint's id,
        None when it cannot be taken.
        """
        try:
            with self._open() as store:
                spans = store.turns(session)
                if label == BEFORE and spans and spans[-1].end is None and spans[-1].turn != turn:
                    self._record(store, session, spans[-1].turn, AFTER, ours=True)  # it was killed
                point = self._record(store, session, turn, label, ours=label == AFTER)
                if label == AFTER and spans and store.changed(spans[-1].begin):
                    store.forget_redo(session)
                return str(point)
        except (UserError, OSError) as error:
            self._tell(f"There is no undo for this turn: {error}")
            return None

    def notices(self) -> list[str]:
        """What a person should know and has not been told yet, a line each."""
        told, self._untold = self._untold, []
        return told

    def undo(self, session: str, *, force: bool = False) -> Restored:
        """Put the files back as they were when the session's last turn began that changed any and is not undone.

        A file that somebody changed after that turn is kept. `force`: overwrite it, also in a turn that was undone but
        for such files; the overwritten content is in the checkpoint before the undo.
        """
        with self._open() as store:
            unfinished = bool(spans := store.turns(session)) and spans[-1].end is None
            label, turn = (AFTER, spans[-1].turn) if unfinished else ("before undo", spans[-1].turn if spans else 0)
            point = self._record(store, session, turn, label, ours=unfinished)
            span = self._to_undo(store, session, force)
            if span is None:
                return Restored(None)
            cut = unfinished and span.turn == turn
            changed = store.changed(span.begin, span.end)
            steps, kept = self._plan(
                store, span.begin, changed, lambda path: store.entry(path, span.end or point), force
            )
            partial = any(one.why == CHANGED for one in kept)
            with store.transaction() as connection:
                token = store.begin_restore(connection, span.begin, steps)
                store.mark_undone(connection, session, span.turn, point, partial)
            restored = self._run(store, token, span.begin, steps, kept)
            self._record(store, session, span.turn, "undo", ours=True)
            return replace(restored, turn=span.turn, unfinished=cut)

    def redo(self, session: str, *, force: bool = False) -> Restored:
        """Put the files back as they were at the end of the turn that was undone last. After another turn that changed
        files there is nothing to redo.
        """
        with self._open() as store:
            rows = [row for row in store.undone(session) if row["redoable"]]
            row = rows[0] if rows else None
            span = next((span for span in store.turns(session) if row and span.turn == row["turn"]), None)
            if row is None or span is None or span.end is None:
                return Restored(None)
            self._record(store, session, span.turn, "before redo", ours=False)
            changed = store.changed(span.begin, span.end)
            steps, kept = self._plan(store, span.end, changed, lambda path: store.entry(path, span.begin), force)
            with store.transaction() as connection:
                token = store.begin_restore(connection, span.end, steps)
                store.mark_done(connection, session, span.turn)
            restored = self._run(store, token, span.end, steps, kept)
            self._record(store, session, span.turn, "redo", ours=True)
            return replace(restored, turn=span.turn)

    def restore(self, checkpoint: str, *, force: bool = False) -> Restored:
        """Put all files back as they were at a checkpoint. What somebody else than the agent has changed since then is
        kept, unless `force`.
        """
        with self._open() as store:
            point = self._find(store, checkpoint)
            self._record(store, point.session, point.turn, "before restore", ours=False)
            foreign = set() if force else store.changed_by_others(point.id)
            changed = store.changed(point.id)
            now = {path: known.entry for path, known in self._present(store).items()}
            mine = [path for path in changed if path not in foreign]
            steps, kept = self._plan(store, point.id, mine, now.get, force)
            differ = [path for path in foreign if store.entry(path, point.id) != now.get(path)]
            kept += [Kept(path, CHANGED) for path in differ]
            with store.transaction() as connection:
                token = store.begin_restore(connection, point.id, steps)
                store.mark_later_undone(connection, point.id)
            restored = self._run(store, token, point.id, steps, kept)
            self._record(store, point.session, point.turn, "restore", ours=True)
            return replace(restored, turn=point.turn)

    def beginning(self, session: str, turn: int) -> str | None:
        """The checkpoint at the beginning of a turn, None when there is none (any more)."""
        with self._open() as store:
            spans = [span for span in store.turns(session) if span.turn == turn]
            return str(spans[0].begin) if spans else None

    def taken(self, session: str) -> list[Checkpoint]:
        """The session's checkpoints, in order."""
        with self._open() as store:
            return store.checkpoints(session)

    def diff(self, one: str, other: str | None = None) -> str:
        """What became of the files from checkpoint `one` to `other` (None: to now), as a unified diff."""
        with self._open() as store:
            first = self._find(store, one)
            last = self._find(store, other).id if other else self._record(store, "", 0, "diff", ours=False)
            early, late = sorted((first.id, last))
            changes = [Change(p, store.entry(p, first.id), store.entry(p, last)) for p in store.changed(early, late)]
            return patch(changes, store.content)

    def prune(self, now: float) -> None:
        """Forget what is older than a month by `now` (seconds since the epoch), and the oldest of too much."""
        for path in self._folder.glob("*.db"):
            if path != self._path and path.stat().st_mtime < now - _KEPT_S:
                for name in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", ".lock"))):
                    name.unlink(missing_ok=True)
        if self._path.exists():
            with self._open() as store:
                store.prune(now - _KEPT_S, _MOST)

    # How it is done

    @contextmanager
    def _open(self) -> Iterator[Store]:
        """The record, for this process alone, with a restore finished that a kill had cut short."""
        import filelock

        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = filelock.FileLock(f"{self._path}.lock", timeout=_LOCK_S)
            lock.acquire()
        except filelock.Timeout as error:
            raise UserError(
                "Another agent is looking at the files of this directory. Nothing was done. Try again when it is done."
            ) from error
        except OSError as error:
            raise UserError(
                f"{self._folder} cannot be written ({error.strerror or error}). Nothing was done. Make it a writable "
                "folder, or set KEEPWARM_HOME to another one."
            ) from error
        try:
            store = self._store()
            try:
                self._finish(store)
                yield store
            finally:
                store.close()
        finally:
            lock.release()

    def _store(self) -> Store:
        try:
            return Store(self._path)
        except DamagedError:
            aside = self._path.with_suffix(".damaged")
            os.replace(self._path, aside)
            for end in ("-wal", "-shm"):
                self._path.with_name(self._path.name + end).unlink(missing_ok=True)
            self._tell(
                f"The record of checkpoints was damaged and is now {aside}. A new one is begun: earlier turns "
                "cannot be undone."
            )
            return Store(self._path)

    def _record(self, store: Store, session: str, turn: int, label: str, *, ours: bool) -> int:
        """Take a checkpoint; its number."""
        before, wall = self._present(store), self._wall_ns()
        with store.transaction() as connection:
            tree = look(
                *(self._root, self._env, self._data, before),
                lambda digest, data: store.keep(connection, digest, data),
                self._wall_ns,
            )
            point = Checkpoint(0, session, turn, label, self._now(), wall, ours)
            number, _ = store.add(connection, point, before, tree.known)
        self._last = (number, tree.known)
        self._tell_left(tree, before)
        return number

    def _present(self, store: Store) -> dict[str, Known]:
        """The tree at the last checkpoint: remembered, unless another process took that one."""
        number, known = self._last
        if number != store.last():
            known = store.present()
            self._last = (store.last(), known)
        return known

    def _tell_left(self, tree: Tree, before: Mapping[str, Known]) -> None:
        left = sorted(p for p, k in tree.known.items() if k.entry.kind == "left" and before.get(p) != k)
        if left:
            names = ", ".join(show_name(path) for path in left[:_SHOWN])
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            self._tell(f"Undo leaves these files alone, which are too large or cannot be read: {names}{more}.")
        if not tree.complete:
            self._tell("There are too many files here to keep them all: undo covers the first ones only.")

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._untold.append(line)

    def _to_undo(self, store: Store, session: str, force: bool) -> TurnSpan | None:
        spans, rows = store.turns(session), store.undone(session)
        if force and rows and rows[0]["partial"]:
            return next((span for span in spans if span.turn == rows[0]["turn"]), None)
        done = {row["turn"] for row in rows}
        return next((s for s in reversed(spans) if s.turn not in done and store.changed(s.begin, s.end)), None)

    def _plan(
        self, store: Store, target: int, paths: list[str], was: Callable[[str], Entry | None], force: bool
    ) -> tuple[list[Step], list[Kept]]:
        """How to make `paths` what they were at the checkpoint `target`: those that are as `was` says, or all by
        `force`.
        """
        present = self._present(store)
        steps, kept = list[Step](), list[Kept]()
        for path in paths:
            want, found = store.entry(path, target), present[path].entry if path in present else None
            if want == found:
                continue
            if "left" in (want and want.kind, found and found.kind):
                kept.append(Kept(path, TOO_LARGE))
            elif force or was(path) == found or _only_folders(want, found):
                steps.append(Step(path, want, found))
            else:
                kept.append(Kept(path, CHANGED))
        return steps, kept

    def _run(self, store: Store, token: str, target: int, steps: list[Step], kept: list[Kept]) -> Restored:
        """Do what was begun under `token`. `kept`: what was left out of it."""
        point = store.checkpoint(target)
        source = Source(store.content, lambda: tree_names(self._root, self._env)[0], point.wall_ns if point else 0)
        left = Restorer(self._root, source, token, steps).run()
        store.end_restore()
        missed = {one.path for one in left}
        changed = [step.path for step in steps if step.path not in missed and not _only_folders(step.want, step.was)]
        return Restored(None, tuple(changed), tuple(sorted([*kept, *left], key=lambda one: one.path)))

    def _finish(self, store: Store) -> None:
        """Go on with a restore that a kill has cut short."""
        if (begun := store.restore()) is None:
            return
        restored = self._run(store, *begun, [])
        self._record(store, "", 0, "restore", ours=True)
        line = "A restore of files that had been cut short is now finished."
        names = ", ".join(show_name(one.path) for one in restored.kept[:_SHOWN])
        self._tell(f"{line} Left as they are: {names}." if names else line)

    def _find(self, store: Store, name: str) -> Checkpoint:
        point = store.checkpoint(int(name)) if name.isascii() and name.isdigit() else None
        if point is None:
            raise UserError(f"There is no checkpoint {name!r} of this directory (any more). Nothing was done.", USAGE)
        return point


def _only_folders(one: Entry | None, other: Entry | None) -> bool:
    return all(entry is None or entry.kind == "folder" for entry in (one, other))
