"""What the ledger knows of the providers' caches, across sessions and processes: entries, and refused options."""

import sqlite3
from collections.abc import Iterable

from agent.database import Database
from backends.base import CacheOption
from context.cachemodel import Entry


class CacheRecord:
    """The durable `context.cachemodel.Entries`. Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, key: str, prefix: str) -> Entry | None:
        rows = self._database.rows("SELECT * FROM cached WHERE key = ? AND prefix = ?", key, prefix)
        return Entry(*tuple(rows[0])) if rows else None

    def all(self) -> list[Entry]:
        """Every entry, expired ones too."""
        return [Entry(*tuple(row)) for row in self._database.rows("SELECT * FROM cached")]

    def uses(
        self,
        endpoint: str,
        model: str,
        since: float,
        before: float,
        directory: str | None = None,
        but: str | None = None,
    ) -> list[float]:
        """When requests of `model` were sent from `since` to `before` (seconds since the epoch), in order: by sessions
        of `directory` (None: of all), not counting the session `but`.
        """
        rows = self._database.rows(
            "SELECT u.at FROM (SELECT session, started AS at, endpoint, model FROM call "
            "WHERE status = 'done' OR fresh IS NOT NULL UNION ALL "
            "SELECT session, at, endpoint, model FROM ping WHERE status = 'done') u "
            "JOIN session s ON s.id = u.session WHERE u.endpoint = ? AND u.model = ? AND u.at >= ? AND u.at < ? "
            "AND (? IS NULL OR s.directory = ?) AND (? IS NULL OR s.id != ?) ORDER BY u.at",
            *(endpoint, model, since, before, directory, directory, but, but),
        )
        return [float(row["at"]) for row in rows]

    def remember(self, connection: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Keep `entries`, each in place of the one of equal key and prefix, within the caller's transaction."""
        connection.executemany(
            "INSERT OR REPLACE INTO cached VALUES (?, ?, ?, ?, ?, ?)",
            [(entry.key, entry.prefix, entry.tokens, entry.used, entry.ttl, entry.written) for entry in entries],
        )

    def refused(self, endpoint: str) -> frozenset[CacheOption]:
        """The options that `endpoint` has refused. One that this release does not know is left out."""
        rows = self._database.rows("SELECT option FROM refusal WHERE endpoint = ?", endpoint)
        known = {option.value for option in CacheOption}
        return frozenset(CacheOption(row["option"]) for row in rows if row["option"] in known)

    def refuse(self, endpoint: str, option: CacheOption, at: float) -> None:
        """Note that `endpoint` refuses `option` (`at`: seconds since the epoch)."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO refusal VALUES (?, ?, ?)", (endpoint, option.value, at))
