"""The grammar of replies, checked by llama.cpp itself on a real vocabulary."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from llama_support import TOOLS

from backends.llama.sampling import Sampler, Sampling
from backends.llama.tool_grammar import answer_text, reply_grammar, reply_text
from backends.llama.weights import Weights
from context.block import ToolCall, ToolSpec

pytest_plugins = ["local_models"]


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Weights]:
    weights = Weights.load(smollm2_path)
    yield weights
    weights.close()


def tool(**schema: Any) -> ToolSpec:
    return ToolSpec("t", "A tool.", json.dumps({"type": "object", **schema}))


def accepts(weights: Weights, tools: tuple[ToolSpec, ...], text: str) -> bool:
    """Whether the grammar takes `text` as a whole reply."""
    with Sampler(weights, Sampling(), reply_grammar(tools)) as sampler:
        for token in weights.tokenize(text):
            if not sampler.fits(token):
                return False
            sampler.accept_given([token])
        return not any(sampler.fits(token) for token in weights.tokenize(' ,"x}'))


def takes(weights: Weights, spec: ToolSpec, arguments: str) -> bool:
    return accepts(weights, (spec,), reply_text(ToolCall("", "t", arguments)))


def test_required_arguments_must_come_in_order_and_optional_ones_may(smollm2: Weights) -> None:
    spec = tool(
        properties={"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}, required=["a", "c"]
    )
    assert takes(smollm2, spec, '{"a":"x","c":true}')
    assert takes(smollm2, spec, '{"a":"x","b":-12,"c":false}')
    assert takes(smollm2, spec, '{"a": "x", "b": 0, "c": true}')
    for wrong in (
        *('{"c":true,"a":"x"}', '{"a":"x"}', '{"a":"x","b":1}', '{"a":"x","b":"1","c":true}', '{"a":"x","c":true,}'),
        *(
            '{"a":"x","c":true,"d":1}',
            '{"a":"x","b":01,"c":true}',
            "{}",
            '{"a":  "x","c":true}',
            '{"a":"x"\n,"c":true}',
        ),
    ):
        assert not takes(smollm2, spec, wrong), wrong


def test_optional_arguments_may_all_be_left_out(smollm2: Weights) -> None:
    spec = tool(properties={"a": {"type": "string"}, "b": {"type": "integer"}})
    for right in ("{}", '{"a":""}', '{"b":1}', '{"a":"","b":1}'):
        assert takes(smollm2, spec, right), right
    assert not takes(smollm2, spec, '{"b":1,"a":""}')
    assert takes(smollm2, tool(), "{}")


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "number"}, ["1", "-0.5", "1e-9"], [".5", "1.", "1e", "NaN"]),
        ({"type": "integer", "minimum": 1}, ["1", "20"], ["0", "-1", "01"]),
        ({"type": "integer", "minimum": 0}, ["0", "7"], ["-1", "00"]),
        ({"type": "integer", "minimum": -5}, ["0", "-5"], ["-"]),
        ({"enum": ["a", 2, None]}, ['"a"', "2", "null"], ['"b"', "3"]),
        ({"const": {"x": 1}}, ['{"x":1}'], ['{"x":2}']),
        ({"type": "array", "items": {"type": "integer"}}, ["[]", "[1]", "[1,2, 3]"], ["[,]", '["a"]', "[1,]"]),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3}, ["[null,null]"], ["[null]", "[]"]),
        ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
        ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, ["1", "true"], ['"x"']),
        ({"type": "object", "properties": {"y": {"type": "null"}}, "required": ["y"]}, ['{"y":null}'], ["{}"]),
        ({"type": "object"}, ["{}", '{"a":[{"b":null}],"c":1}'], ["[]", '{"a"}']),
        ({}, ['"x"', "[1]", "{}"], ["x"]),
        (
            {"type": "string"},
            ['"\\u00e9\\n"', '"日本 😀"', '"\\\\"'],
            ['"\\ud83d"', '"\\x"', '"\n"', '"\\uD83D\\uDE00"'],
        ),
    ],
)
def test_values_follow_their_schema(
    smollm2: Weights, schema: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    spec = tool(properties={"v": schema}, required=["v"])
    for value in right:
        assert takes(smollm2, spec, f'{{"v":{value}}}'), value
    for value in wrong:
        assert not takes(smollm2, spec, f'{{"v":{value}}}'), value


def test_only_the_tools_that_there_are_can_be_called(smollm2: Weights) -> None:
    assert accepts(smollm2, TOOLS, reply_text(ToolCall("", "shell", '{"command":"ls"}')))
    assert not accepts(smollm2, TOOLS, reply_text(ToolCall("", "rm", '{"command":"ls"}')))
    assert accepts(smollm2, TOOLS, answer_text("done"))
    assert accepts(smollm2, (), answer_text("no tools at all"))
    assert not accepts(smollm2, TOOLS, "Sure! " + answer_text("done"))
    assert not accepts(smollm2, TOOLS, answer_text("done") + "\n")


def test_names_that_need_quoting_in_grammars_and_json(smollm2: Weights) -> None:
    odd = 'a"b\\c\td-é'
    spec = ToolSpec(odd, "Odd.", json.dumps({"type": "object", "properties": {odd: {"const": odd}}, "required": [odd]}))
    arguments = json.dumps({odd: odd}, ensure_ascii=False, separators=(",", ":"))
    assert accepts(smollm2, (spec,), reply_text(ToolCall("", odd, arguments)))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(max_size=20), start=st.none() | st.integers(-(10**15), 10**15), ascii_only=st.booleans())
def test_whatever_a_schema_allows_the_grammar_takes(
    smollm2: Weights, path: str, start: int | None, ascii_only: bool
) -> None:
    arguments: dict[str, object] = {"path": path} if start is None else {"path": path, "start": start}
    text = json.dumps(arguments, ensure_ascii=ascii_only, separators=(",", ":"))
    reply = reply_text(ToolCall("", "read", text))
    assume(b"".join(map(smollm2.piece, smollm2.tokenize(reply))) == reply.encode())  # rare bytes are in no token of it
    escapes = text.replace("\\\\", "")
    allowed = "\\ud" not in escapes  # surrogates: the character itself can be written
    assert accepts(smollm2, TOOLS, reply) == allowed


def test_control_tokens_never_fit(smollm2: Weights) -> None:
    with Sampler(smollm2, Sampling(), reply_grammar(TOOLS)) as sampler:
        sampler.accept_given(smollm2.tokenize('{"tool":"answer","args":{"text":"').tolist())
        ends = smollm2.tokenize("<|im_end|>", special=True)
        assert len(ends) == 1
        assert not sampler.fits(ends[0])
        assert all(sampler.fits(token) for token in smollm2.tokenize("<|im_end|>")[:1])
