"""What has been spent, as the ledger has it: calls and pings of one session, or of all since an instant.

Other agents write to the same ledger meanwhile. What has its bill is read once; the rest is looked at again each time.
"""

import sqlite3
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from agent.database import Database
from agent.ledger_rows import ANSWERED, ForecastRow, readable
from context.budget import Budget, Spend

_CALL: Final = (
    "SELECT c.id, c.session, c.started, c.status, c.cost_usd, c.forecast, "
    "coalesce(c.fresh, c.cache_read, c.cache_write, c.output, c.ttft_s) IS NULL AS unanswered "
    "FROM call c JOIN session s ON s.id = c.session WHERE s.origin IS NULL AND "
)
_PING: Final = "SELECT id, session, at, status, cost_usd FROM ping WHERE "
# One step in the index for each session, so that years of calls are not looked through for those of today.
_USED: Final = (
    "SELECT id FROM session WHERE origin IS NULL AND "
    "(SELECT started FROM call WHERE session = session.id ORDER BY number DESC LIMIT 1) >= ?"
)


class SpendRecord:
    """Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, session: str) -> "Spends":
        """Those of a session."""
        return Spends(self._database, lambda: [session], 0.0, session)

    def warn(self, session: str, budget: Budget, start: float) -> bool:
        """Note that `session` is warned of a budget that began at `start`. Whether it was not warned of it before."""
        with self._database.transaction() as connection:
            limit = str(budget.limit.normalize())
            values = (session, budget.scope, start, limit)
            return connection.execute("INSERT OR IGNORE INTO warned VALUES (?, ?, ?, ?)", values).rowcount == 1

    def since(self, start: float) -> "Spends":
        """Those of all sessions of ours that began at `start` (seconds since the epoch) or later."""
        return Spends(
            self._database, lambda: [str(row["id"]) for row in self._database.rows(_USED, start)], start, None
        )


class Spends:
    """`read` as often as wanted: it reads on from where it was."""

    def __init__(
        self, database: Database, sessions: Callable[[], list[str]], start: float, session: str | None
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._where = (start, session, session)
        self._calls: dict[int, Spend] = {}
        self._pings: dict[int, Spend] = {}
        self._open: set[int] = set()
        self._last: int | None = None  # the newest call that there was

    def read(self) -> list[Spend]:
        """All of them, up to now."""
        if self._last is None:
            self._last = self._newest()
            for session in self._sessions():
                self._take("c.session = ? AND c.started >= ?", session, self._where[0])
        else:
            last, self._last = self._last, self._newest()
            if self._last != last:
                self._take("c.id > ? AND c.started >= ? AND (? IS NULL OR c.session = ?)", last, *self._where)
            for call in list(self._open):
                self._take("c.id = ?", call)
        query = f"{_PING} id > ? AND at >= ? AND (? IS NULL OR session = ?)"
        for row in self._database.rows(query, max(self._pings, default=0), *self._where):
            self._pings[int(row["id"])] = _ping(row)
        return [*self._calls.values(), *self._pings.values()]

    def _newest(self) -> int:
        return int(self._database.rows("SELECT coalesce(max(id), 0) AS id FROM call")[0]["id"])

    def _take(self, where: str, *values: object) -> None:
        for row in self._database.rows(_CALL + where, *values):
            call = int(row["id"])
            self._calls[call] = _spend(row)
            (self._open.add if row["status"] == "open" else self._open.discard)(call)


def _spend(row: sqlite3.Row) -> Spend:
    with readable(str(row["session"])):
        session, at, status = str(row["session"]), float(row["started"]), row["status"]
        if row["cost_usd"] is not None:
            return Spend(session, at, Decimal(row["cost_usd"]))
        if status in ANSWERED:
            return Spend(session, at, None)
        if status == "failed" and row["unanswered"]:
            return Spend(session, at, Decimal(0))  # refused before anything was read: not billed
        expected = None if row["forecast"] is None else ForecastRow.from_json(row["forecast"]).usd
        return Spend(session, at, expected, billed=False)


def _ping(row: sqlite3.Row) -> Spend:
    with readable(str(row["session"])):
        session, at, cost = str(row["session"]), float(row["at"]), row["cost_usd"]
        if cost is None and row["status"] != "done":  # one that failed or was cut short has no bill, and never will
            return Spend(session, at, Decimal(0), billed=False)
        return Spend(session, at, None if cost is None else Decimal(cost))
