"""Budgets of sessions and days: the real agent on the emulator, over restarts, with several at once."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from chat_screen import Start
from conftest import RunAgent
from desk import Desk
from emulator import Call, Emulator, Gate, ManualClock, Reply
from scripted import plan
from waiting import LEASE_S, Waiting, opened

from agent import events
from agent.bill import Bill
from agent.budgets import BudgetError, BudgetLimits
from agent.errors import UserError
from agent.ledger import Ledger

pytest_plugins = ["waiting_fixtures"]


@pytest.fixture
def desk(repository: Path, environment: dict[str, str]) -> Iterator[Desk]:
    noon = datetime(2026, 12, 1, 12).timestamp()  # where the person is
    with Emulator(lambda request: Reply.of("Fine."), clock=ManualClock(noon)) as server:
        assert isinstance(server.clock, ManualClock)
        yield Desk(repository, environment, server, server.clock)


def told(desk: Desk) -> list[tuple[str, str]]:
    return [(event.scope, event.level) for event in desk.seen if isinstance(event, events.BudgetTold)]


def message(desk: Desk) -> str:
    return [event.message or "" for event in desk.seen if isinstance(event, events.TurnFinished)][-1]


def spent(desk: Desk) -> Decimal:
    with Ledger.open(desk.folders.ledger) as ledger:
        pings = sum((ledger.pings.spent(0.0, row.id) for row in ledger.sessions()), Decimal(0))
    return pings + sum((call.cost_usd or Decimal(0) for call in desk.calls()), Decimal(0))


def test_a_session_is_warned_once_over_restarts_and_stops_before_the_next_call(desk: Desk) -> None:
    desk.run("begin", again=False)
    first = spent(desk)
    limit = first * Decimal("1.37")
    assert told(desk) == []
    desk.run("go on", max_cost_session=limit)
    assert told(desk) == [("session", "warn")], "when its call had crossed four fifths"
    desk.run("go on", max_cost_session=limit)
    assert told(desk) == [("session", "warn")], "once"
    made = len(desk.server.bodies)
    tight = spent(desk)
    assert first < tight < limit
    desk.run("go on", expect=3, max_cost_session=tight)
    assert len(desk.server.bodies) == made, "no call begins"
    assert told(desk)[-1] == ("session", "stop")
    assert f"Stopped: ${tight:.4f} of the ${tight.normalize():f} for this session are spent" in message(desk)
    assert "--max-cost-session USD raises it for one command" in message(desk)
    with Ledger.open(desk.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        assert "go on" in str(list(ledger.prompt(row.id))[-2]), "the last command that was sent"
        before = ledger.prompt(row.id).length
    desk.run("once more", max_cost_session=limit * 2)
    with Ledger.open(desk.folders.ledger) as ledger:
        assert ledger.prompt(row.id).length == before + 2, "the command that was stopped left nothing behind"
    desk.run("a new session", again=False, max_cost_session=first * 2)
    assert told(desk)[-1] == ("session", "stop"), "whose budget is its own"


def test_a_turn_stops_between_two_calls_and_goes_on_when_the_budget_is_raised(desk: Desk) -> None:
    desk.server.play(plan(*[Call("shell", {"command": f"echo {n}"}) for n in range(4)], answer="Done."))
    desk.run("work", again=False, expect=3, max_cost_session=Decimal("0.000001"))
    assert len(desk.calls()) == 1
    assert told(desk) == [("session", "forecast"), ("session", "warn"), ("session", "stop")]
    (foretold, *_) = [event for event in desk.seen if isinstance(event, events.BudgetTold)]
    assert foretold.expected_usd is not None
    assert foretold.expected_usd > foretold.limit_usd
    assert "Everything so far is kept: go on with" in message(desk)
    desk.run("go on", max_cost_session=None)
    assert desk.answer() == "Done."


def test_a_day_is_shared_by_all_sessions_and_ends_at_midnight_where_the_person_is(desk: Desk) -> None:
    desk.run("one", again=False)
    desk.pause(60)
    desk.run("two", again=False)
    limit = spent(desk)
    desk.run("three", again=False, expect=3, max_cost_day=limit)
    assert "for today, in all sessions, are spent" in message(desk)
    desk.pause(11 * 60 - 1)  # a minute before midnight
    desk.run("four", again=False, expect=3, max_cost_day=limit)
    desk.pause(2)
    desk.run("five", again=False, max_cost_day=limit)
    assert desk.answer() == "Fine."


def test_what_is_read_from_other_agents_logs_is_not_spent_here(desk: Desk) -> None:
    desk.run("one", again=False)
    with Ledger.open(desk.folders.ledger) as ledger, ledger._database.transaction() as connection:
        connection.execute("UPDATE session SET origin = 'codex'")
    desk.run("two", again=False, max_cost_day=Decimal("0.5"))
    assert told(desk) == []


def test_two_agents_at_once_share_the_day_and_what_is_under_way_counts(
    anthropic_server: Emulator, run_agent: RunAgent
) -> None:
    """The second process finds a call of the first one open, and counts what that was expected to cost."""
    gate = Gate()
    anthropic_server.play([Reply.of("Held.", gates={1: gate}), Reply.of("Never.")])
    day = {**anthropic_server.env, "KEEPWARM_MAX_COST_DAY": "0.001"}

    async def both() -> tuple[int, str, str]:
        loop = asyncio.get_running_loop()
        first = loop.run_in_executor(None, lambda: run_agent("run", "a", env=day))
        await loop.run_in_executor(None, anthropic_server.wait_for_requests, 1, 60.0)
        second = await loop.run_in_executor(None, lambda: run_agent("run", "--json", "b", env=day))
        gate.set()
        return (await first).returncode, second.stdout, second.stderr

    code, out, error = asyncio.run(both())
    assert code == 0, error
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["scope"], line["level"]) for line in lines if line["type"] == "budget"] == [("day", "stop")]
    assert lines[-1]["end"] == "limit"
    assert "in calls that have no bill" in lines[-1]["message"]
    assert len(anthropic_server.bodies) == 1


async def test_an_interrupted_call_counts_as_what_it_was_expected_to_cost(waiting: Waiting, server: Emulator) -> None:
    gate = Gate()
    server.play([Reply.of("a", gates={1: gate}), Reply.of("b")])
    waiting.settings = replace(waiting.settings, max_cost_session=Decimal("0.0001"))
    turn = waiting.start("begin")
    await waiting.until(events.CallStarted)
    turn.cancel()
    await turn
    gate.set()  # not earlier: usage that arrives before the connection is closed counts as it is
    assert await waiting.start("go on", again=True) == 3
    (started,) = [event for event in waiting.seen if isinstance(event, events.CallStarted)]
    (stop,) = [event for event in waiting.seen if isinstance(event, events.BudgetTold) and event.level == "stop"]
    assert stop.spent_usd == started.cost_usd


async def test_pings_end_when_the_budget_is_spent(waiting: Waiting, api: str) -> None:
    async with opened(waiting) as conversation:
        finished = await conversation.turn("begin")
        await conversation.wait(finished)
        await waiting.idle()
        await waiting.clock.advance(LEASE_S[api] - 20, waiting.pinged)
        (ping,) = waiting.pings()
        assert ping.cost_usd is not None
        assert finished.cost_usd is not None
        conversation.budgets.limits = BudgetLimits(session=finished.cost_usd + ping.cost_usd * 2)
        await waiting.clock.advance(LEASE_S[api] * 3, waiting.pinged)
    paid = [each.cost_usd for each in waiting.pings()]
    assert len(paid) == 2, "what the third one costs is not there any more"
    (let_go,) = [event for event in waiting.seen if isinstance(event, events.KeepaliveStopped)]
    assert let_go.why == "budget"
    warned = [event.level for event in waiting.seen if isinstance(event, events.BudgetTold)]
    assert warned == ["warn"], "when the second one had crossed the line"


async def test_a_summary_that_cannot_be_paid_is_not_asked_for(waiting: Waiting) -> None:
    async with opened(waiting) as conversation:
        finished = await conversation.turn("begin")
        conversation.budgets.limits = BudgetLimits(day=finished.cost_usd)
        with pytest.raises(BudgetError, match="max_cost_day"):
            await conversation.compact(Bill())
    assert len(waiting.calls()) == 1
    (ended,) = [event for event in waiting.seen if isinstance(event, events.CompactionFinished)]
    assert (ended.status, ended.detail) == ("failed", "the budget is spent")


def test_an_unknown_price_cannot_be_kept_to_and_is_refused(desk: Desk) -> None:
    with pytest.raises(UserError, match="max_cost_day cannot be kept") as refused:
        desk.run("one", again=False, model="anthropic/claude-mythos-5-1", max_cost_day=Decimal(5))
    assert refused.value.exit_code == 2
    desk.run("one", again=False, model="anthropic/claude-mythos-5-1")
    desk.run("two", again=False, expect=3, max_cost_day=Decimal(5))
    assert "what 1 call of today cost is not known, so max_cost_day cannot be kept" in message(desk)
    desk.run("two", again=False)  # which `off` comes to


def test_a_model_that_costs_nothing_is_not_stopped(desk: Desk, home: Path) -> None:
    desk.run("one", again=False)
    (home / "models.toml").write_text("[anthropic.claude-opus-5.price]\ninput = 0\noutput = 0\n")
    desk.run("two", again=False, model="anthropic/claude-opus-5", max_cost_day=spent(desk))
    assert desk.answer() == "Fine."


def test_the_chat_asks_stops_and_goes_on(chat: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(answer="An answer."))
    screen = chat("--max-cost-session", "0.0001", KEEPWARM_KEEPALIVE="off").opened()
    screen.say("hello")
    screen.answer("n", "[y] yes")
    screen.wait_for("> hello")
    assert "An answer." not in screen.text
    screen.send("\r")
    screen.answer("y", "[y] yes")
    screen.wait_for("1 call ·")
    screen.say("and more")
    screen.wait_for("(max_cost_session). /budget session USD")
    screen.wait_for("> and more")
    screen.send("\x15")
    screen.say("/budget session 2")
    screen.wait_for("of $2 (")
    screen.say("and more")
    screen.wait_until(lambda: screen.text.count("An answer.") == 2, "the second answer")
    screen.say("/budget")
    screen.wait_for("Spent for today, in all sessions: $")
    screen.leave()
