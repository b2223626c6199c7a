"""How blocks become Anthropic's wire form, and how the body grows without being written anew."""

import json
from typing import Any

import pytest
from anthropic_support import HEAD, PROJECT, SYSTEM, assistant, block, results, user
from emulator import markers, raw_prefix
from hypothesis import given
from hypothesis import strategies as st

from backends.anthropic_wire import RequestBody, dialect_of
from backends.anthropic_wire import render as render_for
from backends.base import MemoryWireStore
from backends.growing_body import DamagedWireError
from context.block import Block, Layer, Opaque, Role, Text, ToolCall, ToolResult
from context.breakpoints import Marker
from context.prompt import Prompt

DIALECT = dialect_of("m")
THINKING = b'{"type":"thinking","thinking":"","signature":"c2ln"}'


def render(made: Block) -> bytes:
    return render_for(made, DIALECT)


def content(made: Block) -> Any:
    return json.loads(render(made))["content"]


def taken(prompt: Prompt, *places: Marker, body: RequestBody | None = None) -> dict[str, Any]:
    body = body or RequestBody(MemoryWireStore(), DIALECT)
    body.extend_to(prompt)
    parsed: dict[str, Any] = json.loads(body.take({"model": "m"}, places, {"max_tokens": 5}))
    return parsed


def test_the_layers_lie_where_the_design_puts_them() -> None:
    body = taken(HEAD.append(user("hello")))
    assert [tool["name"] for tool in body["tools"]] == ["read", "shell"]
    assert body["tools"][0]["input_schema"]["required"] == ["path"]
    assert [part["text"] for part in body["system"]] == [SYSTEM.text, PROJECT.text]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]


def test_worked_examples_of_the_system_layer_are_messages_ahead() -> None:
    example = [block(Layer.SYSTEM, role, Text(text)) for role, text in ((Role.USER, "q"), (Role.ASSISTANT, "a"))]
    body = taken(Prompt.empty().extend([SYSTEM, *example, PROJECT, user("go")]))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert len(body["system"]) == 2


def test_arguments_keep_the_models_key_order() -> None:
    """Field report 23."""
    written = '{"zebra": 1, "apple": {"y": true, "b": null}}'
    rendered = render(assistant(ToolCall("t1", "read", written)))
    assert b'"input":{"zebra":1,"apple":{"y":true,"b":null}}' in rendered


@pytest.mark.parametrize(
    "arguments", ['{"path": ', "[1]", '"x"', "NaN", '{"a": NaN}', '{"a": 1e999}', "null", "[" * 100_000]
)
def test_arguments_that_are_no_json_object_go_back_as_what_they_are(arguments: str) -> None:
    assert content(assistant(ToolCall("t1", "read", arguments)))[0]["input"] == {"INVALID_JSON": arguments}


def test_no_arguments_are_an_empty_object() -> None:
    assert content(assistant(ToolCall("t1", "now", "")))[0]["input"] == {}


def test_thinking_goes_back_in_place_and_byte_for_byte_and_foreign_reasoning_stays_behind() -> None:
    """Field report 136."""
    rendered = render(
        assistant(
            Opaque(DIALECT, THINKING), Opaque("openai", b"\x00enc"), Text("I look."), ToolCall("t1", "read", "{}")
        )
    )
    assert THINKING + b',{"type":"text","text":"I look."},{"type":"tool_use"' in rendered
    assert b"enc" not in rendered


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_text_without_a_visible_character_is_never_sent(text: str) -> None:
    assert content(assistant(Text(text), ToolCall("t1", "read", "{}")))[0]["type"] == "tool_use"
    assert render(assistant(Text(text))) == b""


def test_a_message_without_content_is_left_out() -> None:
    body = taken(HEAD.extend([user("a"), assistant(Opaque("openai", b"x")), user("b")]))
    assert [message["content"][0]["text"] for message in body["messages"]] == ["a", "b"]


