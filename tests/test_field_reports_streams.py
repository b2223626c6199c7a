"""Field reports 126, 127 and 136: streams that break, and a session that changes its provider, on all three wires."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from desk import Desk
from emulator import Call, Emulator, ManualClock, Recorded, Reply, Say, Think, assert_extends

CLAUDE, GPT, DEEPSEEK = "anthropic/claude-sonnet-5-5", "openai/gpt-6.2-sol", "deepseek/deepseek-v4-pro"
EVENTS = 40  # more than a reply has on any wire


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def desk(repository: Path, environment: Mapping[str, str], server: Emulator, home: Path) -> Desk:
    assert isinstance(server.clock, ManualClock)
    address = server.env["EMULATOR_DEEPSEEK_BASE_URL"]
    (home / "config.toml").write_text(f'[endpoints.deepseek]\nbase_url = "{address}"\n')
    return Desk(repository, {**environment, "DEEPSEEK_API_KEY": "no-real-key"}, server, server.clock)


@pytest.mark.parametrize("model", [CLAUDE, GPT, DEEPSEEK])
def test_a_stream_that_breaks_around_a_call_runs_it_once(
    desk: Desk, server: Emulator, repository: Path, model: str
) -> None:
    """Field report 126: cut after each event of a reply with a call, also right behind the call."""
    calls = 0

    def script(request: Recorded) -> Reply:
        nonlocal calls
        assert request.reader is not None
        if request.reader.steps_taken(request.body):
            return Reply.of("It has run.")
        calls += 1
        effect = Call("shell", {"command": f"echo {(calls + 1) // 2} >> log"})
        return Reply.of(Say("I run it.", pieces=2), effect, cut_after=calls // 2 + 1 if calls % 2 else None)

    server.play(script)
    for number in range(1, EVENTS):
        desk.run(f"go {number}", again=number > 1, model=model)
        assert desk.answer() == "It has run."
        if calls // 2 >= number * 2:
            break
    ran = (repository / "log").read_text().split()
    assert len(ran) == len(desk.results()), "each call that ran has a result"
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)


@pytest.mark.parametrize("model", [CLAUDE, GPT, DEEPSEEK])
def test_no_half_message_is_left_by_a_broken_stream(desk: Desk, server: Emulator, model: str) -> None:
    """Field report 127: cut after each event, and answered on the second try."""
    text = "One. Two. Three. Four. Five."
    for number in range(1, EVENTS):
        before = len(server.requests)
        server.play([Reply.of(Say(text, pieces=5), cut_after=number), Reply.of(Say(text, pieces=5))])
        desk.run(f"go {number}", again=number > 1, model=model)
        assert desk.answer() == text
        if len(server.requests) == before + 1:  # the reply was whole before the cut
            break
    else:
        raise AssertionError("a reply has more events than were tried")
    assert number > 3
    server.play(lambda _: Reply.of("Fine."))
    desk.run("what did you say?", model=model)
    body = json.dumps(server.requests[-1].body)
    assert body.count("One. Two.") == body.count(text) == number, "each reply once, and whole"


def test_reasoning_stays_with_the_provider_that_thought_it(desk: Desk, server: Emulator) -> None:
    """Field report 136: from one provider to another and back, in one session."""
    server.play(lambda request: Reply.of(Think(f"thought of {request.body['model']}"), "An answer."))
    for number, model in enumerate([CLAUDE, GPT, CLAUDE, DEEPSEEK, GPT]):
        desk.run(f"go {number}", again=number > 0, model=model)
    bodies = [json.dumps(request.body) for request in server.requests]
    first, other, back, third, again = bodies
    assert "thinking" not in other.replace("preserve_thinking", "")
    assert "claude" not in other
    assert "thought of claude" in back or '"signature"' in back, "its own reasoning is sent back"
    assert "thought of gpt" not in back
    assert "thought of" not in third
    assert '"signature"' not in again
    assert_extends(server.requests[0], server.requests[2])
    assert_extends(server.requests[1], server.requests[4])
    assert len(first) < len(back)
