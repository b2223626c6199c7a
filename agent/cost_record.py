"""The ledger's sums of calls, for reports over many sessions.

A cell is the sum of a session's calls that agree in model, price, quarter of an hour, cause and length. Reports are put
together from cells, so that a million calls are read as some thousand of them. The cells of a session are kept in the
table `summary`, which each change of its calls empties (triggers in `ledger_schema.sql`; `forget` where another agent's
log is read, once a session and not once a call): they are made anew when they are asked for, and never wrong.
"""

import json
import sqlite3
from collections.abc import Iterator
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
    whole quarters of an hour; None: no limit).
    """

    session: str | None = None
    directory: str | None = None
    origin: str = "ours"
    since: float | None = None
    until: float | None = None

    def covers(self, at: float) -> bool:
        """Whether a call that began at `at` belongs to it."""
        at = at // CELL_S * CELL_S
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(frozen=True, slots=True)
class Count:
    """`known`: the sum of what is known; `unknown`: of how many calls it is not."""

    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Sums of `calls` calls of one model. `at`: when their quarter of an hour began; `price`: where their price is
    from; `cause`: why they missed `missed` tokens. `usd` is the sum of the known prices, `seconds` the time of the
    calls, as far as it is known.
    """

    model: str
    price: str | None
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
    """How fast one call was; seconds and tokens."""

    session: str
    model: str
    at: float
    ttft_s: float
    duration_s: float | None
    output: int | None


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
_CELLS: Final = (
    f"SELECT model, price, CAST(started / {CELL_S} AS INTEGER) * {CELL_S} AS quarter, cause, count(*), "
    + ", ".join(f"coalesce(sum({each}), 0), count(*) - count({each})" for each in _SUMMED)
    + ", sum_decimal(cost_usd), count(*) - count(cost_usd), coalesce(sum(missed), 0), coalesce(sum(duration_s), 0.0) "
    + f"FROM call WHERE session = ? AND {_BILLED} GROUP BY model, price, quarter, cause, {_BAND}"
)


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

    def cells(self, selection: Selection) -> Iterator[tuple[str, Cell]]:
        """Session and cell, for all cells of a selection."""
        self._refresh(selection)
        where, values = _where(selection)
        sql = f"SELECT s.id, m.cells FROM session s JOIN summary m ON m.session = s.id WHERE {where} ORDER BY s.created"
        for row in self._database.rows(sql, *values):
            with readable(row["id"]):
                found = [_cell(values) for values in json.loads(row["cells"])]
            yield from ((row["id"], cell) for cell in found if selection.covers(cell.at))

    def speeds(self, selection: Selection) -> list[Speed]:
        """Of the calls that were timed."""
        where, values = _where(selection)
        rows = self._database.rows(
            "SELECT c.session, c.model, c.started, c.ttft_s, c.duration_s, c.output FROM call c "
            f"JOIN session s ON s.id = c.session WHERE c.ttft_s IS NOT NULL AND {where}",
            *values,
        )
        speeds = [Speed(*row) for row in rows]
        return [speed for speed in speeds if selection.covers(speed.at)]

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
            cells = [list(row) for row in connection.execute(_CELLS, (session,))]
            connection.execute("INSERT OR REPLACE INTO summary VALUES (?, ?)", (session, json.dumps(cells)))


def _where(selection: Selection) -> tuple[str, list[object]]:
    """The condition on `session s`, and its values."""
    if selection.session is not None:
        return "s.id = ?", [selection.session]
    terms: list[str] = []
    values: list[object] = []
    if selection.origin == "ours":
        terms.append("s.origin IS NULL")
    elif selection.origin != "all":
        terms.append("s.origin = ?")
        values.append(selection.origin)
    if selection.directory is not None:
        terms.append("s.directory = ?")
        values.append(selection.directory)
    return " AND ".join(terms) or "TRUE", values


def _cell(values: list[Any]) -> Cell:
    model, price, at, cause, calls, *rest = values
    counts, (usd, unpriced, missed, seconds) = rest[:-4], rest[-4:]
    fresh, read, short, long, output, reasoning = (Count(*pair) for pair in zip(counts[::2], counts[1::2], strict=True))
    tokens = (fresh, read, short, long, output, reasoning)
    if not (money := Decimal(usd)).is_finite():
        raise ValueError("a price is no number")
    return Cell(model, price, at, cause, calls, *tokens, money, unpriced, missed, seconds)
