"""The ledger's record of what a session is called, and its end when nothing ever came of it."""

from agent.database import Database

_TRACES = ("call", "ping")  # tables of what a session has cost
_PARTS = ("entry", "seen", "pause", "tool_run", "epoch", "cell", "summary", "warned")


class SessionRecord:
    """Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rename(self, session: str, title: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE session SET title = ? WHERE id = ?", (title, session))

    def drop_unused(self, session: str) -> bool:
        """Forget a session in which no command was given, unless something was paid for in it, or it was forked.
        Whether it is gone.
        """
        with self._database.transaction() as connection:
            for table in _TRACES:
                if connection.execute(f"SELECT 1 FROM {table} WHERE session = ? LIMIT 1", (session,)).fetchone():
                    return False
            if connection.execute("SELECT 1 FROM session WHERE parent = ? LIMIT 1", (session,)).fetchone():
                return False
            for table in _PARTS:
                connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
            connection.execute("DELETE FROM session WHERE id = ?", (session,))
        return True
