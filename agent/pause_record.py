"""The ledger's record of pauses: how long the program has waited for its person, and after what."""

from dataclasses import dataclass
from datetime import datetime

from agent.database import Database
from context.pauses import After, Pause

_GONE_S = 12 * 3600.0  # who has not come back by then is taken to have left


@dataclass(frozen=True, slots=True)
class Wait:
    """For the person, in seconds since the epoch. `ended` None: they have not come back yet."""

    began: float
    ended: float | None
    after: After


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

    def leave(self, session: str) -> None:
        """The program is closed: it no longer waits, and how long its person stays away says nothing."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM pause WHERE session = ? AND ended IS NULL", (session,))

    def of(self, session: str) -> list[Wait]:
        """How the program has waited for its person in the session, in order."""
        rows = self._database.rows("SELECT began, ended, after FROM pause WHERE session = ? ORDER BY began", session)
        return [Wait(float(row["began"]), row["ended"], row["after"]) for row in rows]

    def turns(self, before: float) -> list[int]:
        """How many turns each session had that has waited for its person, of those that were made before a time."""
        rows = self._database.rows(
            "SELECT max(turn) AS turns FROM call JOIN session s ON s.id = call.session WHERE s.created < ? "
            "AND EXISTS (SELECT 1 FROM pause WHERE pause.session = s.id) GROUP BY s.id HAVING max(turn) IS NOT NULL",
            before,
        )
        return [int(row["turns"]) for row in rows]

    def seen(self, now: float) -> list[Pause]:
        """All that were over by `now`, oldest first; one that nobody had ended for half a day counts as never ended."""
        rows = self._database.rows(
            "SELECT began, after, hour, CASE WHEN ended <= ? THEN ended END AS ended FROM pause "
            "WHERE ended <= ? OR began < ? ORDER BY began",
            *(now, now, now - _GONE_S),
        )
        return [
            Pause(
                None if row["ended"] is None else max(0.0, float(row["ended"]) - float(row["began"])),
                row["after"],
                int(row["hour"]),
            )
            for row in rows
        ]
