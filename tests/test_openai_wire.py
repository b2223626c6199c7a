"""How blocks become items of the Responses API, and how the body grows without being written anew."""

import json
from typing import Any

import pytest
from anthropic_support import PROJECT, SYSTEM
from emulator.bodies import raw_prefix
from emulator.models import ALL
from emulator.responses_rules import refusal
from hypothesis import given
from hypothesis import strategies as st
from openai_support import HEAD, assistant, block, breakpoints, results, user

from backends.base import MemoryWireStore
from backends.growing_body import DamagedWireError
from backends.openai_wire import RequestBody, dialect_of, wrapped
from backends.openai_wire import render as render_for
from context.block import Block, Layer, Opaque, Role, Text, ToolCall, ToolResult
from context.breakpoints import Marker, plan_markers
from context.cache_rules import CacheRules
from context.layers.history import reply_block
from context.prompt import Prompt

DIALECT = dialect_of("m")
REASONING: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA", "summary": []}


def items_of(made: Block, dialect: str = DIALECT) -> list[Any]:
    wire = render_for(made, dialect)
    return json.loads(wire)["input"] if wire else []


def message(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
    return {"id": "msg_1", "type": "message", "status": "completed", "content": content, "role": "assistant", **more}


def call(arguments: str = '{"b": 1, "a":2}', **more: Any) -> dict[str, Any]:
    return {
        "id": "fc_1",
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": "call_1",
        "name": "read",
        **more,
    }


def reply_of(*items: dict[str, Any], dialect: str = DIALECT) -> Block:
    return reply_block([part for item in items for part in wrapped(item, dialect)])


def taken(prompt: Prompt, *places: Marker, body: RequestBody | None = None) -> dict[str, Any]:
    body = body or RequestBody(MemoryWireStore(), DIALECT)
    body.extend_to(prompt)
    parsed: dict[str, Any] = json.loads(body.take({"model": "m"}, places, {"n": 1}))
    return parsed


def test_the_layers_lie_where_the_design_puts_them() -> None:
    body = taken(HEAD.append(user("hello")))
    assert list(body) == ["model", "tools", "input", "n"]
    assert [tool["name"] for tool in body["tools"]] == ["read", "shell"]
    assert body["tools"][0]["parameters"]["required"] == ["path"]
    assert [tool["strict"] for tool in body["tools"]] == [False, False]  # the default would refuse our schemas
    assert [(item["role"], item["content"][0]["text"]) for item in body["input"]] == [
        ("developer", SYSTEM.text),
        ("developer", PROJECT.text),
        ("user", "hello"),
    ]


def test_results_are_lists_whether_or_not_they_carry_a_breakpoint() -> None:
    """Field report 43: marks on tool results must not get lost, nor change the bytes around them."""
    prompt = HEAD.extend(
        [user("go"), assistant(ToolCall("c1", "read", "{}")), results(ToolResult("c1", '漢字 "}]} x'))]
    )
    bare, marked = taken(prompt), taken(prompt, Marker(5, "short"))
    output = [{"type": "input_text", "text": '漢字 "}]} x'}]
    assert bare["input"][-1] == {"type": "function_call_output", "call_id": "c1", "output": output}
    assert marked["input"][-1]["output"] == [{**output[0], "prompt_cache_breakpoint": {"mode": "explicit"}}]


def test_breakpoints_lie_at_the_ends_of_the_layers_and_of_the_last_request() -> None:
    """Field report 46."""
    prompt = HEAD.extend(
        [user("go"), assistant(Text("hm"), ToolCall("c1", "read", "{}")), results(ToolResult("c1", ""))]
    )
    body = taken(prompt, Marker(1, "long"), Marker(2, "long"), Marker(3, "short"), Marker(5, "short"))
    assert breakpoints(body) == [(0, "12h"), (1, "12h"), (2, None), (5, None)]


def test_a_breakpoint_behind_a_reply_moves_to_the_input_before_it() -> None:
    prompt = HEAD.extend([user("go"), assistant(Text("hm"))])
    assert breakpoints(taken(prompt, Marker(4, "short"))) == [(2, None)]
    for places in ((Marker(3, "short"), Marker(4, "long")), (Marker(3, "long"), Marker(4, "short"))):
        assert breakpoints(taken(prompt, *places)) == [(2, "12h")]


def test_nothing_long_stands_behind_something_short() -> None:
    prompt = HEAD.extend([user("a"), user("b")])
    body = taken(prompt, Marker(1, "short"), Marker(2, "short"), Marker(3, "long"), Marker(4, "short"))
    assert [ttl for _, ttl in breakpoints(body)] == ["12h", "12h", "12h", None]


def test_more_breakpoints_than_the_api_writes_are_never_sent() -> None:
    """Field report 34."""
    prompt = HEAD.extend([user("a"), user("b"), user("c")])
    with pytest.raises(ValueError, match="5 cache markers"):
        taken(prompt, *[Marker(blocks, "short") for blocks in range(1, 6)])
    with pytest.raises(ValueError, match="behind block 9"):
        taken(prompt, Marker(9, "short"))


def test_what_the_model_said_goes_back_as_the_items_that_it_came_in() -> None:
    said = [
        REASONING,
        message("I look.", phase="commentary"),
        call(),
        {**REASONING, "id": "rs_2"},
        call('{"x":"\\u00e9"}', call_id="call_2", namespace="n"),
    ]
    assert items_of(reply_of(*said)) == said


def test_the_words_of_a_reply_are_kept_once_and_cost_no_more_than_they_weigh() -> None:
    long = "a long answer " * 200
    made = reply_of(REASONING, message(long), call())
    assert made.text == long
    assert made.tool_calls == (ToolCall("call_1", "read", '{"b": 1, "a":2}'),)
    wrappers = [part for part in made.parts if isinstance(part, Opaque)]
    assert [part.tokens for part in wrappers] == [None, 0, 0]
    assert all(long[:14].encode() not in part.data for part in wrappers)
    plain = assistant(Opaque(DIALECT, wrappers[0].data), Text(long), *made.tool_calls)
    assert made.tokens == plain.tokens


def test_other_models_read_the_words_and_the_calls_but_neither_reasoning_nor_ids() -> None:
    """Field report 136."""
    made = reply_of(REASONING, message("I look.", phase="commentary"), call())
    assert items_of(made, dialect_of("another")) == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"b": 1, "a":2}'},
    ]