def test_results_say_whether_they_are_errors() -> None:
    parts = content(results(ToolResult("t1", "fine"), ToolResult("t2", "bad", is_error=True), ToolResult("t3", "")))
    assert parts == [
        {"type": "tool_result", "tool_use_id": "t1", "content": "fine"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "bad", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t3"},
    ]


def test_ids_and_names_of_another_provider_are_made_acceptable_alike_in_call_and_result() -> None:
    call = content(assistant(ToolCall("call_1|fc:2", "my tool", "{}")))[0]
    result = content(results(ToolResult("call_1|fc:2", "ok")))[0]
    assert call["id"] == result["tool_use_id"] == "call_1_fc_2"
    assert call["name"] == "my_tool"


def test_lone_surrogates_in_arguments_cannot_break_the_request() -> None:
    rendered = render(assistant(ToolCall("t1", "read", '{"path": "a\\ud800b"}')))
    assert rendered.decode().count("a") > 0


def test_a_marker_lies_on_the_last_part_that_can_carry_one() -> None:
    """Field report 43: marks on assistant and tool messages must not get lost."""
    prompt = HEAD.extend(
        [
            user("go"),
            assistant(Text("é漢😀"), ToolCall("t1", "read", "{}"), Opaque(DIALECT, THINKING)),
            results(ToolResult("t1", "漢字")),
        ]
    )
    body = taken(prompt, Marker(1, "short"), Marker(2, "short"), Marker(4, "short"), Marker(5, "short"))
    assert markers(body) == [
        ("system[0]", "5m"),
        ("system[1]", "5m"),
        ("messages[1].content[1]", "5m"),
        ("messages[2].content[0]", "5m"),
    ]


def test_a_marker_behind_a_block_that_cannot_carry_one_moves_to_the_block_before() -> None:
    prompt = HEAD.extend([user("go"), assistant(Opaque(DIALECT, THINKING)), assistant(Opaque("openai", b"x"))])
    assert markers(taken(prompt, Marker(5, "short"))) == [("messages[0].content[0]", "5m")]
    for places in ((Marker(3, "short"), Marker(4, "long")), (Marker(3, "long"), Marker(4, "short"))):
        assert markers(taken(prompt, *places)) == [("messages[0].content[0]", "1h")]


def test_tools_alone_can_carry_the_marker() -> None:
    tools = Block.make(Layer.SYSTEM, Role.SYSTEM, [SYSTEM.parts[0], SYSTEM.parts[1]], 1)
    assert markers(taken(Prompt.empty().extend([tools, user("go")]), Marker(1, "long"))) == [("tools[1]", "1h")]


def test_no_long_marker_follows_a_short_one_on_the_wire() -> None:
    """Field report 33; worked examples lie behind PROJECT on the wire, although they come first in the prompt."""
    example = block(Layer.SYSTEM, Role.USER, Text("example"))
    prompt = Prompt.empty().extend([SYSTEM, example, PROJECT, user("go")])
    body = taken(prompt, Marker(1, "short"), Marker(2, "long"), Marker(3, "short"), Marker(4, "short"))
    assert [ttl for _, ttl in markers(body)] == ["1h", "1h", "1h", "5m"]


def test_more_markers_than_the_api_takes_are_never_sent() -> None:
    """Field report 34."""
    prompt = HEAD.extend([user("a"), assistant(Text("b")), user("c")])
    with pytest.raises(ValueError, match="5 cache markers"):
        taken(prompt, *[Marker(blocks, "short") for blocks in range(1, 6)])
    with pytest.raises(ValueError, match="behind block 9"):
        taken(prompt, Marker(9, "short"))


class CountingStore(MemoryWireStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked, self.made = 0, 0

    def get(self, block_digest: str, dialect: str) -> bytes | None:
        self.asked += 1
        return super().get(block_digest, dialect)

    def put(self, block_digest: str, dialect: str, wire: bytes) -> None:
        self.made += 1
        super().put(block_digest, dialect, wire)


def test_the_next_body_costs_its_new_blocks_only() -> None:
    store = CountingStore()
    body, prompt = RequestBody(store, DIALECT), HEAD
    for turn in range(1000):
        prompt = prompt.append(user(f"question {turn}"))
        body.extend_to(prompt)
        body.take({"model": "m"}, [Marker(prompt.length, "short")], {"max_tokens": 1})
    assert (store.asked, store.made) == (1002, 1002)


def test_a_fork_and_the_way_back_render_nothing_twice() -> None:
    store = CountingStore()
    body = RequestBody(store, DIALECT)
    trunk = HEAD.append(user("a"))
    left, right = trunk.append(assistant(Text("left"))), trunk.append(assistant(Text("right")))
    for prompt in (left, right, left, trunk):
        assert taken(prompt, body=body) == taken(prompt)
    assert store.made == 5


def test_what_was_sent_is_replayed_even_when_the_renderer_has_changed() -> None:
    """Rule R2."""
    store = MemoryWireStore()
    old = b'{"role":"user","content":[{"type":"text","text":"as it was once"}]}'
    store.put(user("hello").digest, DIALECT, old)
    body = RequestBody(store, DIALECT)
    body.extend_to(HEAD.append(user("hello")))
    assert old in body.take({"model": "m"}, (), {})


@pytest.mark.parametrize("damage", [b"{", b"not json", b'{"role":"user","content":[', b"\xff\xfe"])
def test_a_damaged_record_is_noticed_and_leaves_the_body_as_it_was(damage: bytes) -> None:
    store = MemoryWireStore()
    store.put(user("b").digest, DIALECT, damage)
    body, prompt = RequestBody(store, DIALECT), HEAD.append(user("a"))
    body.extend_to(prompt)
    with pytest.raises(DamagedWireError):
        body.extend_to(prompt.extend([assistant(Text("x")), user("b")]))
    assert taken(prompt, body=body) == taken(prompt)


_texts = st.text(max_size=12)
_blocks = st.one_of(
    st.builds(user, _texts),
    st.builds(lambda text: assistant(Text(text), ToolCall("t1", "read", json.dumps({"path": text}))), _texts),
    st.builds(lambda text: results(ToolResult("t1", text)), _texts),
    st.just(assistant(Opaque(DIALECT, THINKING))),
)


@given(st.lists(_blocks, max_size=12), st.data())
def test_markers_and_growth_never_move_a_byte(blocks: list[Block], data: st.DataObject) -> None:
    """Rule R1 on the raw bytes: take any markers away, and each body begins with all of the one before."""
    body, prompt, before = RequestBody(MemoryWireStore(), DIALECT), HEAD, b""
    for made in blocks:
        prompt = prompt.append(made)
        body.extend_to(prompt)
        places = data.draw(st.lists(st.integers(1, prompt.length), max_size=4, unique=True))
        ttls = data.draw(st.lists(st.sampled_from(["short", "long"]), min_size=4, max_size=4))
        marked = body.take(
            {"model": "m"}, [Marker(*pair) for pair in zip(sorted(places), ttls, strict=False)], {"n": 1}
        )
        bare = body.take({"model": "m"}, (), {"n": 1})
        for marker in (b',"cache_control":{"type":"ephemeral","ttl":"1h"}', b',"cache_control":{"type":"ephemeral"}'):
            marked = marked.replace(marker, b"")
        assert marked == bare
        shared = bare.removesuffix(b',"n":1}').removesuffix(b"]")
        assert shared.startswith(before)
        if b'"messages":[' in marked:
            assert raw_prefix(marked) == shared
        before = shared
