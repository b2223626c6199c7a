"""Whatever the provider does, a turn ends finished or with one clear line, and the session goes on (rule R7)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from desk import Desk, DeskClock
from emulator import Call, Emulator, Failure, ManualClock, Recorded, Reply, Say, Think, assert_extends, html_page
from emulator.faults import overloaded, rate_limited, retry_after, server_error, spend_cap

from agent import events

APIS = {
    "anthropic": "anthropic/claude-sonnet-5-5",
    "responses": "openai/gpt-6.2-sol",
    "chat": "deepseek/deepseek-v4-pro",
}
MOST_EVENTS = 24  # of the faulty reply; a fault behind its last event does not happen


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, server: Emulator, api: str) -> Desk:
    base = server.env["EMULATOR_DEEPSEEK_BASE_URL"]
    (home / "config.toml").write_text(f'[endpoints.deepseek]\nbase_url = "{base}"\n')
    assert isinstance(server.clock, ManualClock)
    found = Desk(repository, {**environment, "DEEPSEEK_API_KEY": "k"}, server, server.clock)
    found.settings = replace(found.settings, model=APIS[api])
    return found


def two_effects(number: int) -> Reply:
    calls = [Call("shell", {"command": f"echo {number}.{side} >> log"}, pieces=2) for side in "ab"]
    return Reply((Think("Hm."), Say("I append twice.", pieces=3), *calls))


def cut_once(number: int) -> Callable[[Recorded], Reply]:
    """Appends twice, and is cut after event `number` of the first try."""
    faults = [number]

    def script(request: Recorded) -> Reply:
        assert request.reader is not None
        if request.reader.steps_taken(request.body):
            return Reply.of(f"Done {number}.")
        return replace(two_effects(number), cut_after=faults.pop()) if faults else two_effects(number)

    return script


def test_a_stream_cut_after_any_event_is_made_again_and_runs_each_tool_once(
    desk: Desk, server: Emulator, repository: Path
) -> None:
    """Field reports 126 and 127: the cut falls behind every event, also behind a complete tool call."""
    for number in range(MOST_EVENTS):
        server.play(cut_once(number))
        desk.run(f"append {number}", again=number > 0)
        assert desk.answer() == f"Done {number}."
    ran = (repository / "log").read_text().split()
    assert ran == sorted(set(ran), key=ran.index), "no command ran twice"
    assert sorted(ran) == sorted(f"{number}.{side}" for number in range(MOST_EVENTS) for side in "ab")
    restarts = [event for event in desk.seen if isinstance(event, events.ReplyRestarted)]
    assert len(restarts) >= 10, "most of these cuts fall into the stream"
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)


def statuses(clock: DeskClock) -> Iterator[tuple[str, Failure, str | None]]:
    """A name, what is answered first, and what the line must say when that ends the turn (None: it is tried again)."""
    yield "until a date", rate_limited(retry_after(7, "date", now=datetime.fromtimestamp(clock.now(), UTC))), None
    yield from [
        ("rate limit in seconds", rate_limited(retry_after(7)), None),
        ("rate limit in milliseconds", rate_limited(retry_after(7, "milliseconds")), None),
        ("overloaded", overloaded(), None),
        ("server error", server_error(500), None),
        ("bad gateway", server_error(502), None),
        ("no such model", Failure(404, ("", "no such model")), "does not have"),
        ("refused key", Failure(401, ("", "invalid key")), "refused the key"),
        ("a web page", html_page(), "web page"),
    ]


def test_every_status_ends_in_a_finished_turn_or_one_line_and_the_session_goes_on(desk: Desk, server: Emulator) -> None:
    server.play(lambda request: Reply.of("Fine."))
    desk.run("begin", again=False)
    for name, failure, line in statuses(desk.clock):
        slept = len(desk.clock.slept)
        server.interrupt(failure)
        desk.run(name, expect=0 if line is None else 1)
        last = [event for event in desk.seen if isinstance(event, events.TurnFinished)][-1]
        if line is None:
            assert len(desk.clock.slept) == slept + 1, name
            assert desk.answer() == "Fine."
            if failure.headers:
                assert desk.clock.slept[-1] == pytest.approx(7, abs=1), name
        else:
            assert line in (last.message or ""), name
            assert "\n" not in (last.message or "")
        desk.run(f"after {name}")
        assert desk.answer() == "Fine."
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)


def test_a_spend_cap_is_not_tried_again(desk: Desk, server: Emulator, api: str) -> None:
    server.play(lambda request: Reply.of("Fine."))
    desk.run("begin", again=False)
    answer = spend_cap() if api == "anthropic" else Failure(429, ("insufficient_quota", "You exceeded your quota."))
    server.interrupt(answer)
    before = len(server.requests)
    desk.run("go on", expect=1)
    assert len(server.requests) == before + 1
    assert not desk.clock.slept
    desk.run("after the cap was raised")
    assert desk.answer() == "Fine."
