"""A reply is read while it is written: the same events however it is cut, and never half a call."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import Event, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from backends.llama.reply import ReplyReader, StringDecoder
from backends.llama.tool_grammar import answer_text, compact_json, reply_text
from context.block import Text, ToolCall

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read(text: str, cuts: Sequence[int]) -> tuple[ReplyReader, list[Event]]:
    """The reader after `text`, fed in pieces that end at the cuts."""
    reader = ReplyReader("c1")
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    events = [event for start, end in pairwise(places) for event in reader.feed(text[start:end])]
    return reader, events


@settings(deadline=None)
@given(st.text(), st.lists(st.integers(0, 9999), max_size=20), st.booleans())
def test_an_answer_arrives_whole_however_it_is_cut(said: str, cuts: list[int], ascii_only: bool) -> None:
    text = answer_text(said) if not ascii_only else answer_text("x").replace('"x"', json.dumps(said))
    reader, events = read(text, cuts)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == said
    assert reader.complete
    assert reader.parts == ((Text(said),) if said else ())


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4), st.lists(st.integers(0, 9999), max_size=20))
def test_a_call_arrives_as_it_was_written_however_it_is_cut(arguments: dict[str, object], cuts: list[int]) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    reader, events = read(reply_text(ToolCall("", "edit", written)), cuts)
    assert events[0] == ToolCallStarted("c1", "edit")
    assert "".join(event.fragment for event in events if isinstance(event, ToolCallDelta)) == written
    assert events[-1] == ToolCallFinished(ToolCall("c1", "edit", written))
    assert reader.complete
    assert reader.parts == (ToolCall("c1", "edit", written),)


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4), st.integers(0, 9999))
def test_half_a_call_is_none(arguments: dict[str, object], cut: int) -> None:
    text = reply_text(ToolCall("", "edit", compact_json(arguments)))
    reader, events = read(text[: cut % (len(text) - 1)], [])
    assert not any(isinstance(event, ToolCallFinished) for event in events)
    assert reader.parts == ()
    assert not reader.complete


def test_an_answer_that_is_cut_off_keeps_what_was_said() -> None:
    reader, _ = read(answer_text("one two")[:-6], [])
    assert reader.parts == (Text("one "),)
    assert not reader.complete


def test_a_call_is_announced_as_soon_as_its_name_is_known() -> None:
    reader = ReplyReader("c1")
    assert reader.feed('{"tool":"read') == []
    assert reader.feed('","') == [ToolCallStarted("c1", "read")]


def test_spaces_between_tokens_are_no_part_of_the_reply() -> None:
    reader, events = read(' {"tool": "answer", "args": {"text": "hi"}}', range(50))
    assert reader.parts == (Text("hi"),)
    assert events
    assert reader.complete


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (r"\ud83d\ude00!", "😀!"),
        (r"\ud83dx", "\N{REPLACEMENT CHARACTER}x"),
        (r"\ude00", "\N{REPLACEMENT CHARACTER}"),
        (r"\ud83d\n", "\N{REPLACEMENT CHARACTER}\n"),
        (r"\ud83dA", "\N{REPLACEMENT CHARACTER}A"),
        (r"\\u0041\/\"", r"\u0041" + '/"'),
    ],
)
def test_escapes_may_be_cut_anywhere(written: str, said: str) -> None:
    for size in range(1, len(written) + 1):
        decoder, out = StringDecoder(), ""
        for start in range(0, len(written), size):
            out += decoder.feed(written[start : start + size])[0]
        decoded, rest = decoder.feed('"}}')
        assert (out + decoded, rest) == (said, "}}")