def test_a_refusal_is_text_for_other_models_and_a_refusal_for_its_own() -> None:
    said = message("", content=[{"type": "refusal", "refusal": "No."}])
    assert items_of(reply_of(said)) == [said]
    assert reply_of(said).text == "No."


def test_a_message_of_several_texts_is_put_together_again() -> None:
    parts = [{"type": "output_text", "annotations": [], "text": text} for text in ("one", " ", "two")]
    said = message("", content=parts)
    assert items_of(reply_of(said)) == [said]


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_text_without_a_visible_character_is_never_sent(text: str) -> None:
    assert render_for(user("x" + text), DIALECT)
    assert wrapped(message(text), DIALECT) == ()
    assert render_for(assistant(Text(text)), DIALECT) == b""


def test_reasoning_that_nothing_follows_is_not_sent() -> None:
    """The API refuses it; it is the rest of a reply that was cut."""
    assert items_of(reply_of(message("Hm."), REASONING)) == [message("Hm.")]


def test_a_wrapper_whose_words_are_gone_is_left_out_and_the_rest_goes_on_its_own() -> None:
    wrapper, text = wrapped(message("lost"), DIALECT)
    gone, kept = wrapped(call(), DIALECT)
    assert items_of(assistant(wrapper, kept)) == [
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"b": 1, "a":2}'}
    ]
    assert items_of(assistant(gone, text))[0]["content"] == [{"type": "output_text", "text": "lost"}]


