"""Streaming through the real SDK from a real socket: content in any order, stop reasons, cuts, cancellation, usage."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic_support import HEAD, assistant, backend_for, calls, finished, results, run, usages, user
from emulator import Call, Emulator, Gate, Redacted, Reply, Say, Think
from emulator.anthropic_wire import events as script_events

from backends.base import (
    BackendError,
    Diagnosis,
    ErrorKind,
    Event,
    Request,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
    Usage,
)
from context.block import Opaque, Text, ToolCall, ToolResult
from context.breakpoints import Marker

ASK = HEAD.append(user("go"))


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


async def reply_to(server: Emulator, *parts: Any, **options: Any) -> list[Event]:
    server.play([Reply.of(*parts, **options)])
    backend = backend_for(server)
    try:
        return await run(backend, ASK)
    finally:
        await backend.aclose()


async def test_text_thinking_and_calls_arrive_piece_by_piece_and_go_back_in_order(
    server: Emulator,
) -> None:
    happened = await reply_to(
        server,
        Think("Let me see."),
        Say("I read two files.", pieces=3),
        Call("read", {"path": "ä.py"}),
        Redacted("b3BhcXVl"),
        Call("read", '{"z": 1, "a": 2}'),
    )
    assert "".join(event.text for event in happened if isinstance(event, TextDelta)) == "I read two files."
    assert "".join(event.text for event in happened if isinstance(event, ThinkingDelta)) == "Let me see."
    started = [event for event in happened if isinstance(event, ToolCallStarted)]
    for call in started:
        fragments = [event.fragment for event in happened if isinstance(event, ToolCallDelta) and event.id == call.id]
        assert "".join(fragments) == next(made.arguments for made in calls(happened) if made.id == call.id)
    reply = finished(happened)
    kinds = [type(part) for part in reply.parts]
    assert kinds == [Opaque, Text, ToolCall, Opaque, ToolCall]
    assert reply.parts[4] == ToolCall("toolu_0001_4", "read", '{"z": 1, "a": 2}')
    assert (reply.stop, reply.response_id) == (StopReason.TOOLS, "msg_0001")


async def test_a_reply_may_hold_nothing_at_all(server: Emulator) -> None:
    assert finished(await reply_to(server)).parts == ()


async def test_a_call_without_arguments_has_an_empty_object(server: Emulator) -> None:
    assert calls(await reply_to(server, Call("now", "")))[0].arguments == "{}"


async def test_thinking_without_text_keeps_its_signature(server: Emulator) -> None:
    (part,) = finished(await reply_to(server, Think("", signature="c2ln"))).parts
    assert part == Opaque("anthropic:claude-sonnet-5-5", b'{"type":"thinking","thinking":"","signature":"c2ln"}')


@pytest.mark.parametrize(
    ("wire", "stop"),
    [
        ("end_turn", StopReason.END),
        ("stop_sequence", StopReason.END),
        ("max_tokens", StopReason.MAX_OUTPUT),
        ("model_context_window_exceeded", StopReason.CONTEXT_FULL),
        ("refusal", StopReason.REFUSED),
        ("pause_turn", StopReason.PAUSED),
    ],
)
async def test_every_stop_reason_is_told(
    server: Emulator,
    wire: str,
    stop: StopReason,
) -> None:
    assert finished(await reply_to(server, "so far", stop=wire)).stop is stop


async def test_a_stop_reason_of_tomorrow_ends_the_reply_and_is_named(
    server: Emulator,
) -> None:
    reply = finished(await reply_to(server, "hm", stop="compaction"))
    assert (reply.stop, reply.detail) == (StopReason.END, "unknown stop reason 'compaction'")


async def test_a_refusal_says_why_and_leaves_no_call_to_run(server: Emulator) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    happened = await reply_to(server, "First", Call("shell", {"command": "ls"}), stop="refusal", stop_details=details)
    assert finished(happened).detail == "cyber: Not this."
    assert calls(happened) == []


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("cut", ["", '{"command": "rm -rf /tm', '{"command": "rm'])
async def test_a_call_that_is_cut_by_the_output_limit_is_not_made(
    server: Emulator,
    stop: str,
    cut: str,
) -> None:
    happened = await reply_to(server, Call("read", {"path": "a"}), Call("shell", cut), stop=stop)
    assert [call.name for call in calls(happened)] == ["read"]
    assert [part.name for part in finished(happened).parts if isinstance(part, ToolCall)] == ["read"]


async def test_thinking_that_is_cut_before_its_signature_is_not_sent_back(
    server: Emulator,
) -> None:
    happened = await reply_to(server, "Hm.", Think("I was just", signature=""), stop="max_tokens")
    assert finished(happened).parts == (Text("Hm."),)


async def test_a_gateway_that_says_end_turn_after_a_call_still_waits_for_its_result(
    server: Emulator,
) -> None:
    assert finished(await reply_to(server, Call("read"), stop="end_turn")).stop is StopReason.TOOLS


async def test_unknown_events_and_blocks_are_no_error(server: Emulator) -> None:
    novelty = {"type": "weather_report", "sky": "blue"}
    block = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    extra = (
        novelty,
        {"type": "content_block_start", "index": 7, "content_block": block},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "input_json_delta", "partial_json": '{"q":1}'}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "aroma_delta", "aroma": "pine"}},
        {"type": "content_block_stop", "index": 7},
    )
    reply = finished(await reply_to(server, "x", extra_events=extra, stop="pause_turn"))
    assert isinstance(reply.parts[1], Opaque)
    assert json.loads(reply.parts[1].data) == {**block, "input": {"q": 1}}


WHOLE = Reply.of(Think("Hm."), "I look.", Call("read", {"path": "a"}), Call("shell", {"command": "make"}))
EVENTS = list(script_events(WHOLE, number=1, model="m", usage={}, sign=lambda _: "s"))
STOP_TOLD = next(number for number, event in enumerate(EVENTS, 1) if event["type"] == "message_delta")


@pytest.mark.parametrize("after", range(STOP_TOLD))
async def test_a_stream_cut_after_any_event_leaves_no_half_call_and_no_half_message(
    server: Emulator,
    after: int,
) -> None:
    """Field reports 126 and 127."""
    server.play([Reply(WHOLE.parts, cut_after=after)])
    backend, happened = backend_for(server), list[Event]()

    async def listen() -> None:
        async for event in backend.stream(Request(ASK)):
            happened.append(event)

    with pytest.raises(BackendError) as caught:
        await listen()
    await backend.aclose()
    assert (caught.value.kind, caught.value.retriable) == (ErrorKind.NETWORK, True)
    assert not any(isinstance(event, ToolCallFinished) for event in happened)
    assert bool(usages(happened)) == (after > 0)  # what was billed by then is known


@pytest.mark.parametrize("after", [STOP_TOLD, STOP_TOLD + 1])
async def test_a_connection_lost_behind_the_stop_reason_has_lost_nothing(
    server: Emulator,
    after: int,
) -> None:
    happened = await reply_to(server, *WHOLE.parts, cut_after=after)
    assert [call.name for call in calls(happened)] == ["read", "shell"]
    assert finished(happened).stop is StopReason.TOOLS


async def test_the_next_call_uses_the_same_connection(server: Emulator) -> None:
    server.play([Reply.of("one"), Reply.of("two")])
    backend = backend_for(server)
    for _ in range(2):
        await run(backend, ASK)
    await backend.aclose()
    assert server.connections == 1


async def test_closing_the_stream_closes_the_connection(server: Emulator) -> None:
    server.play([Reply.of("one two three four", gates={4: Gate()})])
    backend = backend_for(server)
    stream = backend.stream(Request(ASK))
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    assert await asyncio.to_thread(server.client_left.wait, 5)
    await backend.aclose()


@pytest.mark.parametrize("waiting_for", [1, 4])
async def test_cancelling_the_call_closes_the_connection(
    server: Emulator,
    waiting_for: int,
) -> None:
    server.play([Reply.of("one two three four", gates={waiting_for: Gate()})])
    backend = backend_for(server)
    task = asyncio.create_task(run(backend, ASK))
    await asyncio.to_thread(server.wait_for_requests, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.client_left.wait, 5)
    server.play([Reply.of("still here")])
    assert finished(await run(backend, ASK)).parts == (Text("still here"),)
    await backend.aclose()


def split(short: int, long: int) -> dict[str, int]:
    return {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}


@pytest.mark.parametrize(
    ("start", "final", "long_asked", "expected"),
    [
        (  # field report 90: 2,000 tokens, of which 500 read and 300 written
            {"input_tokens": 1200, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 300},
            {},
            False,
            Usage(1200, 500, 300, 0, 20),
        ),
        (  # field report 76: what is written to the cache is part of the context
            {"input_tokens": 3, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 60_000},
            {},
            False,
            Usage(3, 0, 60_000, 0, 20),
        ),
        (  # field report 28: an hour was asked, five minutes were given
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 900,
                "cache_creation": split(900, 0),
            },
            {},
            True,
            Usage(3, 0, 900, 0, 20),
        ),
        (
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 7,
                "cache_creation_input_tokens": 900,
                "cache_creation": split(400, 500),
            },
            {"output_tokens_details": {"thinking_tokens": 12}},
            True,
            Usage(3, 7, 900, 500, 20, 12),
        ),
        (  # message_delta is cumulative and has the last word
            {"input_tokens": 3, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            {"input_tokens": 30, "cache_read_input_tokens": 70},
            False,
            Usage(30, 70, 0, 0, 20),
        ),
        (  # …but has no split: what it adds is of unknown TTL
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 10,
                "cache_creation": split(4, 6),
            },
            {"cache_creation_input_tokens": 25},
            True,
            Usage(3, 0, 25, None, 20),
        ),
        ({"input_tokens": 3}, {}, True, Usage(3, None, None, None, 20)),  # field report 92: unknown is not 0
        ({"input_tokens": "3", "cache_read_input_tokens": -1}, {}, True, Usage(None, None, None, None, 20)),
        (
            {"input_tokens": 3, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 10},
            {},
            True,
            Usage(3, 0, 10, None, 20),
        ),
    ],
)
async def test_the_bill_is_merged_from_start_and_end(
    server: Emulator,
    start: dict[str, Any],
    final: dict[str, Any],
    long_asked: bool,
    expected: Usage,
) -> None:
    server.play([Reply.of("ok", usage=start, final_usage=final)])
    backend = backend_for(server)
    markers = (Marker(1, "long" if long_asked else "short"),)
    first, last = usages(await run(backend, ASK, markers=markers))
    await backend.aclose()
    assert (first.usage.output, first.usage.reasoning) == (None, None)  # a reply that breaks here has an unknown bill
    assert last.usage == expected


async def test_two_calls_with_one_id_are_no_reply(server: Emulator) -> None:
    """Their results could not be told apart, and the second could be taken for the first one's repetition."""
    server.play([Reply.of(Call("read", {"path": "a"}, id="same"), Call("read", {"path": "b"}, id="same"))])
    backend = backend_for(server)
    with pytest.raises(BackendError, match="two tool calls with the id same") as caught:
        await run(backend, ASK)
    await backend.aclose()
    assert caught.value.kind is ErrorKind.PROTOCOL


