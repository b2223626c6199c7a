"""Field reports of groups D and E, each with its number: keepalive, resuming, and what compaction does to the cache."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from emulator import Emulator, ManualClock, Recorded, Reply, raw_prefix
from emulator.script import Say
from rich.console import Console
from talk import talk
from waiting import LEASE_S, MODELS, Waiting, opened

from agent import events
from agent.backend_choice import find_model, load_catalog, pricing
from agent.bill import Bill
from agent.conversation import Conversation
from agent.ledger import Ledger
from agent.reports.cache_status import CacheStatus, cache_status
from agent.screens.text import OneShotText

pytest_plugins = ["waiting_fixtures"]

SUMMARY = "replaced by a summary"  # in the instruction that asks for one


@pytest.fixture
def server() -> Iterator[Emulator]:
    def script(request: Recorded) -> Reply:
        return Reply.of("A summary: the cat is called Mio." if SUMMARY in request.raw.decode() else Say("Fine. " * 400))

    with Emulator(script, clock=ManualClock()) as running:
        yield running


@pytest.fixture(autouse=True)
def short_lived(waiting: Waiting, api: str) -> None:
    waiting.settings = replace(waiting.settings, model=MODELS[api], cache_ttl="short")


async def away(waiting: Waiting, conversation: Conversation, seconds: float) -> float:
    """A turn, and then nobody for so long. Returns when the turn's request was sent."""
    began = waiting.clock.now()
    await conversation.wait(await conversation.turn("My cat is called Mio."))
    await waiting.idle()
    await waiting.clock.advance(seconds, waiting.pinged)
    return began


@pytest.mark.parametrize("count", [1, 4])
async def test_so_many_pings_as_are_planned_each_the_same_prefix(
    waiting: Waiting, server: Emulator, api: str, count: int
) -> None:
    """Field report 53. And 54: none after the time that is set."""
    step = LEASE_S[api] - 30
    waiting.settings = replace(waiting.settings, keepalive="always", keepalive_minutes=math.ceil(count * step / 60))
    async with opened(waiting) as conversation:
        began = await away(waiting, conversation, 10 * 3600)
    assert [ping.at - began for ping in waiting.pings()] == [step * number for number in range(1, count + 1)]
    turn, *pings = server.requests
    assert {raw_prefix(ping.raw) for ping in pings} == {raw_prefix(turn.raw)}


async def test_none_after_an_hour_and_none_over_budget(waiting: Waiting, api: str) -> None:
    """Field report 54."""
    waiting.settings = replace(waiting.settings, keepalive="always", keepalive_minutes=60)
    async with opened(waiting) as conversation:
        began = await away(waiting, conversation, 8 * 3600)
        assert waiting.pings()
        assert all(ping.at - began <= 3600 for ping in waiting.pings())
        waiting.settings = replace(waiting.settings, keepalive_minutes=6000)
    cost = waiting.pings()[0].cost_usd
    assert cost is not None
    spent = sum((ping.cost_usd or Decimal(0) for ping in waiting.pings()), Decimal(0))
    waiting.settings = replace(waiting.settings, keepalive_session=spent + 2 * cost)
    before = len(waiting.pings())
    async with opened(waiting, again=True) as conversation:
        await away(waiting, conversation, 8 * 3600)
    assert len(waiting.pings()) - before in (1, 2)
    assert [event.why for event in waiting.seen if isinstance(event, events.KeepaliveStopped)] == ["time", "budget"]


