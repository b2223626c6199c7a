"""The Chat Completions body: what goes over the wire, and that it only ever grows."""

import json
from typing import Any

import pytest
from compatible_support import HEAD, PROJECT, SYSTEM, assistant, block, endpoint, results, user
from emulator import raw_prefix
from hypothesis import given
from hypothesis import strategies as st

from backends.base import MemoryWireStore
from backends.compatible_endpoints import Endpoint
from backends.compatible_wire import RequestBody, dialect_of
from backends.growing_body import DamagedWireError
from context.block import Block, Layer, Opaque, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import Marker, plan_markers
from context.cache_rules import CacheRules
from context.prompt import Prompt

OPENROUTER = endpoint("openrouter", "anthropic/claude-opus-5.5")
DEEPSEEK = endpoint("deepseek")
MISTRAL = endpoint("mistral")
PLAIN = endpoint("vllm")


def raw(place: Endpoint, prompt: Prompt, *markers: Marker, wires: MemoryWireStore | None = None) -> bytes:
    body = RequestBody(wires or MemoryWireStore(), place, dialect_of(place, "m"))
    body.extend_to(prompt)
    return body.take({"model": "m"}, markers, {"stream": True})


def sent(place: Endpoint, *blocks: Block, markers: tuple[Marker, ...] = ()) -> Any:
    return json.loads(raw(place, HEAD.extend(blocks), *markers))["messages"]


def opaque(place: Endpoint, **fields: Any) -> Opaque:
    return Opaque(dialect_of(place, "m"), json.dumps(fields).encode())


def test_system_and_project_are_one_system_message_and_tools_stand_before_it() -> None:
    body = json.loads(raw(PLAIN, HEAD.append(user("hi"))))
    assert list(body) == ["model", "tools", "messages", "stream"]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read", "shell"]
    assert body["tools"][0]["function"]["parameters"]["required"] == ["path"]
    assert body["messages"] == [
        {"role": "system", "content": f"{SYSTEM.text}\n\n{PROJECT.text}"},
        {"role": "user", "content": "hi"},
    ]


def test_where_markers_go_into_parts_texts_are_parts() -> None:
    system, said = sent(OPENROUTER, user("hi"))
    assert system["content"] == [{"type": "text", "text": SYSTEM.text}, {"type": "text", "text": PROJECT.text}]
    assert said["content"] == [{"type": "text", "text": "hi"}]


def test_results_are_messages_of_their_own_behind_their_calls_and_before_what_the_user_says() -> None:
    asked = assistant(Text("Look."), ToolCall("a", "read", '{"path": "x"}'), ToolCall("b", "shell", ""))
    told = results(Text("<notice>new day</notice>"), ToolResult("a", "1"), ToolResult("b", "", is_error=True))
    *_, reply, first, second, notice = sent(PLAIN, user("go"), asked, told)
    assert reply["content"] == "Look."
    assert [(call["id"], call["function"]["arguments"]) for call in reply["tool_calls"]] == [
        ("a", '{"path": "x"}'),  # as the model spaced it
        ("b", "{}"),
    ]
    assert first == {"role": "tool", "tool_call_id": "a", "content": "1"}
    assert second == {"role": "tool", "tool_call_id": "b", "content": ""}
    assert notice == {"role": "user", "content": "<notice>new day</notice>"}


def test_arguments_that_are_no_object_cannot_break_the_servers_template() -> None:
    """Field report 115: servers parse what the model once wrote, and fail with HTTP 500 on what they cannot."""
    reply = sent(PLAIN, user("go"), assistant(ToolCall("a", "read", '{"path": "x')))[-1]
    assert json.loads(reply["tool_calls"][0]["function"]["arguments"]) == {"INVALID_JSON": '{"path": "x'}


def test_reasoning_goes_back_to_the_model_that_had_it_and_to_no_other() -> None:
    """Field report 136; DeepSeek answers 400 when it is missing."""
    thought = opaque(DEEPSEEK, reasoning_content="Hm.")
    call = ToolCall("a", "read", "{}")
    mine = sent(DEEPSEEK, user("go"), assistant(thought, call))[-1]
    assert (mine["reasoning_content"], mine["content"]) == ("Hm.", None)
    for foreign in (Opaque("anthropic:claude-opus-5-5", b"{}"), Opaque("chat:deepseek:other", thought.data)):
        assert sent(DEEPSEEK, user("go"), assistant(foreign, call))[-1]["reasoning_content"] == ""
        assert "reasoning" not in sent(PLAIN, user("go"), assistant(foreign, call))[-1]


