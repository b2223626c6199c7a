"""New epochs and compaction in whole runs, on the emulators, which check that reasoning still fits its prefix."""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import NO_DOWNLOADS, Desk, compact
from emulator import Emulator, ManualClock, Read, Recorded, Reply, Shell, Think, play, raw_prefix
from emulator.actions import call_for
from emulator.faults import server_error

from agent import events
from agent.errors import UserError
from agent.ledger import Ledger
from agent.ledger_rows import CallRow, EpochRow
from agent.oneshot import compact_once
from agent.opening import Surroundings
from context.forecast import Cause

MODELS = {
    "anthropic": "anthropic/claude-opus-5-5",
    "responses": "openai/gpt-6.2-sol",
}  # reasoning is bound to the prefix
FACT = "the port is 8123"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as running:
        yield running


@pytest.fixture(params=MODELS)
def desk(
    request: pytest.FixtureRequest,
    repository: Path,
    environment: dict[str, str],
    home: Path,
    server: Emulator,
    clock: ManualClock,
) -> Desk:
    (home / "models.toml").write_text("[anthropic.claude-opus-5-5]\ntoken_scale = 1\n")
    for number in range(40):
        (repository / f"{number}.txt").write_text(f"{number} {'word ' * 10}\n" * 150)
    desk = Desk(repository, environment, server, clock)
    desk.settings = replace(desk.settings, model=MODELS[request.param])
    return desk


def reading(*numbers: int) -> Callable[[Recorded], Reply]:
    """A turn that reads those files, one a reply, and thinks before each. Asked for a summary, it tells the fact."""

    def script(request: Recorded) -> Reply:
        if "replaced by a summary" in request.raw.decode():
            assert FACT in request.raw.decode()
            return Reply.of(Think("What matters?"), f"Files were read. And {FACT}.")
        reply = compact(play([Read(f"{number}.txt") for number in numbers], answer="All read."))(request)
        return Reply((Think("Next."), *reply.parts))

    return script


def told(desk: Desk, kind: type[Any]) -> list[Any]:
    return [event for event in desk.seen if isinstance(event, kind)]


def epochs(desk: Desk) -> list[EpochRow]:
    with Ledger.open(desk.folders.ledger) as ledger:
        return [epoch for session in ledger.sessions() for epoch in ledger.epochs(session.id)]


def cause(call: CallRow) -> Cause | None:
    return call.verdict.cause if call.verdict else None


def compacting(desk: Desk) -> int:
    around = Surroundings(desk.env, desk.clock, lambda: 0.0, desk.seen.append, NO_DOWNLOADS, None)
    return asyncio.run(compact_once(None, desk.repository, replace(desk.settings, model=None), desk.folders, around))


def text_of(request: Recorded) -> str:
    return json.dumps(request.body, ensure_ascii=False)


def test_after_three_minutes_all_is_read_and_after_a_night_the_stale_is_folded(desk: Desk, server: Emulator) -> None:
    server.play(reading(1, 2, 3))
    desk.run(FACT, again=False)
    desk.pause(3)
    server.play(reading(4))
    desk.run("and the fourth")
    first = desk.calls()[4]
    assert cause(first) is Cause.NONE
    assert epochs(desk) == []

    desk.pause(13 * 60)
    server.play(reading(5))
    desk.run("good morning")
    (row,) = epochs(desk)
    assert row.reason == "cold"
    assert row.tokens_after < row.tokens_before * 0.7
    assert row.as_is_usd is not None
    assert row.anew_usd is not None
    assert row.anew_usd < row.as_is_usd
    (event,) = told(desk, events.EpochStarted)
    assert (event.tokens_before, event.tokens_after) == (row.tokens_before, row.tokens_after)
    opening, following = [call for call in desk.calls() if call.epoch == 1]
    assert (cause(opening), cause(following)) == (Cause.NEW_EPOCH, Cause.NONE)
    assert opening.usage.input_total is not None
    assert abs(opening.usage.input_total - row.tokens_after) < 300

    sent = text_of(server.requests[-1])
    assert FACT in sent
    assert "All read." in sent
    paths = re.findall(r"whole output: ([^\]]*)\]", sent)
    assert len(paths) == 3, "the outputs of the turns before the last"
    assert all(Path(path).read_text().count("word") == 1500 for path in paths)


def test_a_mode_that_folding_leaves_in_the_history_is_not_the_one_in_force(desk: Desk, server: Emulator) -> None:
    server.play(reading(1, 2))
    desk.run(FACT, again=False)
    server.play(reading(3))
    desk.run("only look", mode="plan")
    desk.pause(13 * 60)
    desk.run("now do it")
    assert len(epochs(desk)) == 1
    sent = text_of(server.requests[-1])
    assert sent.rindex("Mode: auto") > sent.rindex("Mode: plan")