async def test_the_cache_is_told_to_be_warm_only_when_the_provider_has_read_it(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    """Field report 56: the provider had dropped the prefix; a ping that reads nothing is no success."""
    shown = StringIO()
    screen = OneShotText(StringIO(), Console(file=shown, width=200))
    async with opened(waiting) as conversation:
        await conversation.wait(await conversation.turn("begin"))
        await waiting.idle()
        server.evict()
        await waiting.clock.advance(3 * LEASE_S[api], waiting.pinged)
    (ping,) = waiting.pings()
    assert ping.usage.cache_read == 0
    for event in waiting.seen:
        screen(event)
    assert "kept warm until" not in shown.getvalue()
    assert [event.why for event in waiting.seen if isinstance(event, events.KeepaliveStopped)] == ["not_renewed"]


def test_a_ping_after_240_seconds_keeps_the_entry_for_482() -> None:
    """Field report 59, as measured there; without it there is nothing to read."""
    for pinged in (True, False):
        with talk("anthropic", 400) as desk:
            desk.turn(3, 0, 1)
            desk.clock.advance(240)
            assert not pinged or desk.ping()
            desk.clock.advance(242)
            before = desk.ledger.calls(desk.session.id)[-1].usage.input_total
            desk.turn(3, 0, 1)
            assert desk.ledger.calls(desk.session.id)[-1].usage.cache_read == (before if pinged else 0)


async def test_a_ping_is_the_last_body_tools_and_all(waiting: Waiting, server: Emulator, api: str) -> None:
    """Field report 61: without the tools it would be another prefix."""
    async with opened(waiting) as conversation:
        await away(waiting, conversation, LEASE_S[api] + 60)
    turn, ping = (dict(request.body) for request in server.requests)
    assert turn["tools"]
    for body in (turn, ping):
        for name in ("max_tokens", "max_output_tokens", "stream", "stream_options"):
            body.pop(name, None)
        body.get("prompt_cache_options", {}).pop("prewarm", None)
    assert ping == turn


async def test_the_long_time_to_live_is_one_setting_for_all_providers(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    """Field report 63: 1 hour and 12 hours."""
    waiting.settings = replace(waiting.settings, cache_ttl="long")
    async with opened(waiting) as conversation:
        await conversation.turn("begin")
    sent = server.requests[0].raw.decode()
    asked = {"anthropic": '"ttl":"1h"', "responses": '"12h"'}[api]
    assert asked in sent
    assert server.bills[0] is not None
    assert server.bills[0].write_short == 0
    waiting.clock.jump(LEASE_S[api] + 1)
    async with opened(waiting, again=True) as conversation:
        await conversation.turn("go on")
    assert server.bills[1] is not None
    assert server.bills[1].read == server.bills[0].input_total


def status(waiting: Waiting) -> CacheStatus:
    catalog = load_catalog(waiting.folders)
    with Ledger.open(waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        info = find_model(MODELS["anthropic"], catalog)
        found = cache_status(ledger, row, lambda _: (info, pricing(info)), waiting.settings, waiting.clock.now())
    assert found is not None
    return found


@pytest.mark.parametrize("api", ["anthropic"])
@pytest.mark.parametrize(("granted_short", "left"), [(False, 3600 - 120), (True, 300 - 120)])
async def test_the_countdown_follows_what_was_granted(
    waiting: Waiting, server: Emulator, granted_short: bool, left: float
) -> None:
    """Field report 64: an hour is asked for; what the server confirmed counts."""
    server.short_ttl = granted_short
    waiting.settings = replace(waiting.settings, cache_ttl="long")
    async with opened(waiting) as conversation:
        await conversation.turn("begin")
    waiting.clock.jump(120)
    assert {prefix.left for prefix in status(waiting).prefixes} == {left}


# Compaction


@pytest.mark.parametrize("cache_ttl", ["short", "long"])
async def test_a_summary_is_asked_for_behind_the_live_prefix_and_leaves_no_mark(
    waiting: Waiting, server: Emulator, api: str, cache_ttl: str
) -> None:
    """Field reports 70 (it extends the last body), 71 (tools included), 73 (no new marks), 31 (a long mark in a side
    question is no error) and 46 (key and breakpoints go with what follows).
    """
    waiting.settings = replace(waiting.settings, cache_ttl=cache_ttl)
    async with opened(waiting) as conversation:
        for command in ("begin", "go on", "and on"):
            await conversation.turn(command)
        assert await conversation.compact(Bill())
        await conversation.turn("after that")
    *_, turn, asked, after = server.requests
    assert raw_prefix(asked.raw).startswith(raw_prefix(turn.raw))
    assert asked.body["tools"] == turn.body["tools"]
    bills = server.bills
    assert bills[-2] is not None
    assert bills[-3] is not None
    assert bills[-2].read == bills[-3].input_total
    assert bills[-2].write_short + bills[-2].write_long == 0
    if api == "responses":
        assert after.body["prompt_cache_key"]
        assert after.body["prompt_cache_options"]["mode"] == turn.body["prompt_cache_options"]["mode"]
        assert after.raw.count(b"prompt_cache_breakpoint") >= 2, "the ends of layers"
    assert bills[-1] is not None
    assert bills[-1].read > 0, "the head is still there"


async def test_the_last_request_stands_verbatim_behind_the_summary(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    """Field report 83: else the model goes back to the old task."""
    last = 'Now rename "total" to `sum_of`,\n\tand nothing else: €5 → 5 EUR. ' + "x" * 3_000
    async with opened(waiting) as conversation:
        await conversation.turn("First do something else.")
        await conversation.turn(last)
        assert await conversation.compact(Bill())
        await conversation.turn("go on")

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (text for each in value.values() for text in texts(each))
        elif isinstance(value, list):
            yield from (text for each in value for text in texts(each))
        elif isinstance(value, str):
            yield value

    sent = list(texts(json.loads(server.requests[-1].raw)))
    (summary,) = [at for at, text in enumerate(sent) if "A summary: the cat is called Mio." in text]
    assert sent.index(last) > summary