def test_what_gemini_hangs_on_a_call_comes_back_with_it() -> None:
    place = endpoint("gemini")
    signature = {"google": {"thought_signature": "abc"}}
    kept = opaque(place, extra_content={"b": signature})
    reply = sent(place, user("go"), assistant(kept, ToolCall("a", "read", "{}"), ToolCall("b", "read", "{}")))[-1]
    assert "extra_content" not in reply["tool_calls"][0]
    assert reply["tool_calls"][1]["extra_content"] == signature


def test_ids_are_in_the_form_that_the_endpoint_takes_for_the_call_and_its_result_alike() -> None:
    blocks = (
        user("go"),
        assistant(ToolCall("functions.read:0", "read", "{}")),
        results(ToolResult("functions.read:0", "1")),
    )
    *_, reply, result = sent(MISTRAL, *blocks)
    assert len(result["tool_call_id"]) == 9
    assert reply["tool_calls"][0]["id"] == result["tool_call_id"]
    assert sent(PLAIN, *blocks)[-1]["tool_call_id"] == "functions.read:0"
    own = assistant(ToolCall("abcDEF123", "read", "{}"))
    assert sent(MISTRAL, user("go"), own)[-1]["tool_calls"][0]["id"] == "abcDEF123"


def test_nothing_is_sent_of_what_has_nothing_to_say() -> None:
    messages = sent(DEEPSEEK, user("a"), assistant(opaque(DEEPSEEK, reasoning_content="Hm."), Text(" \n")), user("b"))
    assert [message["role"] for message in messages] == ["system", "user", "user"]


def test_a_marker_on_a_tool_result_reaches_the_wire() -> None:
    """Field report 43."""
    blocks = (user("go"), assistant(ToolCall("a", "read", "{}")), results(ToolResult("a", "text")))
    marks = (Marker(1, "long"), Marker(2, "short"), Marker(3, "short"), Marker(5, "short"))
    system, said, reply, result = sent(OPENROUTER, *blocks, markers=marks)
    assert [part["cache_control"] for part in system["content"]] == [
        {"type": "ephemeral", "ttl": "1h"},
        {"type": "ephemeral"},
    ]
    assert said["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(reply)
    assert result["content"] == [{"type": "text", "text": "text", "cache_control": {"type": "ephemeral"}}]


def test_a_blank_result_carries_no_marker() -> None:
    blocks = (user("go"), assistant(ToolCall("a", "read", "{}")), results(ToolResult("a", " \n")))
    *_, said, _, result = sent(OPENROUTER, *blocks, markers=(Marker(5, "short"),))
    assert result["content"] == " \n"
    assert "cache_control" in said["content"][-1], "the last place before it"


def test_a_long_marker_makes_those_before_it_long() -> None:
    """Field report 33: a long time to live behind a short one is refused."""
    system, said = sent(OPENROUTER, user("go"), markers=(Marker(1, "short"), Marker(2, "short"), Marker(3, "long")))
    found = [part["cache_control"].get("ttl") for part in [*system["content"], *said["content"]]]
    assert found == ["1h", "1h", "1h"]


def test_more_markers_than_four_are_a_mistake() -> None:
    """Field report 34."""
    prompt = HEAD.extend([user(str(number)) for number in range(3)])
    with pytest.raises(ValueError, match="5 cache markers"):
        raw(OPENROUTER, prompt, *[Marker(number, "short") for number in range(1, 6)])


def test_a_damaged_wire_form_is_reported_and_leaves_the_body_as_it_was() -> None:
    wires = MemoryWireStore()
    body = RequestBody(wires, PLAIN, dialect_of(PLAIN, "m"))
    body.extend_to(HEAD)
    before = body.take({"model": "m"}, (), {"stream": True})
    bad = user("x")
    for wire in (b'{"messages":[{"role":"user"', b'{"other":[1]}', b'{"messages":[]}', b"[]"):
        wires.put(bad.digest, dialect_of(PLAIN, "m"), wire)
        with pytest.raises(DamagedWireError):
            body.extend_to(HEAD.append(bad))
        assert body.take({"model": "m"}, (), {"stream": True}) == before


def test_what_was_sent_is_replayed_from_the_store_in_another_process() -> None:
    prompt = HEAD.extend(
        [user("größer"), assistant(Text("ü\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")))]
    )
    wires = MemoryWireStore()
    first = raw(OPENROUTER, prompt, wires=wires)
    other = endpoint("openrouter", "anthropic/claude-opus-5.5", call_id_length=9)
    assert raw(other, prompt, wires=wires) == first


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", " ", '"}]}', "\n", '{"role":"assistant"']
)
IDS = st.text("ab:_.-9", min_size=1, max_size=6)
ARGUMENTS = st.sampled_from(["", "{}", '{ "b" : 1, "a": [2]}', '{"half', "[1]", '"}}]}'])