def test_arguments_go_back_byte_for_byte() -> None:
    """Field report 23."""
    for written in ('{"zebra": 1,  "apple": {"y": true}}', "{not json", ""):
        assert items_of(reply_of(call(written)))[0]["arguments"] == written
        assert items_of(assistant(ToolCall("c", "read", written)))[0]["arguments"] == written


def test_long_ids_and_odd_names_of_another_provider_are_made_acceptable_alike_in_call_and_result() -> None:
    odd = "toolu_" + "x" * 80
    made = items_of(assistant(ToolCall(odd, "my tool", "{}")))[0]
    result = items_of(results(ToolResult(odd, "ok")))[0]
    assert made["call_id"] == result["call_id"]
    assert len(made["call_id"]) <= 64
    assert made["name"] == "my_tool"


def test_worked_examples_of_the_system_layer_are_messages_of_user_and_model() -> None:
    example = [block(Layer.SYSTEM, role, Text(text)) for role, text in ((Role.USER, "q"), (Role.ASSISTANT, "a"))]
    body = taken(Prompt.empty().extend([SYSTEM, *example, PROJECT, user("go")]))
    assert [item["role"] for item in body["input"]] == ["developer", "user", "assistant", "developer", "user"]


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
        body.take({"model": "m"}, [Marker(prompt.length, "short")], {"n": 1})
    assert (store.asked, store.made) == (1002, 1002)


def test_a_fork_and_the_way_back_render_nothing_twice() -> None:
    store = CountingStore()
    body = RequestBody(store, DIALECT)
    trunk = HEAD.append(user("a"))
    left, right = trunk.append(assistant(Text("left"))), trunk.append(assistant(Text("right")))
    for prompt in (left, right, left, trunk):
        end = Marker(prompt.length, "short")
        assert taken(prompt, end, body=body) == taken(prompt, end)
    assert store.made == 5


def test_what_was_sent_is_replayed_even_when_the_renderer_has_changed() -> None:
    """Rule R2."""
    store = MemoryWireStore()
    old = b'{"type":"message","role":"user","content":[{"type":"input_text","text":"as it was once"}]}'
    store.put(user("hello").digest, DIALECT, b'{"input":[' + old + b"]}")
    body = RequestBody(store, DIALECT)
    body.extend_to(HEAD.append(user("hello")))
    assert old in body.take({"model": "m"}, (), {})


@pytest.mark.parametrize("damage", [b"{", b"not json", b'{"input":[', b'{"input":[1]}', b"\xff\xfe"])
def test_a_damaged_record_is_noticed_and_leaves_the_body_as_it_was(damage: bytes) -> None:
    store = MemoryWireStore()
    store.put(user("b").digest, DIALECT, damage)
    body, prompt = RequestBody(store, DIALECT), HEAD.append(user("a"))
    body.extend_to(prompt)
    with pytest.raises(DamagedWireError):
        body.extend_to(prompt.extend([assistant(Text("x")), user("b")]))
    assert taken(prompt, body=body) == taken(prompt)


_texts = st.text(max_size=12)
_seen = _texts.filter(lambda text: bool(text.strip()))
_items = st.one_of(
    st.builds(message, _seen, phase=st.sampled_from(["commentary", "final_answer", None])),
    st.builds(call, _texts, call_id=st.uuids().map(str)),
    st.just(REASONING),
    st.builds(lambda text: {"type": "compaction", "id": "cmp", "encrypted_content": text}, _texts),
)
_blocks = st.one_of(
    st.builds(user, _texts),
    st.builds(lambda items: reply_of(*items), st.lists(_items, max_size=4)),
    st.builds(lambda text: assistant(Text(text), ToolCall("t1", "read", json.dumps({"path": text}))), _texts),
    st.builds(lambda text: results(ToolResult("t1", text), ToolResult("t2", text)), _texts),
)


