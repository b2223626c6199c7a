"""A reply that goes round in circles, from the stream to the ledger: what is cut, kept, billed and tried again."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from conftest import RunAgent
from emulator import Emulator, Reply, Say
from emulator.bodies import assert_extends
from emulator.script import Part, Think
from test_loop import ENVIRONMENT, USAGE, Run, called, said

from agent import events
from agent.events import TurnEnd
from agent.ledger import Ledger
from backends import base
from backends.base import Request
from context.block import Role, Text, ToolCall
from context.layers.history import CIRCLED

SENTENCE = "I will check the file again. "
GOOD = "The bug is in price.py."


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        root = (tmp_path / "root").resolve()
        root.mkdir()
        yield Run(root, ledger)


def circling(kind: str, before: str = GOOD) -> list[base.Event]:
    """A reply that would repeat itself for ever in its text, its reasoning or a call."""
    start: list[base.Event] = [USAGE, base.TextDelta(before + " ")] if before else [USAGE]
    match kind:
        case "text":
            return [*start, *[base.TextDelta(SENTENCE)] * 1_000]
        case "thinking":
            return [*start, *[base.ThinkingDelta(SENTENCE)] * 1_000]
        case _:
            line = base.ToolCallDelta("1", r"    total = total + price\n")
            opening = base.ToolCallDelta("1", '{"path":"price.py","content":"')
            return [*start, base.ToolCallStarted("1", "write"), opening, *[line] * 1_000]


def notices(run: Run) -> list[str]:
    return [event.text for event in run.events if isinstance(event, events.Notice)]


@pytest.mark.parametrize("kind", ["text", "thinking", "call"])
async def test_a_circling_reply_is_cut_and_the_model_tries_again(run: Run, kind: str) -> None:
    """Field report 125, and rule R1: the second request extends the first."""
    finished = await run.turn(circling(kind), said("Fixed."))
    assert (finished.end, finished.text, finished.calls) == (TurnEnd.DONE, "Fixed.", 2)

    first, second = run.backend.requests
    assert second.prompt.extends(first.prompt)
    kept, notice = second.prompt.since(first.prompt.length)
    assert kept.role is Role.ASSISTANT
    assert kept.parts == (Text(f"{GOOD} {SENTENCE}".rstrip() if kind == "text" else GOOD),)
    assert CIRCLED in notice.text
    (told,) = notices(run)
    assert "round in circles" in told
    assert run.reopened().prompt.digest == run.session.prompt.digest


async def test_of_a_reply_with_nothing_good_nothing_is_kept(run: Run) -> None:
    await run.turn(circling("thinking", before=""), said("Fixed."))
    first, second = (request.prompt for request in run.backend.requests)
    (notice,) = second.since(first.length)
    assert CIRCLED in notice.text
    assert "nothing of it is kept" in notices(run)[0]


async def test_a_local_model_draws_its_next_reply_otherwise_and_only_that(run: Run) -> None:
    await run.turn(circling("text"), called(ToolCall("1", "find", '{"pattern":"*"}')), said("Done."))
    asked = [(request.temperature, request.repeat > 1) for request in run.backend.requests]
    assert asked == [(None, False), (0.7, True), (None, False)], "None: that of the settings"


async def test_a_third_circle_in_a_turn_ends_it(run: Run) -> None:
    between = called(ToolCall("1", "find", '{"pattern":"*"}'))
    finished = await run.turn(circling("text"), between, circling("call"), circling("thinking"), said("never"))
    assert (finished.end, finished.calls) == (TurnEnd.STUCK, 4)
    assert "round in circles" in (finished.message or "")
    assert "\n" not in (finished.message or "")

    run.session = run.reopened()
    assert run.session.repair() == [CIRCLED], "the next command tells the model why its last reply is so short"
    finished = await run.turn(circling("text"), said("Done."))
    assert finished.end is TurnEnd.DONE, "the next turn counts anew"


async def test_the_bill_holds_what_is_known_of_a_cut_reply(run: Run) -> None:
    """Rule R4: what it had generated is billed, and nobody says how much that was."""
    await run.turn(circling("text"), said("Fixed."))
    cut, done = run.ledger.calls(run.session.id)
    assert (cut.status, cut.stop, cut.usage.fresh, cut.usage.output) == ("cut", "repeated", 10, None)
    assert (done.status, done.usage.output) == ("done", 5)
    told = [event for event in run.events if isinstance(event, events.CallFinished)]
    assert [event.usage.output for event in told] == [None, 5]
    assert run.session.repair() == [], "no draft is left of it"


async def test_the_stream_of_a_circling_reply_is_closed(run: Run) -> None:
    """So that the provider stops generating, and a local model's thread is free."""
    loop, backend = run.loop(said("Fixed."))
    played = backend.stream
    open_streams, pieces, replies = 0, 0, 0

    async def stream(request: Request) -> AsyncGenerator[base.Event, None]:
        nonlocal open_streams, pieces, replies
        replies += 1
        if replies == 2:
            assert open_streams == 0
            async for event in played(request):
                yield event
            return
        open_streams += 1
        try:
            while True:
                pieces += 1
                yield base.TextDelta(SENTENCE)
        finally:
            open_streams -= 1

    backend.stream = stream  # type: ignore[method-assign]
    assert (await loop.turn("do it", ENVIRONMENT)).end is TurnEnd.DONE
    assert pieces <= 17


async def test_an_honest_reply_is_left_alone(run: Run) -> None:
    table = "| a | b |\n|---|---|\n" + "".join(f"| {n} | the value is right |\n" for n in range(100))
    finished = await run.turn([*[base.TextDelta(line) for line in table.splitlines(True)], *said(table)[1:]])
    assert (finished.end, finished.text) == (TurnEnd.DONE, table)


@pytest.mark.parametrize("part", [Say(SENTENCE * 400, pieces=400), Think(SENTENCE * 400)])
def test_the_program_cuts_a_circling_reply_and_what_it_sends_next_extends_the_last_request(
    anthropic_server: Emulator, run_agent: RunAgent, part: Part
) -> None:
    """Field report 125: a sentence 400 times, in text and in reasoning. Rule R1, byte for byte."""
    anthropic_server.play([Reply.of(Say(GOOD + " "), part), Reply.of("Fixed.")])
    result = run_agent("run", "--mode", "auto", "Fix the price", env=anthropic_server.env)
    assert (result.returncode, result.stdout) == (0, "Fixed.\n"), result.stderr
    assert result.stderr.count("round in circles") == 1
    first, second = anthropic_server.requests
    assert_extends(first, second)
    kept, notice = second.body["messages"][-2:]
    assert kept["role"] == "assistant"
    assert [block["text"].removesuffix(SENTENCE.strip()).strip() for block in kept["content"]] == [GOOD]
    assert CIRCLED in str(notice)


def test_the_guard_can_be_switched_off(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    said = SENTENCE * 100
    anthropic_server.play([Reply.of(Say(said, pieces=100))])
    env = {**anthropic_server.env, "KEEPWARM_REPETITION_GUARD": "off"}
    result = run_agent("run", "--mode", "auto", "Say it", env=env)
    assert result.stdout.strip() == said.strip(), result.stderr
