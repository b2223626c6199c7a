"""A turn that arrives at any instant of a ping: it is sent at once and billed once, whatever becomes of the ping."""

import asyncio
from typing import Literal

import pytest
from emulator import Emulator, Recorded, raw_prefix
from emulator.script import Gate
from waiting import LEASE_S, Waiting, opened

from agent.conversation import Conversation
from context.forecast import Cause

pytest_plugins = ["waiting_fixtures"]


def is_ping(request: Recorded) -> bool:
    return request.body.get("max_tokens") == 0 or bool((request.body.get("prompt_cache_options") or {}).get("prewarm"))


async def nothing() -> None:
    pass


async def until_due(waiting: Waiting, conversation: Conversation, api: str, command: str) -> None:
    """A turn, and then the time passes until a ping is due. Nobody has run since it is."""
    await conversation.wait(await conversation.turn(command))
    await waiting.idle()
    await waiting.clock.advance(LEASE_S[api] - 30, nothing)


def assert_all_is_well(waiting: Waiting, server: Emulator, turns: int) -> None:
    """Each turn was sent once, is billed once, and read all that there was; each ping is that prefix once more."""
    calls = waiting.calls()
    assert [call.status for call in calls] == ["done"] * turns
    bills = [bill for request, bill in zip(server.requests, server.bills, strict=True) if not is_ping(request)]
    assert len(bills) == turns
    for number, (call, bill) in enumerate(zip(calls, bills, strict=True)):
        assert bill is not None
        assert (call.usage.cache_read, call.usage.input_total) == (bill.read, bill.input_total)
        assert call.verdict is not None
        assert call.verdict.cause is (Cause.NONE if number else Cause.FIRST)
        assert call.verdict.foreseen
    last = b""
    for request in server.requests:
        if is_ping(request):
            assert raw_prefix(request.raw) == last, "a ping is the last request, to the byte"
        last = raw_prefix(request.raw)


async def test_a_turn_arrives_after_any_number_of_steps_of_the_loop(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    """From before the ping's request is built until its answer is recorded: each step of the event loop, then in
    strides, until a ping has twice come to its end before the turn.
    """
    steps = [*range(40), *(round(40 * 1.3**n) for n in range(60))]
    turns, ended = 0, 0
    async with opened(waiting) as conversation:
        for count in steps:
            await until_due(waiting, conversation, api, f"command {turns}")
            turns += 1
            for _ in range(count):
                await asyncio.sleep(0)
            ended += any(ping.status == "done" for ping in waiting.pings())
            if ended == 2:
                break
        await conversation.turn("the last one")
    assert_all_is_well(waiting, server, turns + 1)
    statuses = [ping.status for ping in waiting.pings()]
    assert set(statuses) <= {"done", "cancelled"}
    assert statuses.count("cancelled") >= 3, "some turns arrived in the middle"
    assert ended == 2
    assert len(statuses) <= turns, "no ping is recorded twice"


@pytest.mark.parametrize("place", ["received", "billed"])
async def test_a_turn_does_not_wait_for_a_ping_that_the_provider_holds(
    waiting: Waiting, server: Emulator, api: str, place: Literal["received", "billed"]
) -> None:
    """Received and not yet looked at, or billed and not yet answered."""
    gate = server.ping_gates[place] = Gate()
    async with opened(waiting) as conversation:
        await until_due(waiting, conversation, api, "begin")
        await asyncio.to_thread(server.wait_for_requests, 2)
        assert is_ping(server.requests[-1])
        async with asyncio.timeout(60):
            await conversation.turn("go on")  # while the gate is closed
        gate.set()
    assert_all_is_well(waiting, server, 2)
    (ping,) = waiting.pings()
    assert (ping.status, ping.cost_usd) == ("cancelled", None), "its bill is not known, and not taken to be nothing"
