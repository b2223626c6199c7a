"""Streams as real servers send them: what becomes of calls, reasoning and ends, whatever their form."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from compatible_support import calls, endpoint, finished
from hypothesis import given
from hypothesis import strategies as st

from backends.base import Event, StopReason, TextDelta, ThinkingDelta, ToolCallStarted
from backends.compatible_endpoints import Endpoint
from backends.compatible_reply import FailedReplyError, ReplyReader
from backends.payload import BrokenStreamError
from context.block import Opaque, Text, ToolCall

PLAIN = endpoint("vllm")
BILL = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c-1", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def call(index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    told = {"index": index, "id": call_id, "function": function}
    return chunk({"tool_calls": [{key: value for key, value in told.items() if value is not None}]})


def read(chunks: Sequence[Any], place: Endpoint = PLAIN, **options: Any) -> list[Event]:
    reader = ReplyReader(place, "chat:test:m", seed="5eed", **options)
    events = [event for each in chunks for event in reader.feed(each)]
    assert reader.whole
    return [*events, *reader.finish()]


TWO = [ToolCall("a", "read", '{"path":"x"}'), ToolCall("b", "shell", '{"command":"ls"}')]


@pytest.mark.parametrize(
    ("server", "stream"),
    [
        (
            "OpenAI: pieces by index",
            [
                call(0, "a", "read", ""),
                call(0, arguments='{"path"'),
                call(0, arguments=':"x"}'),
                call(1, "b", "shell", ""),
                call(1, arguments='{"command":"ls"}'),
            ],
        ),
        ("whole calls by index", [call(0, "a", "read", '{"path":"x"}'), call(1, "b", "shell", '{"command":"ls"}')]),
        ("one index for all", [call(0, "a", "read", '{"path":"x"}'), call(0, "b", "shell", '{"command":"ls"}')]),
        ("no index", [call(None, "a", "read", '{"path":"x"}'), call(None, "b", "shell", '{"command":"ls"}')]),
        (
            "no index, pieces",
            [
                call(None, "a", "read"),
                call(None, arguments='{"path":"x"}'),
                call(None, "b", "shell"),
                call(None, arguments='{"command":"ls"}'),
            ],
        ),
        (
            "the id in every piece",
            [
                call(0, "a", "read", '{"path"'),
                call(0, "a", arguments=':"x"}'),
                call(1, "b", "shell", '{"command":"ls'),
                call(1, "b", arguments='"}'),
            ],
        ),
        (
            "another id for every piece",
            [
                call(0, "a", "read", '{"path"'),
                call(0, "x", arguments=':"x"}'),
                call(1, "b", "shell", '{"command":"ls'),
                call(1, "y", arguments='"}'),
            ],
        ),
        (
            "the name in every piece",
            [
                call(0, "a", "read", '{"path"'),
                call(0, "a", "read", ':"x"}'),
                call(1, "b", "shell", '{"command":"ls"}'),
                call(1, "b", "shell", ""),
            ],
        ),
        (
            "pieces of both in turn",
            [
                call(0, "a", "read", '{"path":'),
                call(1, "b", "shell", '{"command":'),
                call(0, arguments='"x"}'),
                call(1, arguments='"ls"}'),
            ],
        ),
        (
            "empty ids behind the first",
            [call(0, "a", "read", '{"path":"x"}'), call(0, ""), call(1, "b", "shell", '{"command":"ls"}')],
        ),
        (
            "the message at the end, not deltas",
            [
                {
                    "choices": [
                        {
                            "message": {
                                "content": None,
                                "tool_calls": [
                                    {
                                        "id": "a",
                                        "type": "function",
                                        "function": {"name": "read", "arguments": '{"path":"x"}'},
                                    },
                                    {
                                        "id": "b",
                                        "type": "function",
                                        "function": {"name": "shell", "arguments": '{"command":"ls"}'},
                                    },
                                ],
                            },
                            "finish_reason": None,
                        }
                    ]
                }
            ],
        ),
    ],
)
def test_two_calls_come_out_as_two_whatever_their_form(server: str, stream: list[Any]) -> None:
    events = read([*stream, chunk(finish="tool_calls"), BILL])
    assert calls(events) == TWO
    assert finished(events).stop is StopReason.TOOLS
    assert [event.id for event in events if isinstance(event, ToolCallStarted)] == ["a", "b"]


def test_an_object_for_arguments_is_written_as_text() -> None:
    (only,) = calls(read([call(0, "a", "read", {"path": "ü"}), chunk(finish="stop")]))
    assert json.loads(only.arguments) == {"path": "ü"}


def test_calls_without_ids_get_some_that_no_other_request_of_the_session_has() -> None:
    stream = [call(None, None, "read", '{"path":"x"}'), call(None, None, "read", '{"path":"y"}'), chunk(finish="stop")]
    events = read(stream)
    assert [each.id for each in calls(events)] == ["call_5eed_0", "call_5eed_1"]
    assert [json.loads(each.arguments)["path"] for each in calls(events)] == ["x", "y"]


def test_one_id_for_two_calls_is_told_apart() -> None:
    first, second = calls(read([call(0, "a", "read", "{}"), call(1, "a", "shell", "{}"), chunk(finish="stop")]))
    assert first.id == "a"
    assert second.id != "a"


def test_a_repeated_name_behind_whole_arguments_is_no_second_call() -> None:
    """A tool that ran twice for one call could do harm."""
    stream = [call(0, None, "shell", '{"command":"rm x"}'), call(0, None, "shell", ""), chunk(finish="tool_calls")]
    assert [each.arguments for each in calls(read(stream))] == ['{"command":"rm x"}']


def test_the_old_function_call_is_a_call() -> None:
    stream = [
        chunk({"function_call": {"name": "read", "arguments": '{"path"'}}),
        chunk({"function_call": {"arguments": ':"x"}'}}),
        chunk(finish="function_call"),
    ]
    (only,) = calls(read(stream))
    assert (only.name, only.arguments) == ("read", '{"path":"x"}')


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", StopReason.END),
        ("STOP", StopReason.END),
        ("eos", StopReason.END),
        ("length", StopReason.MAX_OUTPUT),
        ("content_filter", StopReason.REFUSED),
        ("sensitive", StopReason.REFUSED),
        ("tool_calls", StopReason.END),  # and there is none
        ("what is this", StopReason.END),
    ],
)
def test_ends_of_a_text(finish: str, stop: StopReason) -> None:
    end = finished(read([chunk({"content": "a"}), chunk({"content": "b"}, finish), BILL]))
    assert (end.stop, end.parts, end.response_id) == (stop, (Text("ab"),), "c-1")
    assert bool(end.detail) == (finish in ("tool_calls", "what is this"))


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "eos"])
def test_calls_must_be_answered_whatever_the_end_is_called(finish: str) -> None:
    assert finished(read([call(0, "a", "read", "{}"), chunk(finish=finish)])).stop is StopReason.TOOLS


@pytest.mark.parametrize("arguments", ["", '{"path": "x'])
def test_a_reply_cut_inside_a_call_leaves_no_call(arguments: str) -> None:
    stream = [call(0, "a", "read", '{"path":"x"}'), call(1, "b", "shell", arguments), chunk(finish="length")]
    events = read(stream)
    assert [each.id for each in calls(events)] == ["a"]
    assert finished(events).stop is StopReason.MAX_OUTPUT


def test_a_refusal_is_one_and_says_why() -> None:
    end = finished(read([chunk({"refusal": "I can't "}), chunk({"refusal": "do that."}, "stop")]))
    assert (end.stop, end.detail, end.parts) == (StopReason.REFUSED, "I can't do that.", (Text("I can't do that."),))


def test_of_a_reply_that_was_withheld_no_call_is_run() -> None:
    events = read([call(0, "a", "shell", '{"command":"rm x"}'), chunk(finish="content_filter")])
    assert (calls(events), finished(events).parts) == ([], ())


@pytest.mark.parametrize("finish", ["error", "insufficient_system_resource", "network_error"])
def test_an_end_that_is_the_servers_failure_is_one(finish: str) -> None:
    with pytest.raises(FailedReplyError):
        read([chunk({"content": "a"}), chunk(finish=finish)])


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"message": "no", "code": 502}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]},
        {"object": "error", "message": "no", "type": "InternalServerError", "code": 500},
        {"type": "error", "message": "no"},
        {"error": "no"},
    ],
)
def test_an_error_in_the_middle_is_one_in_every_form(told: dict[str, Any]) -> None:
    with pytest.raises(FailedReplyError):
        read([chunk({"content": "a"}), told])


@pytest.mark.parametrize(
    "broken", [7, [], {"choices": {}}, {"choices": [1]}, chunk({"content": 7}), {"choices": [{"delta": 3}]}]
)
def test_what_is_no_chunk_is_no_reply(broken: Any) -> None:
    with pytest.raises(BrokenStreamError):
        read([broken])


def _thoughts(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ThinkingDelta))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_shown_and_kept_under_the_endpoints_own_name(name: str) -> None:
    stream = [chunk({name: "Hm"}), chunk({name: "."}), chunk({"content": "a"}), chunk(finish="stop")]
    events = read(stream, endpoint("moonshot"))
    assert _thoughts(events) == "Hm."
    kept, text = finished(events).parts
    assert isinstance(kept, Opaque)
    assert (kept.dialect, json.loads(kept.data)) == ("chat:test:m", {"reasoning_content": "Hm."})
    assert finished(read(stream, endpoint("lmstudio"))).parts == (text,)  # which takes none back


def test_reasoning_that_comes_under_two_names_is_shown_once() -> None:
    events = read([chunk({"reasoning": "Hm", "reasoning_content": "Hm"}), chunk({"content": "a"}, "stop")])
    assert _thoughts(events) == "Hm"


def test_openrouters_details_go_back_as_the_entries_that_they_are_pieces_of() -> None:
    def piece(**fields: Any) -> dict[str, Any]:
        return chunk({"reasoning": fields.get("text") or "", "reasoning_details": [fields]})

    stream = [
        piece(type="reasoning.text", index=0, format="anthropic-claude-v1", text="Let "),
        piece(type="reasoning.text", index=0, format="anthropic-claude-v1", text="me."),
        piece(type="reasoning.text", index=0, format="anthropic-claude-v1", signature="sig"),
        piece(type="reasoning.encrypted", index=1, data="xyz"),
        call(0, "a", "read", "{}"),
        chunk(finish="tool_calls"),
    ]
    events = read(stream, endpoint("openrouter"))
    assert _thoughts(events) == "Let me."
    kept = finished(events).parts[0]
    assert isinstance(kept, Opaque)
    assert json.loads(kept.data)["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": "Let me.", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]


def test_mistrals_parts_are_reasoning_and_text() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "Yes"}]
    events = read([chunk({"content": parts}), chunk({"content": "."}, "stop")], endpoint("mistral"))
    assert _thoughts(events) == "Hm"
    assert finished(events).parts == (Text("Yes."),)


def test_a_calls_extra_content_is_kept_for_the_way_back() -> None:
    signature = {"google": {"thought_signature": "abc"}}
    delta = {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"}, "extra_content": signature}
    kept, only = finished(read([chunk({"tool_calls": [delta]}, "tool_calls")], endpoint("gemini"))).parts
    assert isinstance(kept, Opaque)
    assert isinstance(only, ToolCall)
    assert json.loads(kept.data) == {"extra_content": {"a": signature}}


def test_the_bill_alone_ends_a_reply_whose_end_was_never_told() -> None:
    assert finished(read([chunk({"content": "a"}), BILL])).stop is StopReason.END


def test_a_bill_in_the_middle_ends_nothing() -> None:
    reader = ReplyReader(PLAIN, "d", seed="s")
    for each in (chunk({"content": "a"}), BILL, chunk({"content": "b"})):
        list(reader.feed(each))
    assert not reader.whole
    assert not reader.done


FRAGMENTS = st.lists(
    st.builds(
        call,
        st.none() | st.integers(0, 2),
        st.none() | st.sampled_from(["", "a", "b"]),
        st.none() | st.sampled_from(["", "read", "shell"]),
        st.none() | st.sampled_from(["", "{}", '{"a"', ":1}", "{"]),
    )
    | st.builds(lambda text: chunk({"content": text}), st.text(max_size=3)),
    max_size=12,
)


@given(FRAGMENTS, st.sampled_from(["stop", "length", "tool_calls", "content_filter"]))
def test_whatever_comes_the_calls_have_names_and_ids_of_their_own_and_the_text_is_whole(
    stream: list[Any], finish: str
) -> None:
    events = read([*stream, chunk(finish=finish)])
    found = calls(events)
    assert len({each.id for each in found}) == len(found)
    assert all(each.name and each.id for each in found)
    if finish == "length":
        assert all(isinstance(json.loads(each.arguments), dict) for each in found)
    told = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "".join(part.text for part in finished(events).parts if isinstance(part, Text)) == told
