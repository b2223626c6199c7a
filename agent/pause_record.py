"""The ledger's record of pauses: how long the program has waited for its person, and after what."""

from datetime import datetime

from agent.database import Database
from context.pauses import After, Pause

_GONE_S = 12 * 3600.0  # who has not come back by then is taken to have left


class PauseRecord:
    """Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, session: str, began: float, after: After) -> None:
        """The program waits for its person, from `began` (seconds since the epoch) on."""
        hour = datetime.fromtimestamp(began).astimezone().hour
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO pause (session, began, after, hour) VALUES (?, ?, ?, ?)", (session, began, after, hour)
            )

    def end(self, session: str, ended: float) -> None:
        """The person has come back to the session."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE pause SET ended = ? WHERE session = ? AND ended IS NULL", (ended, session))

    def seen(self, now: float) -> list[Pause]:
        """All that are over, oldest first; those that nobody has ended for half a day count as never ended."""
        rows = self._database.rows(
            "SELECT * FROM pause WHERE ended IS NOT NULL OR began < ? ORDER BY began", now - _GONE_S
        )
        return [
            Pause(
                None if row["ended"] is None else max(0.0, float(row["ended"]) - float(row["began"])),
                row["after"],
                int(row["hour"]),
            )
            for row in rows
        ]
