"""Streaming Markdown: finished pieces are written once, and look as they would in the whole."""

import re
import time
from io import StringIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from agent.chat.markdown_stream import Code, MarkdownStream, Piece
from agent.chat.markdown_view import CodeView, Reply, Stripped

LINES = [
    *("word", "two words", "*not closed", "**bold** and `code`", "中文和 emoji 🎉", "a | b", "--- | ---", "| 1 | 2 |"),
    *(
        "# heading",
        "## a | b",
        "---",
        "***",
        "===",
        "- item",
        "  - inner",
        "   more of it",
        "* other",
        "+ third",
        "1. one",
    ),
    *(
        "2. two",
        "7) seven",
        "> quote",
        "> - in quote",
        ">",
        "```",
        "```python",
        "~~~",
        "````",
        "  ```js",
        "    indented",
    ),
    *(
        "\tafter a tab",
        "<div>",
        "</div>",
        "<!-- a",
        "-->",
        "[ref]: http://x.y",
        "[ref]",
        "![image](x.png)",
        "x\\",
        "  ",
    ),
    *("- ```", "  ```", "- # h", "\\# none", "&lt;", "- | x", "-", "1.", "\x0c", "\xa0", "word\r", "```\r"),
]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = st.lists(st.sampled_from(LINES) | st.just(""), max_size=30).map("\n".join)
MANY = "\n".join(["before", "", *(f"- item {number}\n  more of it" for number in range(40)), "", "after"])


def split(text: str, cuts: list[int]) -> list[Piece]:
    """The pieces of `text`, fed in portions of the given lengths (all the rest at the end)."""
    stream, pieces = MarkdownStream(), list[Piece]()
    for length in cuts:
        pieces += stream.feed(text[:length])
        text = text[length:]
    return [*pieces, *stream.feed(text), *stream.finish()]


def shown(pieces: list[Piece]) -> str:
    """As they are printed, one after another, without blank lines."""
    out = StringIO()
    console = Console(file=out, width=60, force_terminal=True, color_system="standard")
    code = CodeView()
    for piece in pieces:
        if isinstance(piece.shown, Code):
            code = code if piece.continues else CodeView()
            console.print(code.add(piece.shown))
        else:
            console.print(Stripped(Reply(piece.shown, piece.number)), end="")
    return "\n".join(line for line in out.getvalue().split("\n") if ANSI.sub("", line).strip())


def in_one(text: str) -> str:
    return shown([Piece(text, text.replace("\r", ""))])


@given(TEXTS | st.text(), st.lists(st.integers(0, 9)))
def test_pieces_and_tail_are_the_text_whatever_the_portions(text: str, cuts: list[int]) -> None:
    stream, rest, seen = MarkdownStream(), text, ""
    for length in [*cuts, len(text)]:
        seen += "".join(piece.text for piece in stream.feed(rest[:length]))
        rest = rest[length:]
        assert seen + stream.tail + rest == text
    assert seen + "".join(piece.text for piece in stream.finish()) == text


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 9)))
@example(MANY, [1] * 20)
def test_pieces_one_by_one_look_like_the_whole(text: str, cuts: list[int]) -> None:
    assert shown(split(text, cuts)) == in_one(text)


def test_a_block_is_finished_when_nothing_can_change_it() -> None:
    stream = MarkdownStream()
    assert stream.feed("# Title\n")
    assert not stream.feed("A paragraph\n")  # it may go on, or become a heading or a table
    assert [piece.text for piece in stream.feed("\n")] == ["A paragraph\n\n"]
    assert not stream.feed("- one\n\n")  # a list may go on after blank lines
    assert [piece.text for piece in stream.feed("A word\n")] == ["- one\n\n"]
    assert stream.tail == "A word\n"


def test_long_code_is_written_line_by_line_in_its_colours() -> None:
    code = ['text = """\n', *(f"line {number} of a string\n" for number in range(300)), '"""\n']
    text = "".join(["```python\n", *code, "```\n"])
    stream, held, pieces = MarkdownStream(), 0, list[Piece]()
    for line in text.splitlines(keepends=True):
        pieces += stream.feed(line)
        held = max(held, len(stream.tail.splitlines()))
    assert held < 10
    assert shown(pieces) == in_one(text)


def test_a_long_list_is_not_held_back_and_keeps_its_numbers() -> None:
    items = [f"{number}. item\n   - inner\n" for number in range(1, 100)]
    stream = MarkdownStream()
    pieces = [piece for item in items for piece in stream.feed(item)]
    assert len(stream.tail) < 1000
    pieces += stream.finish()
    assert len(pieces) > 3
    assert "\x1b[36m 57 \x1b[0mitem" in shown(pieces)


def test_nothing_of_a_reply_vanishes() -> None:
    """HTML, definitions, images and deep nesting: shown as written rather than interpreted."""
    deep = ">" * 60 + " deep"
    seen = in_one(f"List<String>\n\n<details>\n\n[ref]: http://x.y\n\n![alt](pic.png)\n\n{deep}").replace("\n", "")
    for part in ("<String>", "<details>", "http://x.y", "pic.png"):
        assert part in seen


@pytest.mark.parametrize(
    "line", ["word word\n", "- item\n", "| a | b |\n", "> quote\n", "    code\n", "<p>\n", "word "]
)
def test_the_time_per_character_does_not_grow(line: str) -> None:
    def seconds(lines: int) -> float:
        stream, started = MarkdownStream(), time.process_time()
        stream.feed("| a | b |\n|---|---|\n" if line.startswith("|") else "")
        for _ in range(lines):
            stream.feed(line)
        return time.process_time() - started

    short = min(seconds(1_000) for _ in range(2))
    long = min(seconds(4_000) for _ in range(4))
    assert long < 12 * short + 0.05  # 4 if it were exact, 16 if it were the square
