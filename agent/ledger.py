"""The ledger: the durable record of sessions, prompts, calls and tool runs, in one SQLite file in WAL mode.

Every method is one transaction. What a method has returned from survives a kill of the process at any instant.
Several agents may use the same file at once; two on the same session are told apart by the position they append at.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

from agent.cache_record import CacheRecord
from agent.cost_record import CostRecord
from agent.database import Database, LedgerError
from agent.ledger_rows import (
    CallOutcome,
    CallRow,
    EpochRow,
    ForecastRow,
    SessionRow,
    call_row,
    epoch_row,
    readable,
    session_row,
)
from agent.pause_record import PauseRecord
from agent.ping_record import PingRecord
from agent.session_record import SessionRecord
from agent.spend_record import SpendRecord
from agent.tool_record import NOTHING_SEEN, ToolRecord
from context.block import Block
from context.breakpoints import Marker
from context.cachemodel import Scope
from context.canonical import canonical_json
from context.notices import Environment
from context.prompt import Prompt
from context.tokens import Scale

_FORMAT: Final = 4


class SessionBusyError(LedgerError):
    """Another process has appended to the same session."""


class Ledger:
    """Open with `Ledger.open(path)`; use as a context manager or call `close`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.caches = CacheRecord(database)
        self.pings = PingRecord(database, self.caches)
        self.pauses = PauseRecord(database)
        self.names = SessionRecord(database)
        self.tools = ToolRecord(database)
        self.costs = CostRecord(database)
        self.spends = SpendRecord(database)

    @classmethod
    def open(cls, path: Path, *, busy_timeout_s: float = 10.0) -> "Ledger":
        """Open or create the ledger.

        Raises LedgerError when it is damaged, locked, not writable or of a newer release.
        """
        here = Path(__file__)
        schema = here.with_name("ledger_schema.sql").read_text(encoding="utf-8")
        migrations = {
            older: here.with_name(f"ledger_migration_{older}.sql").read_text(encoding="utf-8")
            for older in range(1, _FORMAT)
        }
        return cls(Database(path, schema, _FORMAT, migrations, busy_timeout_s))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Sessions and their prompts

    def create_session(self, row: SessionRow, head: Iterable[Block]) -> None:
        """Record a new session together with the first blocks of its prompt."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO session (id, created, directory, title, told) VALUES (?, ?, ?, ?, ?)",
                (row.id, row.created, row.directory, row.title, row.told),
            )
            self._append(connection, row.id, 0, 0, head)

    def fork_session(self, row: SessionRow, *, seen: bool = True) -> None:
        """Record a new session that begins with the first `forked_at` blocks of its parent's epoch. `seen`: whether
        its model knows the files that the parent's has seen.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (
                    *(row.id, row.created, row.directory, row.title, row.told),
                    *(row.parent, row.forked_at, row.forked_epoch),
                ),
            )
            connection.execute(
                "INSERT INTO entry SELECT ?, epoch, position, digest FROM entry "
                "WHERE session = ? AND epoch = ? AND position < ?",
                (row.id, row.parent, row.forked_epoch, row.forked_at),
            )
            connection.execute(  # of a last reply whose calls were not answered: what ran there does not run again
                "INSERT INTO tool_run SELECT ?, epoch, position, tool_call, started, finished, text, is_error "
                "FROM tool_run WHERE session = ? AND epoch = ? AND position = ? - 1",
                (row.id, row.parent, row.forked_epoch, row.forked_at),
            )
            if seen:
                connection.execute(
                    "INSERT INTO seen SELECT ?, path, digest FROM seen WHERE session = ?", (row.id, row.parent)
                )

    def session(self, session_id: str) -> SessionRow | None:
        rows = self._database.rows("SELECT * FROM session WHERE id = ?", session_id)
        return session_row(rows[0]) if rows else None

    def sessions(self, directory: str | None = None) -> list[SessionRow]:
        """All sessions of ours, newest first; with `directory`, those that were started there."""
        rows = self._database.rows(
            "SELECT * FROM session WHERE origin IS NULL AND (? IS NULL OR directory = ?) "
            "ORDER BY created DESC, id DESC",
            directory,
            directory,
        )
        return [session_row(row) for row in rows]

    def last_used(self, directory: str) -> SessionRow | None:
        """The session of ours in `directory` that was used last."""
        rows = self._database.rows(
            "SELECT s.* FROM session s LEFT JOIN call c ON c.session = s.id "
            "WHERE s.origin IS NULL AND s.directory = ? GROUP BY s.id "
            "ORDER BY max(s.created, coalesce(max(c.started), 0)) DESC, s.id DESC LIMIT 1",
            directory,
        )
        return session_row(rows[0]) if rows else None

    def append(
        self,
        session_id: str,
        epoch: int,
        position: int,
        blocks: Iterable[Block],
        *,
        told: str | None = None,
        seen: Mapping[Path, str | None] = NOTHING_SEEN,
    ) -> None:
        """Add `blocks` to the session's prompt, the first at `position`. `seen`: what the model knows of files by them.

        Raises SessionBusyError when that place is taken or a later epoch has begun.
        """
        with self._database.transaction() as connection:
            self._append(connection, session_id, epoch, position, blocks)
            if told is not None:
                connection.execute("UPDATE session SET told = ? WHERE id = ?", (told, session_id))
            self.tools.see(connection, session_id, seen)

    def begin_epoch(self, session_id: str, row: EpochRow, blocks: Iterable[Block], told: str) -> None:
        """Make `blocks` the session's prompt, in place of the one of the epoch before, which stays on record.

        The model no longer sees the files that the old prompt showed. Raises SessionBusyError when another process has
        begun that epoch.
        """
        with self._database.transaction() as connection:
            self._append(connection, session_id, row.number, 0, blocks)
            connection.execute(
                "INSERT INTO epoch VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(session_id, row.number, row.started, row.reason, row.tokens_before, row.tokens_after),
                    *(_text(row.as_is_usd), _text(row.anew_usd)),
                ),
            )
            connection.execute("UPDATE session SET told = ? WHERE id = ?", (told, session_id))
            connection.execute("DELETE FROM seen WHERE session = ?", (session_id,))

    def epochs(self, session_id: str) -> list[EpochRow]:
        """The epochs of a session in order, without its first one."""
        return [
            epoch_row(row)
            for row in self._database.rows("SELECT * FROM epoch WHERE session = ? ORDER BY number", session_id)
        ]

    def epoch(self, session_id: str) -> int:
        """The number of the session's last epoch."""
        rows = self._database.rows("SELECT max(epoch) AS epoch FROM entry WHERE session = ?", session_id)
        return int(rows[0]["epoch"] or 0)

    def _append(
        self, connection: sqlite3.Connection, session_id: str, epoch: int, position: int, blocks: Iterable[Block]
    ) -> None:
        later = "SELECT 1 FROM entry WHERE session = ? AND epoch > ? LIMIT 1"
        if connection.execute(later, (session_id, epoch)).fetchone():
            raise _went_on(session_id)
        for offset, block in enumerate(blocks):
            connection.execute(
                "INSERT OR IGNORE INTO block VALUES (?, ?, ?)",
                (block.digest, canonical_json(block.to_json()), block.known_tokens),
            )
            try:
                connection.execute(
                    "INSERT INTO entry VALUES (?, ?, ?, ?)", (session_id, epoch, position + offset, block.digest)
                )
            except sqlite3.IntegrityError as error:
                raise _went_on(session_id) from error

    def prompt(self, session_id: str, blocks: int | None = None, epoch: int | None = None) -> Prompt:
        """The session's prompt (or its first `blocks` blocks), block for block as it was stored.

        `epoch` None: the last one's. Raises LedgerError for a block that cannot be read.
        """
        epoch = self.epoch(session_id) if epoch is None else epoch
        rows = self._database.rows(
            "SELECT b.digest, b.body, b.tokens FROM entry e JOIN block b USING (digest) "
            "WHERE e.session = ? AND e.epoch = ? AND (? IS NULL OR e.position < ?) ORDER BY e.position",
            *(session_id, epoch, blocks, blocks),
        )
        with readable(session_id):
            found = [Block.from_json(json.loads(row["body"]), row["tokens"]) for row in rows]
            for row, block in zip(rows, found, strict=True):
                if row["digest"] != block.digest:
                    raise ValueError(f"block {row['digest'][:12]} is not what its digest says")
            return Prompt.empty().extend(found)

    def tokens(self, digests: Iterable[str]) -> dict[str, int]:
        """The counted tokens of those of the blocks that any session has sent before, by digest."""
        found = {}
        for digest in digests:
            for row in self._database.rows("SELECT tokens FROM block WHERE digest = ?", digest):
                if row["tokens"] is not None:
                    found[digest] = int(row["tokens"])
        return found

    def told(self, row: SessionRow) -> Environment:
        """The environment as the model of this session knows it."""
        with readable(row.id):
            return Environment.from_json(row.told)

    # Calls

    def begin_call(
        self,
        session_id: str,
        *,
        model: str,
        dialect: str,
        started: float,
        prompt: Prompt,
        markers: Sequence[Marker],
        endpoint: str,
        effort: str | None,
        forecast: ForecastRow,
        baseline: int | None,
        epoch: int = 0,
        turn: int | None = None,
        purpose: str = "turn",
        policy: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[int, int]:
        """Record a request, with what is expected of it, before it is sent. Returns the call's id and its number in the
        session. `check` raises when it may not be sent: no other agent records anything between that and this record.
        """
        with self._database.transaction() as connection:
            check()
            query = "SELECT coalesce(max(number), 0) + 1 FROM call WHERE session = ?"
            number = int(connection.execute(query, (session_id,)).fetchone()[0])
            cursor = connection.execute(
                "INSERT INTO call "
                "(session, number, model, dialect, started, blocks, prompt, markers, estimate, endpoint, effort, "
                "forecast, baseline, epoch, turn, purpose, policy, status) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open')",
                (
                    *(session_id, number, model, dialect, started, prompt.length, prompt.digest),
                    *(json.dumps([[marker.blocks, marker.ttl] for marker in markers]), forecast.total),
                    *(endpoint, effort, forecast.to_json(), baseline, epoch, turn, purpose, policy),
                ),
            )
            return int(cursor.lastrowid or 0), number

    def add_draft(self, call_id: int, text: str) -> None:
        """Keep a piece of streamed text until the reply is complete."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO draft SELECT ?, coalesce(max(position), 0) + 1, ? FROM draft WHERE call = ?",
                (call_id, text, call_id),
            )

    def finish_call(
        self,
        call_id: int,
        outcome: CallOutcome,
        *,
        reply: tuple[str, int, int, Block] | None = None,
        keep_draft: bool = False,
        counted: Iterable[Block] = (),
    ) -> None:
        """Complete a call, and note the tokens of blocks that were `counted` meanwhile.

        In the same transaction, append its `reply` (session, epoch, position, block) and drop its draft.
        """
        usage, cost, verdict = outcome.usage, outcome.cost_usd, outcome.verdict
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE call SET status = ?, stop = ?, response = ?, "
                "estimate = coalesce(?, estimate), fresh = ?, cache_read = ?, cache_write = ?, "
                "cache_write_long = ?, output = ?, reasoning = ?, tier = ?, cost_usd = ?, price = ?, "
                "ttft_s = ?, duration_s = ?, cause = ?, foreseen = ?, missed = ?, since = ?, disputed = ?, "
                "diagnosis = ? WHERE id = ?",
                (
                    *(outcome.status, outcome.stop, outcome.response, outcome.estimate),
                    *(usage.fresh, usage.cache_read, usage.cache_write, usage.cache_write_long),
                    *(usage.output, usage.reasoning, usage.tier, None if cost is None else str(cost), outcome.price),
                    *(outcome.ttft_s, outcome.duration_s),
                    *((verdict.cause, verdict.foreseen, verdict.missed) if verdict else (None, None, None)),
                    *((verdict.since, verdict.disputed) if verdict else (None, None)),
                    *(outcome.diagnosis, call_id),
                ),
            )
            self.caches.remember(connection, outcome.entries)
            connection.executemany(
                "UPDATE block SET tokens = ? WHERE digest = ? AND tokens IS NULL",
                [(block.known_tokens, block.digest) for block in counted],
            )
            if reply is not None:
                session_id, epoch, position, block = reply
                self._append(connection, session_id, epoch, position, [block])
            if not keep_draft:
                connection.execute("DELETE FROM draft WHERE call = ?", (call_id,))

    def calls(self, session_id: str) -> list[CallRow]:
        """The session's calls in order."""
        return [
            call_row(row)
            for row in self._database.rows("SELECT * FROM call WHERE session = ? ORDER BY number", session_id)
        ]

    def markers(self, session_id: str) -> dict[int, tuple[Marker, ...]]:
        """Where the session's calls were marked, by their ids."""
        rows = self._database.rows("SELECT id, markers FROM call WHERE session = ?", session_id)
        with readable(session_id):
            return {row["id"]: tuple(Marker(blocks, ttl) for blocks, ttl in json.loads(row["markers"])) for row in rows}

    def turn_calls(self, session_id: str) -> int:
        """How many calls the session's turns have made."""
        query = "SELECT count(*) AS calls FROM call WHERE session = ? AND purpose = 'turn'"
        return int(self._database.rows(query, session_id)[0]["calls"])

    def last_answered(self, session_id: str, scope: Scope | None = None) -> CallRow | None:
        """The last call that the provider began to answer: what it read and wrote is in the cache.

        With `scope`, the last one made in it. A fork that has made none goes on from its parent's. A request that was
        refused or never arrived wrote nothing, and is no place to look for a cached prefix.
        """
        # Epoch and blocks that the session shares with `where`; None: it is the session.
        where, most = session_id, (None, None)  # type: str, tuple[int | None, int | None]
        while True:
            rows = self._database.rows(
                "SELECT * FROM call WHERE session = ? AND (? IS NULL OR epoch < ? OR (epoch = ? AND blocks <= ?)) "
                "AND purpose = 'turn' "
                "AND (status = 'done' OR fresh IS NOT NULL) "
                "AND (? IS NULL OR (endpoint = ? AND model = ? AND effort IS ?)) "
                "ORDER BY number DESC LIMIT 1",  # one step back in the index, however many calls there are
                *(where, most[0], most[0], most[0], most[1]),
                *((scope.endpoint, scope.endpoint, scope.model, scope.effort) if scope else (None, None, None, None)),
            )
            if rows:
                return call_row(rows[0])
            query = "SELECT parent, forked_epoch, forked_at FROM session WHERE id = ? AND parent IS NOT NULL"
            if not (forked := self._database.rows(query, where)):
                return None
            where, at = forked[0]["parent"], (forked[0]["forked_epoch"] or 0, forked[0]["forked_at"])
            most = at if most[0] is None else min(most, at)

    def last_elsewhere(self, session_id: str, scope: Scope, since: float) -> CallRow | None:
        """The last call in `scope` that another session made after `since` and that was answered."""
        rows = self._database.rows(
            "SELECT * FROM call WHERE endpoint = ? AND model = ? AND session != ? "
            "AND (status = 'done' OR fresh IS NOT NULL) "
            "AND started > ? ORDER BY started DESC LIMIT 1",
            *(scope.endpoint, scope.model, session_id, since),
        )
        return call_row(rows[0]) if rows else None

    def call(self, call_id: int) -> CallRow | None:
        rows = self._database.rows("SELECT * FROM call WHERE id = ?", call_id)
        return call_row(rows[0]) if rows else None

    def last_turn(self, session_id: str) -> int:
        """The number of the session's last turn, 0 before the first. A fork without one goes on from its parent's."""
        rows = self._database.rows("SELECT max(turn) AS turn FROM call WHERE session = ?", session_id)
        if rows[0]["turn"] is not None:
            return int(rows[0]["turn"])
        from agent.turns import turns

        return max((turn.number for turn in turns(self, session_id)), default=0)

    def last_status(self, session_id: str) -> str | None:
        """How the session's last call ended; None before the first."""
        rows = self._database.rows(
            "SELECT status FROM call WHERE session = ? AND purpose = 'turn' ORDER BY number DESC LIMIT 1", session_id
        )
        return str(rows[0]["status"]) if rows else None

    def take_draft(self, session_id: str) -> str:
        """The text of calls that never completed, which are hereby marked interrupted. `settle_draft` keeps it."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT d.text FROM draft d JOIN call c ON c.id = d.call WHERE c.session = ? "
                "AND c.purpose = 'turn' ORDER BY c.number, d.position",
                (session_id,),
            ).fetchall()
            connection.execute(
                "UPDATE call SET status = 'interrupted' WHERE session = ? AND status = 'open'", (session_id,)
            )
        return "".join(row["text"] for row in rows)

    def drop_draft(self, session_id: str) -> None:
        """Forget the session's draft."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM draft WHERE call IN (SELECT id FROM call WHERE session = ?)", (session_id,))

    def settle_draft(self, session_id: str, epoch: int, position: int, block: Block) -> None:
        """Make the session's draft a block of its prompt."""
        with self._database.transaction() as connection:
            self._append(connection, session_id, epoch, position, [block])
            connection.execute("DELETE FROM draft WHERE call IN (SELECT id FROM call WHERE session = ?)", (session_id,))

    # What is learned

    def scale(self, model: str) -> Scale | None:
        rows = self._database.rows("SELECT * FROM scale WHERE model = ?", model)
        return Scale(float(rows[0]["factor"]), int(rows[0]["samples"])) if rows else None

    def learn_scale(self, model: str, scale: Scale) -> None:
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO scale VALUES (?, ?, ?)", (model, scale.factor, scale.samples))

    # WireStore (backends.base)

    def get(self, block_digest: str, dialect: str) -> bytes | None:
        rows = self._database.rows("SELECT body FROM wire WHERE digest = ? AND dialect = ?", block_digest, dialect)
        return bytes(rows[0]["body"]) if rows else None

    def put(self, block_digest: str, dialect: str, wire: bytes) -> None:
        with self._database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO wire VALUES (?, ?, ?)", (block_digest, dialect, wire))


def _went_on(session_id: str) -> SessionBusyError:
    return SessionBusyError(
        f"Session {session_id} was continued by another process. What it has is kept, and so is what this "
        "one has done to your files. Go on there, or start a new session."
    )


def _text(money: Decimal | None) -> str | None:
    return None if money is None else str(money)
