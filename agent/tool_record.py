"""The ledger's record of tool runs, each marked before it begins (rule R7), and of what files the model has seen."""

import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from agent.database import Database
from agent.ledger_rows import ToolRun
from context.block import ToolResult

NOTHING_SEEN: Final[Mapping[Path, str | None]] = MappingProxyType({})


class ToolRecord:
    """Runs belong to the assistant block that asked for them, by its position in an epoch. Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, session_id: str, epoch: int, position: int, tool_call: str, started: float) -> None:
        """Mark a tool call as about to run. Raises LedgerError when it ran before."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO tool_run (session, epoch, position, tool_call, started) VALUES (?, ?, ?, ?, ?)",
                (session_id, epoch, position, tool_call, started),
            )

    def finish(
        self,
        session_id: str,
        epoch: int,
        position: int,
        result: ToolResult,
        finished: float,
        seen: Iterable[tuple[Path, str]] = (),
    ) -> None:
        """Complete a tool call with its result, and note the (path, digest) pairs that the model has now seen."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE tool_run SET finished = ?, text = ?, is_error = ? "
                "WHERE session = ? AND epoch = ? AND position = ? AND tool_call = ?",
                (finished, result.text, result.is_error, session_id, epoch, position, result.call_id),
            )
            self.see(connection, session_id, dict(seen))

    def see(self, connection: sqlite3.Connection, session_id: str, seen: Mapping[Path, str | None]) -> None:
        """Note which content of each file the model has seen last (None: none any more), within the caller's
        transaction.
        """
        connection.executemany(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)",
            [(session_id, os.fsencode(path), digest) for path, digest in seen.items() if digest is not None],
        )
        connection.executemany(
            "DELETE FROM seen WHERE session = ? AND path = ?",
            [(session_id, os.fsencode(path)) for path, digest in seen.items() if digest is None],
        )

    def runs(self, session_id: str, epoch: int, position: int) -> dict[str, ToolRun]:
        """The tool calls of the assistant block at `position` that were started, by id."""
        runs = {}
        for row in self._database.rows(
            "SELECT * FROM tool_run WHERE session = ? AND epoch = ? AND position = ?", session_id, epoch, position
        ):
            result = None
            if row["finished"] is not None:
                result = ToolResult(row["tool_call"], row["text"], bool(row["is_error"]))
            runs[row["tool_call"]] = ToolRun(row["tool_call"], result)
        return runs

    def seen(self, session_id: str) -> dict[Path, str]:
        """Digest of each file as the model last saw it, by path."""
        rows = self._database.rows("SELECT path, digest FROM seen WHERE session = ?", session_id)
        return {Path(os.fsdecode(row["path"])): row["digest"] for row in rows}
