"""The stream's events in any order and of any kind: what a reply is made of, and what it costs."""

from collections.abc import Iterable
from typing import Any

import pytest
from test_openai_wire import DIALECT, REASONING, call, message

from backends.base import (
    Diagnosis,
    Event,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from backends.openai_reply import ReplyReader
from backends.payload import BrokenStreamError
from context.block import Opaque, Text, ToolCall


def reader(*, cache: Any = "markers", long_asked: bool = False) -> ReplyReader:
    return ReplyReader(DIALECT, cache=cache, long_asked=long_asked)


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def end(kind: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"id": "resp_1", "output": [], **response}}


def read(*payloads: Any, source: ReplyReader | None = None) -> list[Event]:
    source = source or reader()
    return [*(event for payload in payloads for event in source.feed(payload)), *source.finish()]


def finished(events: Iterable[Event]) -> ReplyFinished:
    (last,) = [event for event in events if isinstance(event, ReplyFinished)]
    return last


def test_every_kind_of_delta_reaches_the_screen() -> None:
    text = {"output_index": 1, "content_index": 0}
    events = read(
        {"type": "response.created", "response": {"id": "resp_1", "usage": None}},
        {"type": "response.queued", "response": {"id": "resp_1"}},
        added(0, {**REASONING, "encrypted_content": "gA"}),
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "First."},
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Then."},
        {"type": "response.reasoning_text.delta", "output_index": 0, "delta": " raw"},
        done(0, REASONING),
        added(1, message("")),
        {"type": "response.output_text.delta", **text, "delta": "I "},
        {"type": "response.refusal.delta", **text, "delta": "look"},
        done(1, message("I look")),
        added(2, call("")),
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a"'},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ":1}"},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"a":1}'},
        done(2, call('{"a":1}')),
        {"type": "response.weather_report", "sky": "blue"},
        end(),
    )
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "First.\n\nThen. raw"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "I look"
    assert [event for event in events if isinstance(event, ToolCallStarted)] == [ToolCallStarted("call_1", "read")]
    assert "".join(event.fragment for event in events if isinstance(event, ToolCallDelta)) == '{"a":1}'
    made = ToolCall("call_1", "read", '{"a":1}')
    assert [event.call for event in events if isinstance(event, ToolCallFinished)] == [made]
    reply = finished(events)
    assert [type(part) for part in reply.parts] == [Opaque, Opaque, Text, Opaque, ToolCall]
    assert b'"gAAAA"' in reply.parts[0].data  # type: ignore[union-attr]  # what `added` showed was not all of it
    assert (reply.stop, reply.response_id) == (StopReason.TOOLS, "resp_1")


def test_items_that_are_told_only_at_the_end_are_taken_from_there() -> None:
    """Some gateways leave out the events of each item."""
    assert [type(part) for part in finished(read(end(output=[REASONING, message("Hi."), call()]))).parts] == [
        Opaque,
        Opaque,
        Text,
        Opaque,
        ToolCall,
    ]


@pytest.mark.parametrize(
    ("reason", "stop", "detail"),
    [
        ("max_output_tokens", StopReason.MAX_OUTPUT, None),
        ("content_filter", StopReason.REFUSED, "content filter"),
        ("max_messages", StopReason.END, "the reply is incomplete: max_messages"),
        ("steered", StopReason.END, "the reply is incomplete: steered"),
        (None, StopReason.END, "the reply is incomplete: None"),
    ],
)
def test_every_reason_for_an_incomplete_reply_is_told(reason: str | None, stop: StopReason, detail: str | None) -> None:
    reply = finished(read(done(0, message("so far")), end("incomplete", incomplete_details={"reason": reason})))
    assert (reply.stop, reply.detail) == (stop, detail)
    assert Text("so far") in reply.parts


@pytest.mark.parametrize("status", ["incomplete", "completed"])
@pytest.mark.parametrize("cut", ["", '{"command": "rm -rf /tm'])
def test_a_call_that_is_cut_by_the_output_limit_is_not_made(status: str, cut: str) -> None:
    whole = call('{"path": "a"}')
    half = call(cut, call_id="call_2", status=status)
    cut_short = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    events = read(done(0, whole), done(1, {**REASONING, "id": "rs_2"}), done(2, half), cut_short)
    assert [event.call.id for event in events if isinstance(event, ToolCallFinished)] == ["call_1"]
    reply = finished(events)
    assert reply.stop is StopReason.MAX_OUTPUT
    assert [part.id for part in reply.parts if isinstance(part, ToolCall)] == ["call_1"]
    assert not any(b"rs_2" in part.data for part in reply.parts if isinstance(part, Opaque))  # nothing follows it


def test_a_reply_that_is_cut_while_it_thinks_leaves_nothing() -> None:
    cut_short = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert finished(read(done(0, REASONING), cut_short)).parts == ()


def test_words_that_were_shown_are_kept_even_when_their_item_never_ended() -> None:
    shown = {"type": "response.output_text.delta", "output_index": 0, "delta": "half a sen"}
    cut_short = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert Text("half a sen") in finished(read(added(0, message("")), shown, cut_short)).parts


def test_a_refusal_leaves_no_call_to_run_and_says_why() -> None:
    refused = message("", content=[{"type": "refusal", "refusal": "Not this."}])
    events = read(done(0, refused), done(1, call()), end())
    assert finished(events).stop is StopReason.REFUSED
    assert Text("Not this.") in finished(events).parts
    assert not any(isinstance(event, ToolCallFinished) for event in events)


