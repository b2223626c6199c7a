"""What holds for every edit: outside of the replaced text all bytes are the same, and so are the kinds of line ends."""

import asyncio
import itertools
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tool_support import call, make_context

from agent.tools.matching import FINAL_END, exact_matches, fold, tolerant_matches
from agent.tools.splice import splice

# What the file begins with: a mark, or a byte that is no UTF-8.
CODECS = {
    "utf-8": b"",
    "utf-8 with mark": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "cp1252": b"\xe9 ",  # followed by a blank it cannot begin a character of UTF-8
}
WORD = st.text("abé –\u00a0-'\u2019\t", min_size=0, max_size=6)
LINES = st.lists(WORD, min_size=1, max_size=8)
END = st.sampled_from(["\n", "\r\n"])


@pytest.fixture(scope="module")
def runner():
    """One event loop for all examples: starting one takes longer than an edit."""
    with asyncio.Runner() as runner:
        yield runner


def edit(runner: asyncio.Runner, data: bytes, **arguments: object) -> bytes:
    """The bytes of a file after it was read and edited."""
    with tempfile.TemporaryDirectory() as folder:
        context = make_context(Path(folder))
        path = context.root / "a.txt"
        path.write_bytes(data)

        async def read_and_edit() -> None:
            await call("read", context, path="a.txt")
            await call("edit", context, path="a.txt", **arguments)

        runner.run(read_and_edit())
        assert [entry.name for entry in context.root.iterdir()] == ["a.txt"]
        return path.read_bytes()


def lf(text: str) -> str:
    return text.replace("\r\n", "\n")


@given(
    head=st.lists(st.tuples(WORD, END), max_size=4),
    old=st.lists(st.tuples(WORD, END), min_size=1, max_size=4),
    tail=st.lists(st.tuples(WORD, END), max_size=4),
    new=LINES,
    codec=st.sampled_from(sorted(CODECS)),
)
def test_all_bytes_outside_of_the_edit_stay(runner, head, old, tail, new, codec):
    """The old text is marked, so that it occurs once; every line has a line end of its own."""
    encoding = codec.split()[0]
    before, middle, after = (
        "".join(f"{word}{end}" for word, end in part) for part in (head, [("<<", ""), *old, (">>", "")], tail)
    )
    replacement = "\n".join(new)
    data = CODECS[codec] + (before + middle + after).encode(encoding)
    edited = edit(runner, data, old=lf(middle), new=replacement)
    first, last = CODECS[codec] + before.encode(encoding), after.encode(encoding)
    assert edited.startswith(first)
    assert edited.endswith(last)
    assert lf(edited[len(first) : len(edited) - len(last)].decode(encoding)) == replacement


@given(lines=st.lists(WORD, min_size=2, max_size=8), end=END, new=LINES, data=st.data())
def test_a_file_with_one_kind_of_line_ends_keeps_it(runner, lines, end, new, data):
    index = data.draw(st.integers(0, len(lines) - 1))
    lines[index] += "<>"
    edited = edit(runner, end.join(lines).encode(), old=lines[index], new="\n".join(new)).decode()
    assert set(re.findall("\r?\n", edited)) == {end}
    expected = [*lines[:index], *new, *lines[index + 1 :]]
    assert edited == end.join(expected)


@given(lines=st.lists(st.tuples(st.sampled_from("abc"), END), min_size=1, max_size=10), data=st.data())
def test_in_a_mixed_file_lines_that_do_not_change_keep_their_ends(runner, lines, data):
    changed = data.draw(st.integers(0, len(lines) - 1))
    text = "".join(f"{number}{word}{end}" for number, (word, end) in enumerate(lines))
    old = lf(text)
    new = old.replace(f"{changed}{lines[changed][0]}", "changed", 1)
    edited = edit(runner, text.encode(), old=old, new=new).decode()
    assert re.findall("\r?\n", edited) == [end for _, end in lines]
    assert lf(edited) == new


@given(
    text=st.text("ab\n", max_size=30),
    old=st.text("ab\n", min_size=1, max_size=3),
    new=st.text("xy\n", max_size=3),
    end=END,
)
def test_all_replaces_what_str_replace_replaces(runner, text, old, new, end):
    text += "\n"  # a file without any line end has no kind to keep
    assume(old != new and old in text)
    edited = edit(runner, text.replace("\n", end).encode(), old=old, new=new, all=True)
    assert edited.decode() == text.replace(old, new).replace("\n", end)


@given(lines=LINES, old=LINES, new=LINES)
def test_a_tolerated_match_differs_in_nothing_but_what_is_tolerated(lines, old, new):
    text = "\n".join(lines)

    def bare(piece: str) -> list[str]:
        return [fold(line).strip(" \t") for line in piece.split("\n")]

    for match in tolerant_matches(text, "\n".join(old), "\n".join(new)):
        end = "\n" if FINAL_END in match.tolerated else ""
        assert bare(text[match.start : match.end]) == bare("\n".join(old).removesuffix(end))
        assert bare(match.old) == bare("\n".join(old).removesuffix(end))
        assert bare(match.new) == bare("\n".join(new).removesuffix(end))


@given(lines=st.lists(st.tuples(WORD, END), min_size=1, max_size=6))
def test_an_edit_that_changes_nothing_splices_to_the_same_text(lines):
    text = "".join(f"{word}{end}" for word, end in lines)
    assert splice(text, lf(text), lf(text), "\n") == text


@given(st.text("ab", max_size=20), st.text("ab", min_size=1, max_size=3))
def test_exact_matches_do_not_overlap_and_are_all_there(text, old):
    matches = exact_matches(text, old, "x")
    assert len(matches) == text.count(old)
    assert all(one.end <= other.start for one, other in itertools.pairwise(matches))
