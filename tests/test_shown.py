"""A call that is made again after its stream broke shows no text twice."""

from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agent import events
from agent.screens.shown import Shown
from agent.screens.text import OneShotText
from context.usage import Usage


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(*happened: events.Event) -> str:
    terminal = Terminal()
    screen = OneShotText(terminal, Console(file=StringIO()))
    for event in happened:
        screen(event)
    screen.close()
    return terminal.getvalue()


def told(*happened: events.Event) -> list[str]:
    """The lines on standard error."""
    errors = StringIO()
    screen = OneShotText(StringIO(), Console(file=errors))
    for event in happened:
        screen(event)
    screen.close()
    return errors.getvalue().splitlines()


def text(said: str) -> events.TextDelta:
    return events.TextDelta(1, said)


BROKEN = events.ReplyRestarted(1, "The connection was lost.", 1.0)


def test_the_same_reply_made_again_is_on_the_screen_once() -> None:
    """Field report 127; the stream breaks twice."""
    shown = on_screen(text("I will "), text("look"), BROKEN, text("I wi"), BROKEN, text("I will look "), text("at it."))
    assert shown.replace("\n", "") == "I will look at it."


def test_why_a_call_is_made_again_is_told_once_and_then_how_often() -> None:
    lost = [events.ReplyRestarted(number, "The host cannot be reached.", 2.0**number) for number in range(3)]
    answered = events.CallFinished(3, Usage(), None, None, 1.0, None, None)
    assert told(*lost, BROKEN, lost[0], answered, lost[0]) == [
        "The host cannot be reached. Trying again in 1 s (2 of 8).",
        "Trying again in 2 s (3 of 8).",
        "Trying again in 4 s (4 of 8).",
        "The connection was lost. Trying again in 1 s (5 of 8).",
        "The host cannot be reached. Trying again in 1 s (6 of 8).",
        "The host cannot be reached. Trying again in 1 s (2 of 8).",
    ]


def test_another_reply_begins_on_a_line_of_its_own() -> None:
    shown = on_screen(text("I will look"), BROKEN, text("I will"), text(" read"))
    assert shown == "I will look\nI will read\n"


@given(st.lists(st.text(max_size=4)), st.integers(0, 40))
def test_whatever_the_pieces_an_equal_reply_is_written_once(pieces: list[str], cut: int) -> None:
    whole = "".join(pieces)
    shown, written, _ = Shown().plus(whole[:cut])
    shown = shown.again()
    for piece in pieces:
        shown, more, differs = shown.plus(piece)
        assert not differs
        written += more
    assert written == whole
