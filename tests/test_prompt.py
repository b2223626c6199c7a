"""Blocks and prompts: identity, append-only growth, comparison."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.block import Block, Layer, Opaque, Role, Text, ToolCall, ToolResult, ToolSpec
from context.canonical import canonical_json
from context.prompt import LayerOrderError, Prompt

texts = st.text(max_size=20)
parts = st.one_of(
    st.builds(Text, texts),
    st.builds(ToolCall, texts, texts, texts),
    st.builds(ToolResult, texts, texts, st.booleans()),
    st.builds(Opaque, texts, st.binary(max_size=20)),
    st.builds(ToolSpec, texts, texts, st.just("{}")),
)
blocks = st.builds(
    Block.make,
    st.sampled_from([Layer.HISTORY, Layer.COMMAND]),
    st.sampled_from(Role),
    st.lists(parts, max_size=4),
    st.integers(0, 100),
)


def user(text: str, tokens: int = 1) -> Block:
    return Block.make(Layer.COMMAND, Role.USER, [Text(text)], tokens)


def head(layer: Layer) -> Block:
    return Block.make(layer, Role.SYSTEM, [Text(layer.value)], 1)


@given(blocks)
def test_a_block_comes_back_from_its_stored_form_with_the_same_identity(block: Block) -> None:
    again = Block.from_json(block.to_json(), block.tokens)
    assert again == block
    assert again.parts == block.parts
    canonical_json(block.to_json()).encode()  # every block can go over a wire


def test_text_in_legacy_bytes_is_made_safe_when_the_block_is_made() -> None:
    block = user("caf\udce9 \ud800")
    assert block.text.encode().decode() == block.text
    assert block.text.startswith("caf")


def test_the_estimate_is_no_part_of_a_blocks_identity() -> None:
    assert user("a", tokens=1) == user("a", tokens=2)
    assert user("a") != user("b")


@given(st.lists(blocks, max_size=6), st.lists(blocks, max_size=6), st.lists(blocks, max_size=6))
def test_common_prefix_is_exactly_the_shared_blocks(shared: list[Block], left: list[Block], right: list[Block]) -> None:
    base = Prompt.empty().extend(shared)
    a, b = base.extend(left), base.extend(right)
    expected = len(shared)
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        expected += 1
    assert a.common_prefix(b) == b.common_prefix(a) == expected
    assert a.extends(base)
    assert a.extends(b) == (expected == len(b))
    assert list(a) == shared + left


def test_appending_leaves_the_prompt_as_it_was() -> None:
    base = Prompt.empty().append(user("one"))
    fork = base.append(user("two"))
    assert len(base) == 1
    assert [block.text for block in fork] == ["one", "two"]
    assert fork.at(1).digest == base.digest


def test_tokens_are_counted_at_the_first_look_and_once() -> None:
    block = Block.make(Layer.COMMAND, Role.USER, [Text("hello world")])
    assert block.known_tokens is None
    prompt = Prompt.empty().append(block).append(user("x", tokens=7))
    assert prompt.tokens == block.tokens + 7
    assert block.known_tokens == block.tokens > 0


def test_the_digest_depends_on_order() -> None:
    a, b = user("a"), user("b")
    assert Prompt.empty().extend([a, b]).digest != Prompt.empty().extend([b, a]).digest


def test_a_more_stable_layer_cannot_come_later() -> None:
    prompt = Prompt.empty().extend([head(Layer.SYSTEM), user("hello")])
    with pytest.raises(LayerOrderError):
        prompt.append(head(Layer.PROJECT))


def test_a_command_counts_as_history_once_it_was_sent() -> None:
    prompt = Prompt.empty().extend([head(Layer.SYSTEM), head(Layer.PROJECT), user("one"), user("two")])
    layers = [prompt.layer_at(index, sent=3) for index in range(4)]
    assert layers == [Layer.SYSTEM, Layer.PROJECT, Layer.HISTORY, Layer.COMMAND]


def test_heads_are_found_whatever_follows() -> None:
    prompt = Prompt.empty().extend([head(Layer.SYSTEM), head(Layer.PROJECT)])
    longer = prompt.extend([user(str(number)) for number in range(50)])
    assert longer.head(Layer.SYSTEM).length == 1
    assert longer.head(Layer.PROJECT).digest == prompt.digest
    assert Prompt.empty().append(user("only")).head(Layer.PROJECT).length == 0