async def test_the_request_holds_what_the_api_takes_and_nothing_it_refuses(
    server: Emulator,
) -> None:
    await reply_to(server, "ok")
    (request,) = server.requests
    assert set(request.body) == {"model", "stream", "thinking", "tools", "system", "messages", "max_tokens"}
    assert request.body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert (request.body["model"], request.body["max_tokens"]) == ("claude-sonnet-5-5", 128_000)
    assert request.headers["authorization"] == "Bearer sk-ant-test-key"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-stainless-retry-count"] == "0"


async def test_options_are_sent_only_where_they_apply(server: Emulator) -> None:
    server.play([Reply.of("ok")] * 3)
    old = backend_for(server, "claude-haiku-4-5")
    eager = backend_for(server, official=True)
    await run(old, ASK, max_output=100)
    await run(eager, ASK)
    await run(eager, ASK, previous_response="msg_7")
    for backend in (old, eager):
        await backend.aclose()
    first, second, third = server.bodies
    assert "thinking" not in first
    assert first["max_tokens"] == 100
    assert second["diagnostics"] == {"previous_message_id": None}
    assert third["diagnostics"] == {"previous_message_id": "msg_7"}


async def test_the_providers_explanation_of_a_miss_is_passed_on(server: Emulator) -> None:
    told = {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 4000}}
    assert finished(await reply_to(server, "ok", diagnostics=told)).diagnosis == Diagnosis("system_changed", 4000)