@given(st.lists(_items, max_size=8))
def test_any_reply_goes_back_as_it_came(said: list[dict[str, Any]]) -> None:
    while said and said[-1]["type"] == "reasoning":
        said.pop()
    assert items_of(reply_of(*said)) == said


@given(st.lists(_blocks, max_size=12), st.data())
def test_breakpoints_and_growth_never_move_a_byte(blocks: list[Block], data: st.DataObject) -> None:
    """Rule R1 on the raw bytes: take any breakpoints away, and each body begins with all of the one before."""
    body, prompt, before = RequestBody(MemoryWireStore(), DIALECT), HEAD, b""
    for made in blocks:
        prompt = prompt.append(made)
        body.extend_to(prompt)
        places = data.draw(st.lists(st.integers(1, prompt.length), max_size=4, unique=True))
        ttls = data.draw(st.lists(st.sampled_from(["short", "long"]), min_size=4, max_size=4))
        marked = body.take(
            {"model": "m"}, [Marker(*pair) for pair in zip(sorted(places), ttls, strict=False)], {"n": 1}
        )
        assert len(breakpoints(json.loads(marked))) <= len(places)
        bare = body.take({"model": "m"}, (), {"n": 1})
        shared = raw_prefix(marked)
        assert bare == shared + b'],"n":1}'
        assert shared.startswith(before)
        before = shared


_calls = st.lists(st.builds(lambda n: call('{"a":1}', call_id=f"{n}"), st.integers(0, 10**12)), max_size=3)
_said = st.builds(message, _seen)


@st.composite
def _turns(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What can happen in a session, in any order: commands, notices, replies with calls in their turn, forgotten
    reasoning, another model's replies.
    """
    happened: list[tuple[str, Any]] = [("user", "go")]
    used: set[str] = set()
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["user", "reply", "foreign reply", "nothing said"]))
        if kind == "user":
            happened.append(("user", draw(_seen)))
            continue
        made = [each for each in draw(_calls) if each["call_id"] not in used]
        unique = {each["call_id"]: each for each in made}
        used |= unique.keys()
        words = [] if kind == "nothing said" else [draw(_said)]
        thought = [REASONING] if draw(st.booleans()) else []
        happened.append((kind, [*thought, *words, *unique.values()]))
    return happened


@given(_turns(), st.data())
def test_every_body_is_legal_and_extends_the_one_before(happened: list[tuple[str, Any]], data: st.DataObject) -> None:
    """The emulator's reading of the API's rules is the judge: pairs complete, parts where they may stand, no reasoning
    alone. At most four breakpoints, none long behind a short one.
    """
    model = ALL.find("gpt-6.2-sol")
    body, prompt, before, last = RequestBody(MemoryWireStore(), DIALECT), HEAD, b"", None
    for kind, what in happened:
        if kind == "user":
            prompt = prompt.append(user(what))
        else:
            reply = reply_of(*what, dialect=dialect_of("another") if kind == "foreign reply" else DIALECT)
            prompt = prompt.append(reply)
            if not reply.tool_calls:
                continue
            prompt = prompt.append(results(*(ToolResult(made.id, "漢字" * 9) for made in reply.tool_calls)))
        ttl = {layer: data.draw(st.sampled_from(["short", "long"])) for layer in Layer}
        body.extend_to(prompt)
        raw = body.take({"model": "gpt-6.2-sol"}, plan_markers(prompt, CacheRules(), last, ttl), {"store": False})
        last = prompt.length
        request = json.loads(raw)
        assert refusal(request, model) is None
        ttls = [ttl for _, ttl in breakpoints(request)]
        assert 1 <= len(ttls) <= 4
        assert ttls == sorted(ttls, key=lambda ttl: ttl is None)
        assert raw_prefix(raw).startswith(before)
        before = raw_prefix(raw)
