"""What arrives from the terminal, as keys: whichever way it is cut into reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from agent.chat.keys import ALONE, ChatParser, know_more_keys

know_more_keys()


def keys(*reads: str, flush: bool = True) -> list[tuple[str, str]]:
    """Key and text of what the reads give; only pastes and characters have a text that counts."""
    pressed: list[KeyPress] = []
    parser = ChatParser(Vt100Parser(pressed.append))
    for read in reads:
        parser.feed(read)
    if flush:
        parser.flush()
    return [(str(getattr(press.key, "value", press.key)), press.data) for press in pressed]


def names(*reads: str) -> list[str]:
    return [key for key, _ in keys(*reads)]


def paste(text: str) -> tuple[str, str]:
    return (Keys.BracketedPaste.value, text)


ENTER, NEW_LINE, INTERRUPT = Keys.ControlM.value, Keys.ControlJ.value, Keys.ControlC.value


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\r", [ENTER]),
        ("\x1b[13u", [ENTER]),
        ("\n", [NEW_LINE]),
        ("\x1b\r", [NEW_LINE]),
        ("\x1b[13;2u", [NEW_LINE]),
        ("\x1b[13;5u", [NEW_LINE]),
        ("\x1b[13;130u", [NEW_LINE]),
        ("\x1b[27;2;13~", [NEW_LINE]),
        ("\x1b[27;3;13~", [NEW_LINE]),
        ("\x1b[57414u", [ENTER]),
        ("\x03", [INTERRUPT]),
        ("\x1b[99;5u", [INTERRUPT]),
        ("\x1b[99;69u", [INTERRUPT]),
        ("\x1b[27;5;99~", [INTERRUPT]),
        ("\x1b", [Keys.Escape.value, ALONE.value]),
        ("\x1b[27u", [Keys.Escape.value, ALONE.value]),
        ("\x1bb", [Keys.Escape.value, "b"]),
        ("\x1b[98;3u", [Keys.Escape.value, "b"]),
        ("\x1b[A", [Keys.Up.value]),
        ("\x1b[9;2u", [Keys.BackTab.value]),
        ("\x1b[120;5u\x1b[101;5u", [Keys.ControlX.value, Keys.ControlE.value]),
    ],
)
def test_keys_of_all_terminals(sent: str, key: list[str]) -> None:
    assert names(sent) == key
    assert names(*sent) == key


def test_typed_text_and_enter_is_no_paste() -> None:
    assert names("hi\r") == ["h", "i", ENTER]
    assert names("hi", "\r", "you\r") == ["h", "i", ENTER, "y", "o", "u", ENTER]
    assert names("a\r\x1b[A") == ["a", ENTER, Keys.Up.value]
    assert names("a\x1b\rb\r") == ["a", NEW_LINE, "b", ENTER]
    assert names("\r\r") == [ENTER, ENTER]


@pytest.mark.parametrize("line_end", ["\r", "\r\n"])
def test_lines_that_arrive_together_are_one_paste(line_end: str) -> None:
    text = f"first{line_end}second{line_end}"
    assert keys(text) == [paste(text)]
    assert keys("x", text, "third", "\r") == [("x", "x"), paste(f"{text}third\r")]


def test_an_unmarked_paste_with_colours_in_it_is_one_paste() -> None:
    text = "\x1b[31mred\x1b[0m\rnext\r\x1b[32mgreen"
    assert keys(text) == [paste(text)]


def test_an_unmarked_paste_that_takes_many_reads_is_one_paste() -> None:
    text = "\r".join(f"line {number} " + "x" * 150 for number in range(40))
    reads = [text[place : place + 1024] for place in range(0, len(text), 1024)]
    assert keys(*reads) == [paste(text)]


@given(st.text(st.characters(exclude_characters="\x1b\x03"), max_size=60), st.data())
def test_a_marked_paste_is_one_key_however_it_is_cut(text: str, data: st.DataObject) -> None:
    sent = f"a\x1b[200~{text}\x1b[201~b"
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1))))
    reads = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert keys(*reads) == [("a", "a"), paste(text), ("b", "b")]


def test_two_pastes_in_one_read() -> None:
    assert keys("\x1b[200~one\x1b[201~\x1b[200~two\x1b[201~") == [paste("one"), paste("two")]
