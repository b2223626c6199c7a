"""The ledger's sums of calls, for reports over many sessions.

A cell is the sum of a session's calls that agree in model, price, tier, quarter of an hour, cause and length. Reports
are put together from cells, so that a million calls are read as some ten thousand of them. They are kept in the table
`cell`; `summary` names the sessions whose cells are right. Each change of a call takes its session out (triggers in
`ledger_schema.sql`; `forget` where another agent's log is read, once a session and not once a call): its cells are made
anew when they are asked for, and never wrong.
"""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from agent.database import Database
from agent.ledger_rows import SessionRow, readable, session_row

CELL_S: Final = 900  # seconds: every time zone's days begin with a quarter of an hour
LENGTHS: Final = (100_000, 128_000, 200_000, 256_000, 272_000)
"""Input tokens above which one model or another costs more (its documentation, December 2026)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which calls: of the session `session`, else of all whose agent is `origin` ("ours": this one, "all": any) and
    that were started in `directory` (None: anywhere); begun from `since` to before `until` (seconds since the epoch,
    each taken back to the quarter of an hour that it is in; None: no limit).
    """

    session: str | None = None
    directory: str | None = None
    origin: str = "ours"
    since: float | None = None
    until: float | None = None

    def covers(self, at: float) -> bool:
        """Whether a call that began at `at` belongs to it."""
        since, until = (None if each is None else each // CELL_S * CELL_S for each in (self.since, self.until))
        return (since is None or at >= since) and (until is None or at < until)


@dataclass(frozen=True, slots=True)
class Count:
    """`known`: the sum of what is known; `unknown`: of how many calls it is not."""

    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Sums of `calls` calls of one model, served alike (`tier`, as in `Usage`). `at`: when their quarter of an hour
    began; `price`: where their price is from; `cause`: why they missed `missed` tokens. `usd` is the sum of the known
    prices, `seconds` the time of the calls, as far as it is known.
    """

    model: str
    price: str | None
    tier: str | None
    at: int
    cause: str | None
    calls: int
    fresh: Count
    cache_read: Count
    write_short: Count
    write_long: Count
    output: Count
    reasoning: Count
    usd: Decimal
    unpriced: int
    missed: int
    seconds: float

    @property
    def input(self) -> int:
        """Tokens, as far as they are known."""
        return self.fresh.known + self.cache_read.known + self.write_short.known + self.write_long.known


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one call of the group `key` was; seconds and tokens."""

    key: str
    ttft_s: float
    duration_s: float | None
    output: int | None


@dataclass(frozen=True, slots=True)
class PingSum:
    """Sums of the group `key`; `unpriced` of its `calls` have no known price."""

    key: str
    calls: int
    usd: Decimal
    unpriced: int


_QUARTER: Final = f"CAST(started / {CELL_S} AS INTEGER) * {CELL_S}"
_LONG: Final = "CASE WHEN cache_write = 0 THEN 0 ELSE cache_write_long END"
_SUMMED: Final = ("fresh", "cache_read", f"cache_write - ({_LONG})", _LONG, "output", "reasoning")
_INPUT: Final = "coalesce(fresh, 0) + coalesce(cache_read, 0) + coalesce(cache_write, 0)"
_BAND: Final = " + ".join(f"({_INPUT} > {length})" for length in LENGTHS)
_BILLED: Final = (
    "NOT (status = 'failed' AND fresh IS NULL AND cache_read IS NULL AND cache_write IS NULL AND output IS NULL)"
)
"""A call that was refused before anything was read is not billed."""
_SENSELESS: Final = " OR ".join(
    f"typeof({name}) NOT IN ('integer', 'null')"
    for name in ("fresh", "cache_read", "cache_write", "cache_write_long", "output", "reasoning", "missed")
)
"""Texts, which SQLite would count as 0."""
_COUNTERS: Final = ("fresh", "cache_read", "write_short", "write_long", "output", "reasoning")
_MAKE: Final = (
    f"INSERT INTO cell SELECT session, model, price, tier, {_QUARTER} AS quarter, cause, "
    + f"{_BAND} AS length, count(*), "
    + ", ".join(f"coalesce(sum({each}), 0), count(*) - count({each})" for each in _SUMMED)
    + ", sum_decimal(cost_usd), count(*) - count(cost_usd), coalesce(sum(missed), 0), coalesce(sum(duration_s), 0.0) "
    + f"FROM call WHERE session = ? AND {_BILLED} GROUP BY model, price, tier, quarter, cause, length"
)
_KEYS: Final = {
    "session": "s.id",
    "model": "{model}",
    "day": "date({at}, 'unixepoch', 'localtime')",
    "repository": "s.directory",
}
_MOST_SPEEDS: Final = 50_000
"""Of more calls so many are looked at: the 95th percentile is then one between 94.8 and 95.2."""


class _SumDecimal:
    """SQLite's own sum of decimals is a float."""

    def __init__(self) -> None:
        self._sum = Decimal(0)

    def step(self, value: object) -> None:
        try:
            self._sum += Decimal(0) if value is None else Decimal(str(value))
        except InvalidOperation:  # raised to whoever reads the cell: from here SQLite would hide what it was
            self._sum = Decimal("NaN")

    def finalize(self) -> str:
        return str(self._sum)


class CostRecord:
    """Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.create_aggregate("sum_decimal", 1, _SumDecimal)

    def sessions(self, selection: Selection) -> list[SessionRow]:
        """The sessions of a selection, oldest first; its times are not looked at."""
        where, values = _where(selection)
        rows = self._database.rows(f"SELECT * FROM session s WHERE {where} ORDER BY created, id", *values)
        return [session_row(row) for row in rows]

    def cells(
        self, selection: Selection, by: str = "session", hourly: Callable[[str], bool] = lambda _: True
    ) -> Iterator[tuple[str, Cell]]:
        """A session, model, local day or repository (as `by` says), and a cell of it. `hourly`: whether the prices of a
        model change within a day: its hours are not summed up.
        """
        self._refresh(selection)
        where, values = _where(selection, "c.quarter")
        models = [row["model"] for row in self._database.rows("SELECT DISTINCT model FROM cell")]
        apart = [model for model in models if hourly(model)]
        sums = ", ".join(f"sum(c.{name}), sum(c.no_{name})" for name in _COUNTERS)
        rows = self._database.rows(
            f"SELECT {_key(by, 'c.model', 'c.quarter')} AS key, c.model, c.price, c.tier, min(c.quarter), c.cause, "
            f"sum(c.calls), {sums}, sum_decimal(c.usd), sum(c.no_usd), sum(c.missed), sum(c.seconds), "
            f"CASE WHEN c.model IN ({', '.join('?' * len(apart))}) "
            "THEN c.quarter / 3600 ELSE c.quarter / 86400 END AS hour "
            f"FROM session s JOIN cell c ON c.session = s.id WHERE {where} "
            "GROUP BY key, c.model, c.price, c.tier, c.cause, c.length, hour ORDER BY min(s.created), key",
            *(*apart, *values),
        )
        for key, *cell, _ in rows:
            with readable(key):
                yield key, _cell(cell)

    def speeds(self, selection: Selection, by: str = "session") -> list[Speed]:
        """Of the calls that were timed; of very many, every so-manieth."""
        where, values = _where(selection, "c.quarter")
        counted = self._database.rows(
            f"SELECT coalesce(sum(c.calls), 0) FROM session s JOIN cell c ON c.session = s.id WHERE {where}", *values
        )
        step = 1 + counted[0][0] // _MOST_SPEEDS
        where, values = _where(selection, _QUARTER)
        rows = self._database.rows(
            f"SELECT {_key(by, 'c.model', 'c.started')}, c.ttft_s, c.duration_s, c.output FROM session s "
            f"JOIN call c ON c.session = s.id WHERE c.number % ? = 0 AND c.ttft_s IS NOT NULL AND {where}",
            *(step, *values),
        )
        return [Speed(*row) for row in rows]

    def pings(self, selection: Selection, by: str = "session") -> list[PingSum]:
        """Those that were sent, summed up."""
        where, values = _where(selection, "p.at")
        rows = self._database.rows(
            f"SELECT {_key(by, 'p.model', 'p.at')} AS key, count(*), sum_decimal(p.cost_usd), "
            "count(*) - count(p.cost_usd) FROM session s JOIN ping p ON p.session = s.id "
            f"WHERE p.status <> 'failed' AND {where} GROUP BY key",
            *values,
        )
        return [PingSum(key, calls, Decimal(usd), unpriced) for key, calls, usd, unpriced in rows]

    def count(self, selection: Selection) -> int:
        """How many sessions have calls in it."""
        where, values = _where(selection, "c.quarter")
        sql = f"SELECT count(DISTINCT s.id) FROM session s JOIN cell c ON c.session = s.id WHERE {where}"
        return int(self._database.rows(sql, *values)[0][0])

    def refresh(self) -> None:
        """Make the cells of all sessions that lack them: after an import, so that the next report is quick."""
        self._refresh(Selection(origin="all"))

    def forget(self, connection: sqlite3.Connection, session: str) -> None:
        """Calls of another agent's session are added or changed in this transaction."""
        connection.execute("DELETE FROM summary WHERE session = ?", (session,))

    def _refresh(self, selection: Selection) -> None:
        where, values = _where(selection)
        lacking = f"SELECT id FROM session s WHERE {where} AND id NOT IN (SELECT session FROM summary)"
        for row in self._database.rows(lacking, *values):
            with self._database.transaction() as connection:  # so that no call comes in between
                self._make(connection, row["id"])

    def _make(self, connection: sqlite3.Connection, session: str) -> None:
        with readable(session):
            if connection.execute(f"SELECT 1 FROM call WHERE session = ? AND ({_SENSELESS})", (session,)).fetchone():
                raise ValueError("a count of tokens is no number")
            connection.execute("DELETE FROM cell WHERE session = ?", (session,))
            connection.execute(_MAKE, (session,))
            connection.execute("INSERT INTO summary VALUES (?)", (session,))


def _key(by: str, model: str, at: str) -> str:
    return _KEYS[by].format(model=model, at=at)


def _where(selection: Selection, at: str | None = None) -> tuple[str, list[object]]:
    """The condition on `session s`, and on the time `at`, and its values."""
    terms: list[str] = []
    values: list[object] = []
    if selection.session is not None:
        terms.append("s.id = ?")
        values.append(selection.session)
    elif selection.origin == "ours":
        terms.append("s.origin IS NULL")
    elif selection.origin != "all":
        terms.append("s.origin = ?")
        values.append(selection.origin)
    if selection.directory is not None:
        terms.append("s.directory = ?")
        values.append(selection.directory)
    for term, limit in (("{} >= ?", selection.since), ("{} < ?", selection.until)):
        if at is not None and limit is not None:
            terms.append(term.format(at))
            values.append(limit // CELL_S * CELL_S)
    return " AND ".join(terms) or "TRUE", values


def _cell(values: list[Any]) -> Cell:
    model, price, tier, at, cause, calls, *rest = values
    counts, (usd, unpriced, missed, seconds) = rest[:-4], rest[-4:]
    fresh, read, short, long, output, reasoning = (Count(*pair) for pair in zip(counts[::2], counts[1::2], strict=True))
    tokens = (fresh, read, short, long, output, reasoning)
    if not (money := Decimal(usd)).is_finite():
        raise ValueError("a price is no number")
    return Cell(model, price, tier, at, cause, calls, *tokens, money, unpriced, missed, seconds)