def test_a_summary_is_asked_of_the_warm_prefix_leaves_no_mark_and_outlives_the_next_epochs(
    desk: Desk, server: Emulator
) -> None:
    server.play(reading(1, 2, 3))
    desk.run(FACT, again=False)
    before = desk.calls()[-1]
    server.play(reading(4, 5))
    assert compacting(desk) == 0
    asked = desk.calls()[-1]
    assert asked.purpose == "compaction"
    assert asked.usage.cache_read == before.usage.input_total
    assert asked.usage.cache_write == 0
    assert raw_prefix(server.requests[-1].raw).startswith(raw_prefix(server.requests[-2].raw))
    (done,) = told(desk, events.CompactionFinished)
    assert done.status == "done"
    assert done.tokens_after < done.tokens_before / 2
    assert done.cost_usd == asked.cost_usd

    desk.run("go on")
    desk.run("and on")
    desk.pause(13 * 60)
    desk.run("the next day")  # its fold must not take the summary for a notice
    assert epochs(desk)[-1].reason == "cold"
    assert f"Files were read. And {FACT}." in text_of(server.requests[-1])
    for _ in range(2):
        assert compacting(desk) == 0
        desk.run("go on")
    assert FACT in text_of(server.requests[-1])


def test_what_is_no_summary_changes_nothing(desk: Desk, server: Emulator) -> None:
    server.play(reading(1))
    desk.run(FACT, again=False)

    def calls_a_tool(request: Recorded) -> Reply:
        assert request.reader is not None
        return Reply.of(call_for(Shell("true"), request.reader.offers(request.body)))

    for script in (lambda _: Reply(), calls_a_tool, lambda _: Reply.of("word " * 9_000)):
        server.play(script)
        assert compacting(desk) == 1
    assert [event.status for event in told(desk, events.CompactionFinished)] == ["refused"] * 3
    assert epochs(desk) == []
    server.play(reading(2))
    desk.run("go on")
    assert cause(desk.calls()[-1]) is Cause.NONE


def small_window(desk: Desk, home: Path) -> None:
    (home / "models.toml").write_text(
        "[anthropic.claude-opus-5-5]\ntoken_scale = 1\ncontext = 20000\nmax_output = 2000\n"
        "[openai.'gpt-6.2-sol']\ncontext = 20000\nmax_output = 2000\n"
    )


def test_a_turn_that_fills_the_window_is_compacted_and_goes_on(desk: Desk, server: Emulator, home: Path) -> None:
    small_window(desk, home)

    files = itertools.count(1)

    def script(request: Recorded) -> Reply:
        """Twenty files, each once, however often the conversation is replaced by a summary."""
        sent = request.raw.decode()
        if "replaced by a summary" in sent:
            assert FACT in sent
            return Reply.of(f"Files were read. And {FACT}.")
        number = next(files)
        if number > 20:
            return Reply.of("All read.")
        assert request.reader is not None
        return Reply.of(Think("Next."), call_for(Read(f"{number}.txt"), request.reader.offers(request.body)))

    server.play(script)
    desk.run(FACT, again=False)
    done = told(desk, events.CompactionFinished)
    assert len(done) >= 2
    assert {event.status for event in done} == {"done"}
    sizes = [call.usage.input_total or 0 for call in desk.calls()]
    assert max(sizes) <= 20_000
    asked = [call for call in desk.calls() if call.purpose == "compaction"]
    assert all((call.usage.cache_read or 0) > 0.6 * (call.usage.input_total or 0) for call in asked)
    assert FACT in text_of(server.requests[-1])
    assert None not in [cause(call) for call in desk.calls()]


def test_without_compaction_a_full_window_ends_with_choices(desk: Desk, server: Emulator, home: Path) -> None:
    """Field report 78."""
    small_window(desk, home)
    server.play(reading(*range(1, 30)))
    desk.run(FACT, again=False, compact="off", expect=1)
    assert told(desk, events.CompactionStarted) == []
    message = told(desk, events.TurnFinished)[-1].message
    assert "agent compact" in message
    assert "new session" in message


def test_a_session_without_a_word_of_the_model_has_nothing_to_sum_up(desk: Desk, server: Emulator) -> None:
    server.play([server_error(400)] * 3)
    desk.run(FACT, again=False, expect=1)
    before = len(server.requests)
    with pytest.raises(UserError, match="no history yet"):
        compacting(desk)
    assert len(server.requests) == before
