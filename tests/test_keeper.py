"""The keeper: while a tool runs or a rate limit is waited for, the lease is renewed, and nothing else."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest
from budget_support import no_budgets
from emulator import Emulator, Reply, Shell, play, raw_prefix
from emulator.faults import rate_limited, retry_after, server_error
from waiting import LEASE_S, Waiting

from agent import events
from agent.backend_choice import Downloads, find_model, load_catalog, open_backend, pricing
from agent.bill import Bill
from agent.config import Settings
from agent.forecaster import Forecaster
from agent.keeper import Keeper, KeepLimits
from agent.ledger import Ledger
from agent.parts import Parts
from agent.reports.cost import CostReport
from agent.reports.sessions import summarise
from agent.session import Session
from backends.base import Request, Usage
from context.forecast import Cause

pytest_plugins = ["waiting_fixtures"]


@pytest.fixture(autouse=True)
def a_tool_that_waits(server: Emulator) -> None:
    server.play(play([Shell("while [ ! -e go ]; do sleep 0.02; done; rm go")], answer="Done."))


async def test_a_tool_that_outlives_the_lease_loses_nothing(waiting: Waiting, server: Emulator, api: str) -> None:
    """1.6 leases long (eight minutes of five): one ping goes out half a minute before its end and reads the prefix."""
    running = waiting.start("wait for it")
    await waiting.until(events.ToolStarted)
    began = waiting.clock.now()
    await waiting.clock.advance(LEASE_S[api] * 1.6, waiting.pinged)
    (waiting.repository / "go").touch()
    assert await running == 0

    (ping,) = waiting.pings()
    assert (ping.status, ping.activity, ping.at) == ("done", "tool", began + LEASE_S[api] - 30)
    first, last = waiting.calls()
    assert ping.usage.cache_read == first.usage.input_total
    assert ping.cost_usd is not None
    assert last.verdict is not None
    assert (last.verdict.cause, last.verdict.foreseen) == (Cause.NONE, True)
    assert last.usage.cache_read == first.usage.input_total
    called, pinged, _ = server.requests
    assert raw_prefix(pinged.raw) == raw_prefix(called.raw), "a ping is the last request, to the byte"
    told = waiting.renewals()[0]
    assert told.until == ping.at + LEASE_S[api]


async def test_pings_go_on_as_long_as_the_tool_and_no_longer_than_is_set(waiting: Waiting, api: str) -> None:
    lease = LEASE_S[api]
    waiting.settings = Settings(model=waiting.settings.model, mode="auto", keepalive_minutes=lease * 3 // 60)
    running = waiting.start("wait for it")
    await waiting.until(events.ToolStarted)
    began = waiting.clock.now()
    await waiting.clock.advance(lease * 10, waiting.pinged)
    (waiting.repository / "go").touch()
    assert await running == 0
    assert [ping.at - began for ping in waiting.pings()] == pytest.approx([(lease - 30) * n for n in (1, 2, 3)])
    last = waiting.calls()[-1]
    assert last.verdict is not None
    assert last.verdict.cause is Cause.EXPIRED


async def test_a_rate_limit_is_waited_for_warm(waiting: Waiting, server: Emulator, api: str) -> None:
    server.play(lambda request: Reply.of("Fine."))
    assert await waiting.start("begin") == 0
    waiting.settings = Settings(model=waiting.settings.model, mode="auto")
    server.interrupt(rate_limited(retry_after(500)))
    running = waiting.start("go on", again=True)
    await waiting.until(events.ReplyRestarted)
    await waiting.clock.advance(499, waiting.pinged)
    assert len(waiting.pings()) == (1 if api == "anthropic" else 0), "OpenAI's lease is longer than the wait"
    await waiting.clock.advance(2, waiting.pinged)
    assert await running == 0
    last = waiting.calls()
    assert all(call.verdict is None or call.verdict.cause is not Cause.EXPIRED for call in last)


async def test_a_machine_that_was_suspended_does_not_renew_a_lease_that_is_gone(waiting: Waiting, api: str) -> None:
    running = waiting.start("wait for it")
    await waiting.until(events.ToolStarted)
    waiting.clock.jump(LEASE_S[api] * 3)
    await waiting.clock.advance(60, waiting.pinged)
    (waiting.repository / "go").touch()
    assert await running == 0
    assert waiting.pings() == []


async def test_failing_pings_stop_inside_the_lease(waiting: Waiting, server: Emulator, api: str) -> None:
    running = waiting.start("wait for it")
    await waiting.until(events.ToolStarted)
    server.interrupt(*[server_error(500)] * 5)
    await waiting.clock.advance(LEASE_S[api] * 2, waiting.pinged)
    assert [ping.status for ping in waiting.pings()] == ["failed"] * 3
    server._interruptions.clear()
    (waiting.repository / "go").touch()
    assert await running == 0


@pytest.mark.parametrize("setting", [{"keepalive": "off"}, {"keepalive_session": Decimal("0.000001")}])
async def test_no_ping_without_leave_or_budget(waiting: Waiting, api: str, setting: dict[str, Any]) -> None:
    waiting.settings = Settings(model=waiting.settings.model, mode="auto", **setting)
    running = waiting.start("wait for it")
    await waiting.until(events.ToolStarted)
    await waiting.clock.advance(LEASE_S[api] * 2, waiting.pinged)
    (waiting.repository / "go").touch()
    assert await running == 0
    assert waiting.pings() == []


async def test_what_pings_cost_is_in_the_report(waiting: Waiting, api: str) -> None:
    running = waiting.start("wait for it")
    await waiting.until(events.ToolStarted)
    await waiting.clock.advance(LEASE_S[api] * 1.6, waiting.pinged)
    (waiting.repository / "go").touch()
    assert await running == 0
    with Ledger.open(waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        report = CostReport.of(row, ledger.calls(row.id), ledger.pings.of(row.id))
    told = json.loads(json.dumps(report.to_json()))
    (ping,) = waiting.pings()
    assert ping.cost_usd is not None
    assert told["total"]["pings"] == 1
    assert Decimal(told["total"]["pings_usd"]) == ping.cost_usd
    calls = [call.cost_usd for call in waiting.calls() if call.cost_usd is not None]
    assert Decimal(told["total"]["cost_usd"]) == sum(calls) + ping.cost_usd
    with Ledger.open(waiting.folders.ledger) as ledger:
        ((_, listed),) = summarise(ledger, ledger.sessions())
    assert listed.cost_usd == sum(calls) + ping.cost_usd


async def test_a_turn_cancels_a_ping_in_flight_at_once(waiting: Waiting, server: Emulator, api: str) -> None:
    """Its bill is not known, so none is recorded, and the wait that ended is not held up."""
    server.play(lambda request: Reply.of("Fine."))
    assert await waiting.start("begin") == 0
    in_flight = asyncio.Event()

    async def never(request: Request) -> Usage | None:
        in_flight.set()
        waiting.stopped.set()
        await asyncio.Event().wait()
        return None

    info = find_model(waiting.settings.model or "", load_catalog(waiting.folders))
    nothing = Downloads(lambda _: None, lambda _: None, None)
    with Ledger.open(waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        session = Session.resume(ledger, row)
        backend = await open_backend(info, waiting.settings, waiting.folders, waiting.env, ledger, nothing)
        backend.warm = never  # type: ignore[method-assign]
        forecaster = Forecaster(session, backend, None)
        forecaster.plan(waiting.clock.now())
        parts = Parts(
            session,
            backend,
            pricing(info),
            waiting.note,
            waiting.clock,
            lambda: 0.0,
            no_budgets(session, waiting.clock),
        )
        keeper = Keeper(parts, forecaster, KeepLimits())
        bill = Bill()
        async with asyncio.timeout(60):
            async with keeper.during("tool", bill):
                await waiting.idle()
                await waiting.clock.advance(LEASE_S[api] - 15, waiting.pinged)
                await in_flight.wait()
        await backend.aclose()
    (ping,) = waiting.pings()
    assert (ping.status, ping.cost_usd, ping.usage) == ("cancelled", None, Usage(output=0, reasoning=0))
    assert bill.known_usd == 0
