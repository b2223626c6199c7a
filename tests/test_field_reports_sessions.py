"""Field reports of group I, each with its number: streams, retries and the files of sessions."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from emulator import Emulator, Failure, ManualClock, Reply

from agent.checkpoints import AFTER, BEFORE, Checkpoints
from agent.database import LedgerError
from agent.ledger import Ledger
from agent.session import Session
from context.block import ToolCall, ToolResult
from context.layers.command import command_block
from context.layers.history import NOT_RUN, reply_block
from context.notices import Environment

CLAUDE = "anthropic/claude-sonnet-5-5"


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        running.play(lambda _: Reply.of("Fine."))
        yield running


def test_a_lost_result_is_answered_and_the_repair_is_stored(tmp_path: Path) -> None:
    """Field reports 132 and 139: a second resume finds nothing to repair."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        told = Environment("2026-12-01", "/", "auto", asks=False)
        session = Session.create(ledger, now=1.0, directory="/", title="t", told=told, head=[])
        session.append([command_block("go"), reply_block([ToolCall("c", "shell", "{}")])])
    prompts = []
    for _ in range(2):
        with Ledger.open(path) as ledger:
            row = ledger.session(session.id)
            assert row is not None
            prompts.append(Session.resume(ledger, row).prompt)
            again = Session.resume(ledger, row)
            again.repair()
            assert again.prompt.block is not None
            assert again.prompt.block.parts == (ToolResult("c", NOT_RUN, is_error=True),)
    assert [prompt.length for prompt in prompts] == [2, 3]


def test_a_damaged_ledger_says_the_way_out_and_it_works(tmp_path: Path) -> None:
    """Field report 137."""
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database at all " * 500)
    before = path.read_bytes()
    with pytest.raises(LedgerError) as error:
        Ledger.open(path)
    assert f"mv '{path}' '{path}.damaged'" in str(error.value)
    assert path.read_bytes() == before
    path.rename(f"{path}.damaged")
    Ledger.open(path).close()


def test_a_damaged_record_of_checkpoints_is_set_aside_and_begun_anew(tmp_path: Path) -> None:
    """Field report 137."""
    root = tmp_path / "root"
    root.mkdir()
    points = Checkpoints(tmp_path / "data", root, {"PATH": "/nowhere"}, time.time)
    points.take("s", 1, BEFORE)
    (record,) = (tmp_path / "data" / "checkpoints").glob("*.db")
    record.write_bytes(b"no database at all " * 500)
    assert points.take("s", 2, BEFORE)
    (line,) = points.notices()
    assert "was damaged and is now" in line
    (root / "made").write_text("x")
    points.take("s", 2, AFTER)
    assert points.undo("s").changed == ("made",)


def test_an_overloaded_provider_at_the_start_of_a_session_is_waited_for(
    repository: Path, environment: dict[str, str], server: Emulator
) -> None:
    """Field report 129: six times 529, then an answer."""
    left = [Failure(529, ("overloaded_error", "Overloaded"))] * 6
    server.play(lambda _: left.pop() if left else Reply.of("Fine."))
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, environment, server, server.clock)
    desk.run("begin", again=False, model=CLAUDE)
    assert desk.answer() == "Fine."
    assert len(server.requests) == 7
