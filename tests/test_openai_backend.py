"""The Responses backend through the real SDK from a real socket, against an emulator that bills like the API."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from emulator import Call, Emulator, Failure, Gate, ManualClock, Reply, Say, Think
from emulator.bodies import raw_prefix
from emulator.responses_stream import Shape
from emulator.responses_stream import stream as script_events
from openai_support import (
    HEAD,
    Talk,
    assistant,
    backend_for,
    breakpoints,
    calls,
    finished,
    results,
    run,
    usages,
    user,
)

from backends.base import (
    BackendError,
    CacheOption,
    Diagnosis,
    ErrorKind,
    Event,
    MemoryWireStore,
    Request,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallFinished,
    Usage,
)
from backends.openai import cache_key
from context.block import Text, ToolCall, ToolResult
from context.breakpoints import Marker
from context.prompt import Prompt

ASK = HEAD.append(user("go"))
WHOLE = Reply.of(Think("Hm."), "I look.", Call("read", {"path": "a"}), Call("shell", {"command": "make"}))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as running:
        yield running


async def reply_to(server: Emulator, *parts: Any, model: str = "gpt-6.2-sol", **options: Any) -> list[Event]:
    server.play([Reply.of(*parts, **options)])
    backend = backend_for(server, model)
    try:
        return await run(backend, ASK)
    finally:
        await backend.aclose()


async def test_a_task_with_parallel_calls_and_reasoning_reads_more_of_the_cache_each_time(server: Emulator) -> None:
    """Field report 41. The reasoning is bound to its prefix: the server says so when it is not used."""
    step = [Think("Hm."), Say("I look."), *(Call("read", {"path": f"ä{n}.py"}) for n in range(25))]
    server.play([Reply.of(*step), Reply.of(*step), Reply.of(Think("So."), Call("shell", '{"command": "ls"}'))])
    server.play([Reply.of("Done.")])
    backend = backend_for(server, official=True)
    talk = Talk(backend)
    events = [await talk.turn(user("go"))]
    for _ in range(3):
        previous = finished(events[-1])
        assert previous.stop is StopReason.TOOLS
        events.append(await talk.turn(talk.answers("text " * 30), previous_response=previous.response_id))
    await backend.aclose()

    assert finished(events[-1]).stop is StopReason.END
    assert [finished(turn).detail for turn in events] == [None] * 4  # all reasoning was used
    assert [finished(turn).diagnosis for turn in events[1:]] == [Diagnosis("hit")] * 3
    bills = [usages(turn)[-1].usage for turn in events]
    for usage, bill in zip(bills, server.bills, strict=True):
        assert bill is not None
        assert (usage.fresh, usage.cache_read, usage.cache_write, usage.cache_write_long, usage.output) == (
            bill.fresh,
            bill.read,
            bill.write_short + bill.write_long,
            bill.write_long,
            bill.output,
        )
    for earlier, later in itertools.pairwise(bills):
        assert later.cache_read == earlier.input_total  # all that was sent before is read
    for earlier_request, later_request in itertools.pairwise(server.requests):
        assert raw_prefix(later_request.raw).startswith(raw_prefix(earlier_request.raw))
        assert 1 <= len(breakpoints(later_request.body)) <= 4


async def test_the_request_holds_what_the_design_says(server: Emulator) -> None:
    """Field report 46."""
    server.play([Reply.of("ok")])
    backend = backend_for(server)
    markers = (Marker(1, "long"), Marker(2, "long"), Marker(3, "short"))
    await run(backend, ASK, markers=markers, max_output=5, effort="high")
    await backend.aclose()
    (request,) = server.requests
    body = {key: value for key, value in request.body.items() if key not in ("tools", "input")}
    assert body == {
        "model": "gpt-6.2-sol",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": True,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "max_output_tokens": 16,  # the API takes no less
        "reasoning": {"effort": "high", "summary": "auto"},
        "prompt_cache_key": cache_key(ASK),
        "prompt_cache_options": {"mode": "explicit"},
    }
    assert breakpoints(request.body) == [(0, "12h"), (1, "12h"), (2, None)]
    assert list(request.body).index("input") < list(request.body).index("stream")
    assert request.headers["authorization"] == "Bearer sk-test-key"
    assert request.headers["x-stainless-retry-count"] == "0"


async def test_the_bytes_up_to_the_prompts_end_depend_on_nothing_else(server: Emulator) -> None:
    """Rule R1: effort, limits, markers, options and pre-warming all stand behind the input."""
    server.play([Reply.of("ok")] * 3)
    backend = backend_for(server, official=True)
    marked = (Marker(2, "long"), Marker(3, "short"))
    await run(backend, ASK)
    await run(backend, ASK, markers=marked, effort="low", max_output=99, previous_response="resp_7")
    await run(backend, ASK, markers=marked, off=frozenset(CacheOption))
    await backend.warm(Request(ASK, markers=marked))
    await backend.aclose()
    assert len({raw_prefix(request.raw) for request in server.requests}) == 1


async def test_the_key_is_one_for_an_epoch_its_forks_and_other_sessions_on_the_same_snapshot() -> None:
    """Field report 48."""
    fork = ASK.extend([assistant(Text("left")), user("right")])
    again = Prompt.empty().extend(HEAD)
    assert cache_key(ASK) == cache_key(fork) == cache_key(again) == cache_key(HEAD)
    assert cache_key(HEAD.append(user("x"))) != cache_key(HEAD.at(1))
    assert len(cache_key(HEAD)) <= 64


async def test_an_older_model_caches_by_itself(server: Emulator) -> None:
    server.play([Reply.of("one"), Reply.of("two")])
    backend = backend_for(server, "gpt-5.5", official=True)
    talk = Talk(backend)
    await talk.turn(user("go"))
    second = usages(await talk.turn(user("on"), markers=(Marker(2, "long"),), previous_response="resp_0001"))[-1].usage
    assert await backend.warm(Request(ASK, markers=(Marker(2, "short"),))) is None
    await backend.aclose()
    assert len(server.requests) == 2
    for body in server.bodies:
        assert body["prompt_cache_retention"] == "24h"
        assert body["prompt_cache_key"] == cache_key(HEAD)
        assert "prompt_cache_options" not in body
        assert breakpoints(body) == []
    assert second.cache_read is not None
    assert second.cache_read >= 1024
    assert (second.cache_read % 128, second.cache_write) == (0, 0)


async def test_a_prewarm_writes_what_the_next_request_reads_and_renews_it(server: Emulator, clock: ManualClock) -> None:
    backend = backend_for(server)
    heads = (Marker(1, "short"), Marker(2, "short"))
    warmed = await backend.warm(Request(HEAD, markers=heads))
    assert warmed is not None
    assert (warmed.fresh, warmed.cache_read, warmed.output) == (0, 0, 0)
    clock.advance(29 * 60)
    renewed = await backend.warm(Request(HEAD, markers=heads))
    assert renewed == Usage(0, warmed.cache_write, 0, 0, 0, 0)
    clock.advance(29 * 60)
    server.play([Reply.of("ok")])
    usage = usages(await run(backend, ASK, markers=(*heads, Marker(3, "short"))))[-1].usage
    assert usage.cache_read == warmed.cache_write
    await backend.aclose()
    assert [body.get("prompt_cache_options", {}).get("prewarm") for body in server.bodies] == [True, True, None]
    assert "stream_options" not in server.bodies[0]


async def test_no_prewarm_is_sent_that_could_warm_nothing(server: Emulator) -> None:
    backend = backend_for(server)
    assert await backend.warm(Request(HEAD)) is None
    for option in (CacheOption.MARKERS, CacheOption.MODE):
        assert await backend.warm(Request(HEAD, markers=(Marker(1, "short"),), off=frozenset({option}))) is None
    await backend.aclose()
    assert server.connections == 0


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("ttl", CacheOption.LONG_TTL),
        ("prompt_cache_breakpoint", CacheOption.MARKERS),
        ("prompt_cache_options", CacheOption.MODE),
        ("prompt_cache_key", CacheOption.KEY),
        ("comparison_response_id", CacheOption.DIAGNOSTICS),
        ("stream_options", CacheOption.USAGE),
    ],
)
async def test_a_400_names_the_option_and_the_same_call_without_it_passes(
    server: Emulator, name: str, option: CacheOption
) -> None:
    """Field report 44."""
    server.refused_options.add(name)
    server.play([Reply.of("ok")])
    backend = backend_for(server, official=True)
    request: dict[str, Any] = {"markers": (Marker(2, "long"), Marker(3, "short")), "previous_response": "resp_1"}
    with pytest.raises(BackendError) as caught:
        await run(backend, ASK, **request)
    error = caught.value
    assert (error.kind, error.option, error.retriable) == (ErrorKind.INVALID, option, False)
    assert finished(await run(backend, ASK, **request, off=frozenset({option}))).parts
    await backend.aclose()


async def test_without_breakpoints_of_ours_the_implicit_one_is_left_on(server: Emulator) -> None:
    server.play([Reply.of("ok")] * 2)
    backend = backend_for(server)
    off = frozenset({CacheOption.MARKERS})
    first = usages(await run(backend, ASK, markers=(Marker(3, "short"),), off=off))[-1].usage
    second = usages(await run(backend, ASK, markers=(Marker(3, "short"),), off=off))[-1].usage
    await backend.aclose()
    assert "prompt_cache_options" not in server.bodies[0]
    assert second.cache_read == first.cache_write != 0


async def test_prefixes_gone_cold_models_and_efforts_are_told_apart(server: Emulator, clock: ManualClock) -> None:
    server.play([Reply.of("ok")] * 3)
    backend = backend_for(server, official=True)
    markers = (Marker(2, "short"), Marker(3, "short"))
    first = finished(await run(backend, ASK, markers=markers)).response_id
    changed = finished(await run(backend, ASK, markers=markers, effort="low", previous_response=first))
    clock.advance(31 * 60)
    cold = await run(backend, ASK, markers=markers, previous_response=first)
    await backend.aclose()
    assert changed.diagnosis is not None
    assert changed.diagnosis.reason == "reasoning_effort_changed"
    assert usages(cold)[-1].usage.cache_read == 0


async def test_a_ttl_that_was_granted_shorter_than_asked_shows_in_the_bill(server: Emulator) -> None:
    """Field report 28."""
    server.play([Reply.of("ok", short_ttl=True)])
    backend = backend_for(server)
    usage = usages(await run(backend, ASK, markers=(Marker(2, "long"),)))[-1].usage
    await backend.aclose()
    assert usage.cache_write
    assert usage.cache_write_long == 0


async def test_reasoning_behind_an_edited_prefix_is_reported_as_unused(server: Emulator) -> None:
    server.play([WHOLE, Reply.of("ok")])
    backend = backend_for(server)
    reply = finished(await run(backend, ASK))
    edited = HEAD.append(user("go!")).append(assistant(*reply.parts))
    answers = results(*[ToolResult(part.id, "x") for part in reply.parts if isinstance(part, ToolCall)])
    told = finished(await run(backend, edited.append(answers))).detail
    await backend.aclose()
    assert told == "reasoning of earlier replies was not used: 1 × prefix_mismatch"


async def test_another_models_history_is_readable_and_its_reasoning_stays_behind(server: Emulator) -> None:
    """Field report 136."""
    server.play([WHOLE, Reply.of("ok")])
    store = MemoryWireStore()
    one, other = backend_for(server, wires=store), backend_for(server, "gpt-6.1-sol", wires=store)
    reply = finished(await run(one, ASK))
    answers = results(*[ToolResult(part.id, "x") for part in reply.parts if isinstance(part, ToolCall)])
    await run(other, ASK.extend([assistant(*reply.parts), answers]))
    for backend in (one, other):
        await backend.aclose()
    kinds = [item["type"] for item in server.bodies[1]["input"][3:]]
    assert kinds == ["message", "function_call", "function_call", "function_call_output", "function_call_output"]


async def test_thinking_is_shown_where_the_organisation_may_see_it(server: Emulator) -> None:
    shown = await reply_to(server, Think("Let me see."), "ok")
    assert "".join(event.text for event in shown if isinstance(event, ThinkingDelta)) == "Let me see."
    told = "Your organization must be verified to generate reasoning summaries."
    details = {"param": "reasoning.summary", "code": "unsupported_value"}
    server.interrupt(Failure(400, ("invalid_request_error", told), details=details))
    server.play([Reply.of(Think("x"), "one"), Reply.of("two")])
    backend = backend_for(server)
    for _ in range(2):
        assert finished(await run(backend, ASK)).stop is StopReason.END
    await backend.aclose()
    assert ["reasoning" in body for body in server.bodies] == [True, True, False, False]


def events_of(reply: Reply) -> int:
    return sum(1 for _ in script_events(reply, Shape(1, "m", b"", True, False), {}, {"status": "completed"}))


@pytest.mark.parametrize("after", range(events_of(WHOLE)))
async def test_a_stream_cut_after_any_event_leaves_no_half_call_and_no_half_message(
    server: Emulator, after: int
) -> None:
    """Field reports 126 and 127."""
    server.play([replace(WHOLE, cut_after=after), WHOLE])
    backend, happened = backend_for(server), list[Event]()

    async def listen() -> None:
        async for event in backend.stream(Request(ASK)):
            happened.append(event)

    with pytest.raises(BackendError) as caught:
        await listen()
    assert (caught.value.kind, caught.value.retriable) == (ErrorKind.NETWORK, True)
    assert ("in the middle of the reply" if after else "before it answered") in str(caught.value)
    assert not any(isinstance(event, ToolCallFinished) for event in happened)
    assert not usages(happened)  # only the last event tells the bill
    assert len(calls(await run(backend, ASK))) == 2
    await backend.aclose()


@pytest.mark.parametrize("after", range(1, events_of(WHOLE)))
@pytest.mark.parametrize("fault", ["error", "garbage"])
async def test_a_fault_after_any_event_is_one_clear_error(server: Emulator, fault: str, after: int) -> None:
    broken = {
        "error": replace(WHOLE, error_after=(after, "server_error", "Sorry")),
        "garbage": replace(WHOLE, garbage_after=after),
    }[fault]
    server.play([broken])
    backend = backend_for(server)
    with pytest.raises(BackendError) as caught:
        await run(backend, ASK)
    await backend.aclose()
    expected = (ErrorKind.SERVER, True) if fault == "error" else (ErrorKind.PROTOCOL, False)
    assert (caught.value.kind, caught.value.retriable) == expected
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("after", [events_of(WHOLE)])
async def test_a_connection_lost_behind_the_last_event_has_lost_nothing(server: Emulator, after: int) -> None:
    assert len(calls(await reply_to(server, *WHOLE.parts, cut_after=after))) == 2


async def test_the_next_call_uses_the_same_connection(server: Emulator) -> None:
    server.play([Reply.of("one"), Reply.of("two")])
    backend = backend_for(server)
    for _ in range(2):
        await run(backend, ASK)
    await backend.aclose()
    await backend.aclose()
    assert server.connections == 1


async def test_preparing_twice_at_once_makes_one_client_and_sends_nothing(server: Emulator) -> None:
    backend = backend_for(server)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(backend.prepare())
    assert server.connections == 0
    await backend.aclose()


async def test_closing_the_stream_closes_the_connection(server: Emulator) -> None:
    server.play([Reply.of("one two three four", gates={6: Gate()})])
    backend = backend_for(server)
    stream = backend.stream(Request(ASK))
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    assert await asyncio.to_thread(server.client_left.wait, 5)
    await backend.aclose()


@pytest.mark.parametrize("waiting_for", [1, 4])
async def test_cancelling_the_call_closes_the_connection(server: Emulator, waiting_for: int) -> None:
    server.play([Reply.of("one two three four", gates={waiting_for: Gate()})])
    backend = backend_for(server)
    task = asyncio.create_task(run(backend, ASK))
    await asyncio.to_thread(server.wait_for_requests, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.client_left.wait, 5)
    server.play([Reply.of("still here")])
    assert Text("still here") in finished(await run(backend, ASK)).parts
    await backend.aclose()


async def test_a_lone_surrogate_in_a_reply_cannot_break_the_next_request(server: Emulator) -> None:
    server.play([Reply.of(Call("read", '{"path": "a\\ud800b"}')), Reply.of("ok")])
    backend = backend_for(server)
    talk = Talk(backend)
    await talk.turn(user("go"))
    assert finished(await talk.turn(talk.answers())).stop is StopReason.END
    await backend.aclose()
    assert json.loads(server.bodies[1]["input"][3]["arguments"])["path"] == "a\ud800b"