def test_items_of_tomorrow_go_back_whole() -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    assert finished(read(done(0, item), done(1, message("ok")), end())).parts[0] == Opaque(
        DIALECT, b'{"type":"compaction","id":"cmp_1","encrypted_content":"x"}'
    )


@pytest.mark.parametrize(
    ("told", "diagnosis"),
    [
        ({"type": "cache_hit"}, Diagnosis("hit")),
        (
            {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 900},
            Diagnosis("tools_changed", 900),
        ),
        ({"type": "comparison_response_not_found"}, Diagnosis("not_found")),
        ({"type": "unavailable"}, Diagnosis("unavailable")),
        (None, None),
    ],
)
def test_the_providers_word_on_a_miss(told: Any, diagnosis: Diagnosis | None) -> None:
    assert finished(read(end(prompt_cache_diagnostics=told))).diagnosis == diagnosis


def test_reasoning_that_the_provider_did_not_use_is_told() -> None:
    removed = [{"id": f"rs_{n}", "type": "reasoning", "action": "removed", "reason": "prefix_mismatch"} for n in "12"]
    begun = {"type": "response.created", "response": {"id": "resp_1", "input_transformations": removed}}
    reply = finished(read(begun, end(input_transformations=None)))
    assert reply.detail == "reasoning of earlier replies was not used: 2 × prefix_mismatch"


def usage(total: Any, output: Any = 20, reasoning: Any = None, **details: Any) -> dict[str, Any]:
    return {
        "input_tokens": total,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


def written(short: int, long: int) -> dict[str, Any]:
    split = {"ttl_30m_tokens": short, "ttl_12h_tokens": long}
    return {"cache_write_tokens": short + long, "cache_write_tokens_details": split}


@pytest.mark.parametrize(
    ("told", "long_asked", "expected"),
    [
        # field report 90: 2,000 tokens, of which 500 read and 300 written
        (usage(2000, cached_tokens=500, **written(300, 0)), False, Usage(1200, 500, 300, 0, 20)),
        # field report 84: what is read is part of the total, and is not billed again
        (usage(17_111, cached_tokens=17_102, cache_write_tokens=0), False, Usage(9, 17_102, 0, 0, 20)),
        # field report 75: a full context once, not twice
        (usage(184_704, cached_tokens=183_936, cache_write_tokens=768), False, Usage(0, 183_936, 768, 0, 20)),
        (usage(3000, 40, 12, cached_tokens=0, **written(1000, 2000)), True, Usage(0, 0, 3000, 2000, 40, 12)),
        # field report 28: twelve hours were asked, half an hour was given
        (usage(3000, cached_tokens=0, **written(3000, 0)), True, Usage(0, 0, 3000, 0, 20)),
        (usage(3000, cached_tokens=0, cache_write_tokens=3000), True, Usage(0, 0, 3000, None, 20)),
        (usage(3000, cached_tokens=0, cache_write_tokens=3000), False, Usage(0, 0, 3000, 0, 20)),
        # field report 92: unknown is not 0
        (usage(3000), True, Usage(None, None, None, None, 20)),
        ({"input_tokens": 3000, "output_tokens": 20}, True, Usage(None, None, None, None, 20)),
        (usage(3000, cached_tokens=100), False, Usage(None, 100, None, None, 20)),
        # counters that are none, or that cannot be
        (usage("3000", cached_tokens=-1, cache_write_tokens=True), True, Usage(None, None, None, None, 20)),
        (usage(100, cached_tokens=500, cache_write_tokens=0), False, Usage(None, 500, 0, 0, 20)),
        (
            usage(900, cached_tokens=0, cache_write_tokens=5, cache_write_tokens_details={"ttl_12h_tokens": 9}),
            True,
            Usage(895, 0, 5, None, 20),
        ),
        (None, True, Usage()),
    ],
)
def test_counters_never_overlap_and_unknown_stays_unknown(told: Any, long_asked: bool, expected: Usage) -> None:
    events = read(end(usage=told), source=reader(long_asked=long_asked))
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [expected]


def test_an_automatic_cache_writes_for_free() -> None:
    source = reader(cache="automatic")
    assert finished(read(end(usage=usage(3000, cached_tokens=2944)), source=source))
    assert source.usage == Usage(56, 2944, 0, 0, 20)


def test_a_failed_response_reports_what_it_cost() -> None:
    source = reader()
    events = list(source.feed(end("failed", usage=usage(3000, cached_tokens=0, cache_write_tokens=0))))
    assert events == [UsageReported(Usage(3000, 0, 0, 0, 20))]
    assert not source.whole


@pytest.mark.parametrize(
    "payloads",
    [
        [[1]],
        [{"type": "response.output_item.added", "item": {}}],
        [{"type": "response.output_item.added", "output_index": 0}],
        [{"type": "response.output_text.delta", "output_index": 0, "delta": "x"}],
        [added(0, message("")), {"type": "response.output_text.delta", "output_index": 0, "delta": 1}],
        [added(0, message("")), added(0, message(""))],
        [done(0, message("x")), done(0, message("x"))],
        [added(0, call("", call_id=""))],
        [added(0, call("")), added(1, call(""))],
        [added(0, call("")), done(0, call(call_id="other"))],
        [end(output=[call(), call()])],
        [end(output=[call(None)])],  # type: ignore[arg-type]
        [end(output=["text"])],
        [{"type": "response.completed"}],
    ],
)
def test_a_stream_that_makes_no_sense_is_no_reply(payloads: list[Any]) -> None:
    with pytest.raises(BrokenStreamError):
        read(*payloads)
