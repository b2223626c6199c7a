"""A fork at any turn goes on from what was sent then, byte for byte, and believes no more than its model was told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk, compact
from emulator import Emulator, ManualClock, Read, assert_extends, play

from agent.errors import UserError
from agent.ledger import Ledger
from agent.ledger_rows import EpochRow, SessionRow
from agent.session import Session
from agent.turns import Turn, turns
from context.block import Layer, ToolCall, ToolResult
from context.forecast import Cause
from context.layers.command import command_block
from context.layers.history import INTERRUPTED, reply_block
from context.notices import UNTOLD, Environment, changes

CLAUDE, GPT = "anthropic/claude-sonnet-5-5", "openai/gpt-6.2-sol"


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        running.play(compact(play([Read("price.py")])))
        yield running


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, server: Emulator) -> Desk:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    assert isinstance(server.clock, ManualClock)
    return Desk(repository, environment, server, server.clock)


def newest(ledger: Ledger, desk: Desk) -> SessionRow:
    row = ledger.last_used(str(desk.repository))
    assert row is not None
    return row


def listed(desk: Desk) -> list[Turn]:
    with Ledger.open(desk.folders.ledger) as ledger:
        return turns(ledger, newest(ledger, desk).id)


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_fork_at_a_turn_extends_what_that_turn_sent_and_reads_it_from_the_cache(
    desk: Desk, server: Emulator, model: str
) -> None:
    for number in (1, 2, 3):
        desk.run(f"turn {number}\nand more", again=number > 1, model=model)
    end_of_second = server.requests[3]
    before = len(server.requests)
    desk.pause(0.1)
    desk.run("another way", fork=True, at_turn=2, model=model)
    first = server.requests[before]
    assert_extends(end_of_second, first)
    assert b"turn 3" not in first.raw
    bill, written = server.bills[before], server.bills[3]
    assert bill is not None
    assert written is not None
    assert bill.read >= written.read + written.write_short > 0
    verdict = desk.calls()[-1].verdict
    assert verdict is not None
    assert verdict.cause is Cause.NONE
    assert [(turn.number, turn.command) for turn in listed(desk)] == [
        *((1, "turn 1"), (2, "turn 2"), (3, "another way")),
    ]

    desk.pause(0.1)
    desk.run("a third way", fork=True, at_turn=1, model=model)
    assert [turn.command for turn in listed(desk)] == ["turn 1", "a third way"], "a turn of the parent's parent"
    assert len({call.session for call in desk.calls()}) == 3, "every session stays"


def test_a_fork_at_the_last_turn_is_the_whole_session(desk: Desk, server: Emulator) -> None:
    desk.run("look", again=False, model=CLAUDE)
    desk.pause(0.1)
    desk.run("go on", fork=True, at_turn=1, model=CLAUDE)
    assert b"Time has passed" not in server.requests[2].raw
    with Ledger.open(desk.folders.ledger) as ledger:
        forked, parent = ledger.sessions()[:2]
        assert ledger.tools.seen(forked.id) == ledger.tools.seen(parent.id) != {}


def test_a_fork_at_an_earlier_turn_is_told_its_surroundings_and_has_seen_no_file(desk: Desk, server: Emulator) -> None:
    """What the model of an earlier turn knew is not recorded; a later mode, or a later look at a file, is not its."""
    desk.run("look", again=False, model=CLAUDE)
    desk.run("plan", model=CLAUDE, mode="plan")
    with Ledger.open(desk.folders.ledger) as ledger:
        forked = Session.fork(ledger, newest(ledger, desk), now=1.0, title="f", turn=1)
        assert ledger.tools.seen(forked.id) == {}
    desk.pause(0.1)
    desk.run("another way", fork=True, at_turn=1, model=CLAUDE)
    sent = server.requests[-2].raw.decode()
    assert "Mode: auto" in sent
    assert "Read again what you rely on" in sent


def test_a_turn_of_an_earlier_epoch_is_as_it_was_sent_then(desk: Desk, server: Emulator) -> None:
    desk.run("one", again=False, model=CLAUDE)
    desk.run("two", model=CLAUDE)
    with Ledger.open(desk.folders.ledger) as ledger:
        session = Session.resume(ledger, newest(ledger, desk))
        carried = [*session.prompt.head(Layer.PROJECT), command_block("<compacted>\nNothing.\n</compacted>")]
        session.begin_epoch(EpochRow(1, desk.clock.now(), "asked", 9, 1, None, None), carried, session.told)
    desk.run("three", model=CLAUDE)
    end = server.requests[3]
    desk.pause(0.1)
    before = len(server.requests)
    with Ledger.open(desk.folders.ledger) as ledger:
        forked = Session.fork(ledger, newest(ledger, desk), now=desk.clock.now(), title="f", turn=2)
        assert forked.epoch == 0
        last = ledger.last_answered(forked.id)
        assert last is not None
        assert (last.epoch, last.turn) == (0, 2)
    desk.run("back then", model=CLAUDE, fork=True, at_turn=2)
    assert_extends(end, server.requests[before])
    assert b"three" not in server.requests[before].raw


def test_a_turn_that_there_is_not_is_one_clear_line(desk: Desk) -> None:
    desk.run("look", again=False, model=CLAUDE)
    with Ledger.open(desk.folders.ledger) as ledger, pytest.raises(UserError) as error:
        Session.fork(ledger, newest(ledger, desk), now=1.0, title="f", turn=7)
    assert "has no turn 7. It has 1 to 1" in str(error.value)
    assert error.value.exit_code == 2


def test_a_fork_of_a_killed_session_says_that_its_tool_may_have_run(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        told = Environment("2026-12-01", "/", "auto", asks=False)
        session = Session.create(ledger, now=1.0, directory="/", title="t", told=told, head=[])
        session.append([command_block("go"), reply_block([ToolCall("c", "shell", "{}")])])
        ledger.tools.start(session.id, 0, 1, "c", 2.0)
        row = ledger.session(session.id)
        assert row is not None
        forked = Session.fork(ledger, row, now=3.0, title="f")
        forked.repair()
        assert forked.prompt.block is not None
        assert forked.prompt.block.parts == (ToolResult("c", INTERRUPTED, is_error=True),)


def test_who_was_told_nothing_is_told_everything() -> None:
    now = Environment("2026-12-01", "/", "auto", asks=False, branch="on branch main")
    assert len(changes(UNTOLD, now)) == 5


def test_sessions_of_the_same_second_do_not_get_the_same_name(tmp_path: Path) -> None:
    """Four hex digits: of 2,000 names drawn in a second some thirty are the same."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for _ in range(2_000):
            Session.create(ledger, now=1.0, directory="/", title="x", told=UNTOLD, head=[])
        assert len(ledger.sessions()) == 2_000
