"""The ledger's record of pings: calls that only renewed a cached prefix, each with its price (rule R6)."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from agent.cache_record import CacheRecord
from agent.database import Database
from backends.base import Usage
from context.cachemodel import Entry


@dataclass(frozen=True, slots=True)
class Ping:
    """One of them. `activity`: what was waited for. `status`: done, failed, or cancelled by a turn (its bill is not
    known then). `prompt` and `blocks` say which prefix. `cost_usd` None: unknown. `saving_usd`: what it was expected to
    save, in the mean.
    """

    session: str
    at: float
    model: str
    endpoint: str
    prompt: str
    blocks: int
    activity: str
    status: str
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal | None = None
    price: str | None = None
    saving_usd: Decimal | None = None


class PingRecord:
    """Raises LedgerError."""

    def __init__(self, database: Database, caches: CacheRecord) -> None:
        self._database = database
        self._caches = caches

    def add(self, ping: Ping, entries: Iterable[Entry] = ()) -> None:
        """Record a ping together with what the provider's cache holds after it."""
        usage, cost = ping.usage, ping.cost_usd
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO ping (session, at, model, endpoint, prompt, blocks, activity, status, fresh, cache_read, "
                "cache_write, cache_write_long, tier, cost_usd, price, saving_usd) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(ping.session, ping.at, ping.model, ping.endpoint, ping.prompt, ping.blocks, ping.activity),
                    *(ping.status, usage.fresh, usage.cache_read, usage.cache_write, usage.cache_write_long),
                    *(usage.tier, None if cost is None else str(cost), ping.price),
                    None if ping.saving_usd is None else str(ping.saving_usd),
                ),
            )
            self._caches.remember(connection, entries)

    def of(self, session: str) -> list[Ping]:
        """The pings of a session in order."""
        return [_ping(row) for row in self._database.rows("SELECT * FROM ping WHERE session = ? ORDER BY id", session)]

    def by_others(self, session: str, since: float, until: float) -> list[tuple[float, Decimal]]:
        """When other sessions pinged from `since` to `until`, and for how much; those of unknown price left out."""
        rows = self._database.rows(
            "SELECT at, cost_usd FROM ping WHERE session != ? AND at BETWEEN ? AND ? AND cost_usd IS NOT NULL",
            *(session, since, until),
        )
        return [(float(row["at"]), Decimal(row["cost_usd"])) for row in rows]

    def all(self) -> list[Ping]:
        """The pings of all sessions in order."""
        return [_ping(row) for row in self._database.rows("SELECT * FROM ping ORDER BY id")]

    def spent(self, since: float, session: str | None = None) -> Decimal:
        """USD spent on pings that began after `since`, by one session or by all; those of unknown price left out."""
        rows = self._database.rows(
            "SELECT cost_usd FROM ping WHERE at >= ? AND (? IS NULL OR session = ?) AND cost_usd IS NOT NULL",
            *(since, session, session),
        )
        return sum((Decimal(row["cost_usd"]) for row in rows), Decimal(0))


def _ping(row: sqlite3.Row) -> Ping:
    return Ping(
        *(row["session"], float(row["at"]), row["model"], row["endpoint"], row["prompt"], row["blocks"]),
        *(row["activity"], row["status"]),
        Usage(row["fresh"], row["cache_read"], row["cache_write"], row["cache_write_long"], 0, 0, row["tier"]),
        None if row["cost_usd"] is None else Decimal(row["cost_usd"]),
        row["price"],
        None if row["saving_usd"] is None else Decimal(row["saving_usd"]),
    )