async def test_an_auth_token_is_a_key_too(server: Emulator) -> None:
    server.play([Reply.of("ok")])
    env = {"ANTHROPIC_AUTH_TOKEN": " token-1\n", "ANTHROPIC_BASE_URL": server.url + "/"}
    backend = backend_for(server, env=env)
    await run(backend, ASK)
    await backend.aclose()
    assert server.requests[0].headers["authorization"] == "Bearer token-1"


async def test_a_whole_turn_goes_back_as_it_came(server: Emulator) -> None:
    """The signature is bound to the prefix, and the server checks it."""
    server.play([Reply.of(Think("Hm."), Call("read", {"b": 1, "a": 2}), Redacted("xx")), Reply.of("done")])
    backend = backend_for(server)
    reply = finished(await run(backend, ASK))
    call = reply.parts[1]
    assert isinstance(call, ToolCall)
    prompt = ASK.extend([assistant(*reply.parts), results(ToolResult(call.id, "text"))])
    assert finished(await run(backend, prompt)).parts == (Text("done"),)
    await backend.aclose()
    sent_back = server.bodies[1]["messages"][1]["content"]
    assert [part["type"] for part in sent_back] == ["thinking", "tool_use", "redacted_thinking"]
    assert (sent_back[0]["thinking"], sent_back[2]["data"]) == ("Hm.", "xx")
    assert list(sent_back[1]["input"]) == ["b", "a"]