@st.composite
def turns(draw: st.DrawFn, place: Endpoint) -> list[Block]:
    """One exchange: a command, and a reply whose calls are all answered."""
    ids = draw(st.lists(IDS, max_size=3, unique=True))
    reply: list[Part] = [Text(draw(TEXTS)), *[ToolCall(call, "read", draw(ARGUMENTS)) for call in ids]]
    if draw(st.booleans()):
        reply.insert(0, opaque(place, **{place.reasoning or "other": draw(TEXTS)}))
    if draw(st.booleans()):
        reply.insert(0, Opaque("anthropic:claude", b"\xff"))
    answers: list[Part] = [ToolResult(call, draw(TEXTS), draw(st.booleans())) for call in draw(st.permutations(ids))]
    if draw(st.booleans()):
        answers.append(Text(draw(TEXTS)))
    said: list[Part] = [Text(text) for text in draw(st.lists(TEXTS, min_size=1, max_size=2))]
    return [block(Layer.COMMAND, Role.USER, *said), assistant(*reply), *([results(*answers)] if answers else [])]


@pytest.mark.parametrize("place", [OPENROUTER, DEEPSEEK, MISTRAL, PLAIN], ids=lambda place: place.name)
@given(data=st.data())
def test_every_body_is_legal_and_extends_the_one_before(place: Endpoint, data: st.DataObject) -> None:
    """Rule R1, and the pairs of calls and results, for any sequence of turns."""
    body = RequestBody(MemoryWireStore(), place, dialect_of(place, "m"))
    prompt, before, last = HEAD, b"", None
    for blocks in data.draw(st.lists(turns(place), min_size=1, max_size=4)):
        prompt = prompt.extend(blocks)
        limits = CacheRules(min_tokens=1) if place.parts else CacheRules("automatic", 0)
        ttl = data.draw(st.fixed_dictionaries(dict.fromkeys(Layer, st.sampled_from(["short", "long"]))))
        marks = plan_markers(prompt, limits, last, ttl)
        body.extend_to(prompt)
        wire = body.take({"model": "m"}, marks, {"stream": True})
        last = prompt.length

        assert raw_prefix(wire).startswith(before)
        before = raw_prefix(wire)
        parsed = json.loads(wire)
        assert wire.count(b'"cache_control":{') <= 4
        found = [
            part["cache_control"].get("ttl", "5m")
            for message in parsed["messages"]
            for part in (message["content"] if isinstance(message["content"], list) else [])
            if "cache_control" in part
        ]
        assert found == sorted(found), "1h before 5m"
        _check_pairs(parsed["messages"])
        fresh = RequestBody(MemoryWireStore(), place, dialect_of(place, "m"))
        fresh.extend_to(prompt)
        assert fresh.take({"model": "m"}, marks, {"stream": True}) == wire, "a resumed session sends the same bytes"


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == []
        assert message.get("content") or message.get("tool_calls")
        open_calls = [call["id"] for call in message.get("tool_calls", [])]
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert open_calls == []


def test_a_tool_of_the_same_layer_added_later_rebuilds_nothing_behind_it() -> None:
    """Two SYSTEM blocks make one list of tools."""
    more = block(Layer.SYSTEM, Role.SYSTEM, ToolSpec("grep", "Search.", '{"type":"object"}'))
    parsed = json.loads(raw(PLAIN, Prompt.empty().extend([SYSTEM, more, PROJECT, user("x")])))
    assert [tool["function"]["name"] for tool in parsed["tools"]] == ["read", "shell", "grep"]
