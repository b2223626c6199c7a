"""The record of a working tree: checkpoints, what changed between them, and the restore that is under way."""

import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.database import Database
from agent.worktree.entries import Entry, Known

_FORMAT: Final = 1
BEFORE: Final = "before"
AFTER: Final = "after"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`at`: seconds since the epoch. `ours`: whether the agent made what changed since the one before."""

    id: int
    session: str
    turn: int
    label: str
    at: float
    wall_ns: int
    ours: bool


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """A turn by its checkpoints. `end` None: nobody saw it end."""

    turn: int
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """What a restore does to one path: `want` is how it shall be, `was` how it was found. None: not there."""

    path: str
    want: Entry | None
    was: Entry | None


class Store:
    """One SQLite file for one working tree. Raises LedgerError."""

    def __init__(self, path: Path) -> None:
        schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
        self._database = Database(path, schema, _FORMAT, {}, 10.0, name="record of checkpoints")

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._database.transaction() as connection:
            yield connection

    # Checkpoints

    def present(self) -> dict[str, Known]:
        """The tree at the last checkpoint."""
        return {
            os.fsdecode(row["path"]): Known(Entry(row["kind"], row["mode"], row["digest"]), row["state"])
            for row in self._database.rows("SELECT * FROM present")
        }

    def last(self) -> int:
        """The number of the last checkpoint, 0 when there is none."""
        return int(self._database.rows("SELECT coalesce(max(id), 0) AS id FROM checkpoint")[0]["id"])

    @staticmethod
    def keep(connection: sqlite3.Connection, digest: str, data: bytes) -> None:
        """Remember a content, within the caller's transaction."""
        if connection.execute("SELECT 1 FROM content WHERE digest = ?", (digest,)).fetchone() is None:
            connection.execute("INSERT INTO content VALUES (?, ?)", (digest, zlib.compress(data, 1)))

    def content(self, digest: str) -> bytes | None:
        rows = self._database.rows("SELECT body FROM content WHERE digest = ?", digest)
        return zlib.decompress(rows[0]["body"]) if rows else None

    @staticmethod
    def add(
        connection: sqlite3.Connection,
        checkpoint: Checkpoint,
        before: dict[str, Known],
        found: dict[str, Known],
    ) -> tuple[int, int]:
        """Record a checkpoint (its `id` is given here) of the tree `found`, which was `before` at the last one.

        Returns its id, and how many paths have changed.
        """
        cursor = connection.execute(
            "INSERT INTO checkpoint (session, turn, label, at, wall_ns, ours) VALUES (?, ?, ?, ?, ?, ?)",
            (
                *(checkpoint.session, checkpoint.turn, checkpoint.label),
                *(checkpoint.at, checkpoint.wall_ns, checkpoint.ours),
            ),
        )
        number = int(cursor.lastrowid or 0)
        gone = [os.fsencode(path) for path in before.keys() - found.keys()]
        moved = [(path, known) for path, known in found.items() if before.get(path) != known]
        changed = [
            (path, known.entry) for path, known in moved if path not in before or before[path].entry != known.entry
        ]
        connection.executemany("DELETE FROM present WHERE path = ?", [(path,) for path in gone])
        connection.executemany("INSERT INTO version VALUES (?, ?, NULL, NULL, NULL)", [(path, number) for path in gone])
        connection.executemany(
            "INSERT OR REPLACE INTO present VALUES (?, ?, ?, ?, ?)",
            [(os.fsencode(path), k.entry.kind, k.entry.mode, k.entry.digest, k.state) for path, k in moved],
        )
        connection.executemany(
            "INSERT INTO version VALUES (?, ?, ?, ?, ?)",
            [(os.fsencode(path), number, entry.kind, entry.mode, entry.digest) for path, entry in changed],
        )
        return number, len(gone) + len(changed)

    def checkpoint(self, number: int) -> Checkpoint | None:
        rows = self._database.rows("SELECT * FROM checkpoint WHERE id = ?", number)
        return _checkpoint(rows[0]) if rows else None

    def checkpoints(self, session: str) -> list[Checkpoint]:
        """Those of a session, in order."""
        rows = self._database.rows("SELECT * FROM checkpoint WHERE session = ? ORDER BY id", session)
        return [_checkpoint(row) for row in rows]

    def turns(self, session: str) -> list[TurnSpan]:
        """The session's turns, in order. A turn that was begun twice had done nothing the first time."""
        spans: dict[int, TurnSpan] = {}
        for point in self.checkpoints(session):
            if point.label == BEFORE:
                spans.pop(point.turn, None)
                spans[point.turn] = TurnSpan(point.turn, point.id, None)
            elif point.label == AFTER and (span := spans.get(point.turn)) is not None:
                spans[point.turn] = TurnSpan(point.turn, span.begin, point.id)
        return list(spans.values())

    # Trees

    def changed(self, one: int, other: int | None = None) -> list[str]:
        """The paths that became another after checkpoint `one`, up to `other` (None: the last)."""
        rows = self._database.rows(
            "SELECT DISTINCT path FROM version WHERE since > ? AND (? IS NULL OR since <= ?) ORDER BY path",
            *(one, other, other),
        )
        return [os.fsdecode(row["path"]) for row in rows]

    def changed_by_others(self, one: int) -> set[str]:
        """Those of the paths that became another after checkpoint `one` that somebody else than the agent changed."""
        rows = self._database.rows(
            "SELECT DISTINCT path FROM version v JOIN checkpoint c ON c.id = v.since WHERE v.since > ? AND NOT c.ours",
            one,
        )
        return {os.fsdecode(row["path"]) for row in rows}

    def entry(self, path: str, at: int) -> Entry | None:
        """What stood at `path` at a checkpoint."""
        rows = self._database.rows(
            "SELECT kind, mode, digest FROM version WHERE path = ? AND since <= ? ORDER BY since DESC LIMIT 1",
            *(os.fsencode(path), at),
        )
        return _entry(*tuple(rows[0])) if rows else None

    # Undo

    def undone(self, session: str) -> list[sqlite3.Row]:
        """Rows (turn, checkpoint, redoable, partial), the last one first."""
        return self._database.rows("SELECT * FROM undone WHERE session = ? ORDER BY checkpoint DESC, turn", session)

    @staticmethod
    def mark_undone(connection: sqlite3.Connection, session: str, turn: int, point: int, partial: bool) -> None:
        connection.execute("INSERT OR REPLACE INTO undone VALUES (?, ?, ?, 1, ?)", (session, turn, point, partial))

    @staticmethod
    def mark_done(connection: sqlite3.Connection, session: str, turn: int) -> None:
        connection.execute("DELETE FROM undone WHERE session = ? AND turn = ?", (session, turn))

    @staticmethod
    def mark_later_undone(connection: sqlite3.Connection, point: int) -> None:
        """All turns that began at checkpoint `point` or later."""
        connection.execute(
            "INSERT OR IGNORE INTO undone SELECT session, turn, max(id), 0, 0 FROM checkpoint "
            "WHERE label = ? AND id >= ? GROUP BY session, turn",
            (BEFORE, point),
        )

    def forget_redo(self, session: str) -> None:
        """What was undone stays so: the files have gone another way since."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE undone SET redoable = 0 WHERE session = ?", (session,))

    # The restore under way

    def begin_restore(self, connection: sqlite3.Connection, target: int, steps: Iterable[Step]) -> str:
        """Note, within the caller's transaction, what is going to be done. `target`: the checkpoint to go to. Returns
        the token of this restore.
        """
        token = secrets.token_hex(8)
        connection.execute("INSERT INTO restore VALUES (?, ?)", (token, target))
        connection.executemany(
            "INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (os.fsencode(step.path), number, *_values(step.want), *_values(step.was))
                for number, step in enumerate(steps)
            ],
        )
        return token

    def restore(self) -> tuple[str, int, list[Step]] | None:
        """The restore that was begun and not ended: its token, its target and all of its steps."""
        begun = self._database.rows("SELECT * FROM restore")
        if not begun:
            return None
        rows = self._database.rows("SELECT * FROM step ORDER BY number")
        steps = [
            Step(
                os.fsdecode(row["path"]),
                _entry(row["kind"], row["mode"], row["digest"]),
                _entry(row["was_kind"], row["was_mode"], row["was_digest"]),
            )
            for row in rows
        ]
        return begun[0]["token"], int(begun[0]["target"]), steps

    def end_restore(self) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM step")
            connection.execute("DELETE FROM restore")

    # What is too old

    def prune(self, before: float, most: int) -> None:
        """Forget checkpoints taken before `before` (seconds since the epoch), and the older ones while the contents
        have more than `most` bytes. The last one stays.
        """
        last = self.last()
        row = self._database.rows("SELECT min(id) AS id FROM checkpoint WHERE at >= ?", before)[0]
        oldest = last if row["id"] is None else int(row["id"])
        freed = self._forget(oldest)
        while self.size() > most and oldest < last:
            oldest = (oldest + last + 1) // 2
            freed |= self._forget(oldest)
        if freed:
            self._database.rows("VACUUM")

    def size(self) -> int:
        """Bytes of all contents as they are kept."""
        return int(self._database.rows("SELECT coalesce(sum(length(body)), 0) AS size FROM content")[0]["size"])

    def _forget(self, oldest: int) -> bool:
        """Drop the checkpoints before `oldest`, and what only they need. Whether contents went."""
        with self._database.transaction() as connection:
            if connection.execute("DELETE FROM checkpoint WHERE id < ?", (oldest,)).rowcount == 0:
                return False
            connection.execute(
                "DELETE FROM version WHERE since < ? AND EXISTS (SELECT 1 FROM version l WHERE l.path = version.path "
                "AND l.since > version.since AND l.since <= ?)",
                (oldest, oldest),
            )
            connection.execute("DELETE FROM version WHERE since <= ? AND kind IS NULL", (oldest,))
            connection.execute("DELETE FROM undone WHERE checkpoint < ?", (oldest,))
            unused = "DELETE FROM content WHERE digest NOT IN (SELECT digest FROM version WHERE digest IS NOT NULL)"
            return connection.execute(unused).rowcount > 0


def _checkpoint(row: sqlite3.Row) -> Checkpoint:
    return Checkpoint(
        *(row["id"], row["session"], row["turn"], row["label"], row["at"], row["wall_ns"], bool(row["ours"]))
    )


def _entry(kind: str | None, mode: int, digest: str) -> Entry | None:
    return None if kind is None else Entry(kind, mode, digest)  # type: ignore[arg-type]


def _values(entry: Entry | None) -> tuple[str | None, int | None, str | None]:
    return (None, None, None) if entry is None else (entry.kind, entry.mode, entry.digest)
