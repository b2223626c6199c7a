"""Faults that users of other agents reported, groups A to C, as whole runs on the emulators (docs/field-reports.md)."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from desk import Desk
from emulator import Emulator, ManualClock, Read, Recorded, Reply, Shell, assert_extends, markers, play

from agent.ledger import Ledger
from agent.reports.explain import explain, print_explanations
from context.forecast import Cause

MODEL = "anthropic/claude-sonnet-5-5"


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, server: Emulator) -> Desk:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    assert isinstance(server.clock, ManualClock)
    return Desk(repository, environment, server, server.clock)


def test_a_hint_in_every_turn_stands_at_the_tail_of_its_own_turn(desk: Desk, server: Emulator) -> None:
    """Field report 4: five turns, each with a notice of its own, and each body extends the last."""
    server.play(play([Read("price.py")]))
    for turn in range(5):
        desk.run(f"turn {turn}", again=turn > 0, model=MODEL, mode=("plan", "auto")[turn % 2])
    told = [json.dumps(request.body["messages"][-1]) for request in server.requests]
    assert sum("Mode: " in words for words in told) == 5
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)


def test_neither_the_tools_nor_the_bill_depend_on_the_hash_seed(
    server: Emulator, run_agent: Callable[..., "CompletedProcess[str]"], home: Path
) -> None:
    """Field reports 18, 21 and 24: one order of the tools, and one price of a fixed script, in every process."""
    server.play(play([[Read("price.py"), Shell("python3 -B check.py")], Read("check.py")]))
    bills = []
    for seed in ("0", "1", "4242"):
        server.evict()
        before = len(server.bills)
        env = {**server.env, "PYTHONHASHSEED": seed}
        done = run_agent("run", "--model", MODEL, "--mode", "auto", "look", env=env)
        assert done.returncode == 0, done.stderr
        bills.append([(bill.fresh, bill.read, bill.write_short) for bill in server.bills[before:] if bill])
        (home / "ledger.db").unlink()
    assert bills[0] == bills[1] == bills[2]
    assert len({json.dumps(request.body["tools"]) for request in server.requests}) == 1


def test_the_time_to_live_may_change_in_the_middle_of_a_session(desk: Desk, server: Emulator) -> None:
    """Field report 31: long, short and long again; every body is legal, and each bill is foretold."""
    server.play(play([Read("price.py")]))
    for turn, ttl in enumerate(["long", "short", "long"]):
        desk.run(f"turn {turn}", again=turn > 0, model=MODEL, cache_ttl=ttl)
        desk.pause(1)
    for call, bill in zip(desk.calls(), server.bills, strict=True):
        assert bill is not None
        assert call.forecast is not None
        assert (call.forecast.usage.cache_read, call.forecast.usage.cache_write_long) == (bill.read, bill.write_long)


def test_a_loop_of_thirty_calls_misses_nothing(desk: Desk, server: Emulator) -> None:
    """Field report 38: the layout of markers, not only their number, decides what a long loop reads again."""
    server.play(play([Shell(f"echo {step} {'word ' * 80}") for step in range(30)]))
    desk.run("a long loop", again=False, model=MODEL)
    first, *others = server.bills
    assert first is not None
    assert len(others) == 30
    total = first.input_total
    for bill in others:
        assert bill is not None
        assert bill.read == total, "all of the last request is read"
        total = bill.input_total


def test_a_one_shot_never_buys_the_long_time_to_live_for_its_tail(desk: Desk, server: Emulator) -> None:
    """Field report 39: one hour is configured; SYSTEM and PROJECT get it, the conversation does not."""
    server.play(play([Read("price.py")]))
    desk.run("look", again=False, model=MODEL, cache_ttl="long")
    for request in server.requests:
        by_place = dict(markers(request.body))
        assert {ttl for place, ttl in by_place.items() if place.startswith("system")} == {"1h"}
        assert {ttl for place, ttl in by_place.items() if place.startswith("messages")} == {"5m"}


def test_an_endpoint_that_refuses_a_time_to_live_is_asked_once_more_and_remembered(
    desk: Desk, server: Emulator
) -> None:
    """Field report 44."""
    server.refused_options.add("ttl")
    server.play(play([Read("price.py")]))
    desk.run("look", again=False, model=MODEL, cache_ttl="long")
    refused = len(server.requests) - len([bill for bill in server.bills if bill])
    assert refused == 1, "one refusal, then the call passes"
    desk.run("another session", again=False, model=MODEL, cache_ttl="long")
    assert all(bill is not None for bill in server.bills[2:])
    assert {ttl for request in server.requests[1:] for _, ttl in markers(request.body)} == {"5m"}


def test_a_cache_that_is_stuck_at_the_tools_is_named_call_by_call(
    desk: Desk, server: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field report 49: the provider keeps nothing behind SYSTEM; three calls in a row say what was not read."""
    stuck: dict[str, Any] = {}

    def script(request: Recorded) -> Reply:
        return Reply.of("Fine.", usage=stuck.get("usage"))

    server.play(script)
    desk.run("begin", again=False, model=MODEL)
    system = 887
    for turn in range(3):
        stuck["usage"] = {
            "input_tokens": 0,
            "cache_read_input_tokens": system,
            "cache_creation_input_tokens": 2500 + 20 * turn,
        }
        desk.run(f"turn {turn}", model=MODEL)
    found = [call.verdict for call in desk.calls()[1:]]
    assert all(verdict is not None and verdict.cause is Cause.EVICTED and verdict.missed for verdict in found)
    with Ledger.open(desk.folders.ledger) as ledger:
        row = ledger.last_used(str(desk.repository))
        assert row is not None
        print_explanations(row, explain(ledger, row, None))
    assert capsys.readouterr().out.count("dropped it before its lease ran out") == 3
