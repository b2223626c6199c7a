"""A ledger of an earlier release goes on in this one (field report 134): sessions, calls, and the same tables."""

import sqlite3
from pathlib import Path

import pytest

from agent.database import LedgerError
from agent.ledger import Ledger
from context.block import Block, Layer, Role, Text, ToolResult
from context.canonical import canonical_json

BLOCK = Block.make(Layer.COMMAND, Role.USER, (Text("hello"),))
TOLD = '{"date": "2026-12-01", "directory": "/", "mode": "auto", "asks": false}'


def tables(path: Path) -> dict[str, list[tuple[str, str, int, int]]]:
    """Name, type, whether it may be empty and its place in the key, for each column of each table."""
    with sqlite3.connect(path) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: [(row[1], row[2], row[3], row[5]) for row in connection.execute(f"PRAGMA table_info({name})")]
            for name in names
        }


def indexes(path: Path) -> set[tuple[str, str]]:
    """Name and table of each, and of each trigger."""
    with sqlite3.connect(path) as connection:
        return set(connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type IN ('index', 'trigger')"))


def earlier(path: Path, version: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(Path(__file__).with_name(f"ledger_format_{version}.sql").read_text())
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(
            "INSERT INTO session (id, created, directory, title, told) VALUES ('s', 1.0, '/', 'an old one', ?)", (TOLD,)
        )
        connection.execute("INSERT INTO block VALUES (?, ?, 5)", (BLOCK.digest, canonical_json(BLOCK.to_json())))
        epoch = "" if version < 3 else "0, "
        connection.execute(f"INSERT INTO entry VALUES ('s', {epoch}0, ?)", (BLOCK.digest,))
        connection.execute(f"INSERT INTO tool_run VALUES ('s', {epoch}0, 'call', 1.0, 2.0, 'done', 0)")
        connection.execute(
            "INSERT INTO call (session, number, model, dialect, started, blocks, prompt, markers, status, fresh, "
            "cache_read, cache_write, output) VALUES ('s', 1, 'anthropic/claude-opus-5', 'anthropic:claude-opus-5', "
            "2.0, 3, 'digest', '[]', 'done', 1, 2, 3, 4)"
        )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_migrated_ledger_has_the_tables_of_a_new_one(tmp_path: Path, version: int) -> None:
    earlier(tmp_path / "old.db", version)
    for name in ("old.db", "new.db"):
        Ledger.open(tmp_path / name).close()
    assert tables(tmp_path / "old.db") == tables(tmp_path / "new.db")
    assert indexes(tmp_path / "old.db") == indexes(tmp_path / "new.db")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_an_earlier_release_recorded_is_kept_and_what_it_did_not_is_unknown(tmp_path: Path, version: int) -> None:
    earlier(tmp_path / "old.db", version)
    for _ in range(2):  # opened once more, nothing is done again
        with Ledger.open(tmp_path / "old.db") as ledger:
            (session,) = ledger.sessions()
            (call,) = ledger.calls("s")
            assert list(ledger.prompt("s")) == [BLOCK]
            assert ledger.tools.runs("s", 0, 0)["call"].result == ToolResult("call", "done", is_error=False)
    assert (session.title, session.parent, session.origin) == ("an old one", None, None)
    assert (call.usage.cache_read, call.forecast, call.verdict, call.sent) == (2, None, None, None)


def test_a_migration_that_cannot_end_leaves_the_old_format(tmp_path: Path) -> None:
    """All of its statements or none: a table that is in the way makes the last ones fail."""
    earlier(tmp_path / "old.db", 1)
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("CREATE TABLE refusal (x)")
    before = tables(tmp_path / "old.db")
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path / "old.db")
    assert tables(tmp_path / "old.db") == before
