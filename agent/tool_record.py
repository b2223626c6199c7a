"""The ledger's record of tool runs, each marked before it begins (rule R7), and of what files the model has seen."""

import os
from collections.abc import Iterable
from pathlib import Path

from agent.database import Database
from agent.ledger_rows import ToolRun
from context.block import ToolResult


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
            connection.executemany(
                "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)",
                [(session_id, os.fsencode(path), digest) for path, digest in seen],
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
