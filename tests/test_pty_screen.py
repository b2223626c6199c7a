"""The screen that other tests look at shows what a terminal would."""

import os
import sys

import pytest
from pty_screen import Screen, ScreenTimeoutError

WIDE = "import os; print('你好', end='', flush=True); os.read(0, 1)"
SIZE = "import os\nwhile os.read(0, 99).strip(): s = os.get_terminal_size(); print('now', s.lines, s.columns)"


def run(program: str, **size: int) -> Screen:
    return Screen([sys.executable, "-c", program], env=dict(os.environ), **size)


def test_text_cursor_and_end() -> None:
    with run(WIDE) as screen:
        screen.wait_for("你好")
        assert screen.cursor == (0, 4)
        screen.send("\n")
        assert screen.wait_end() == 0


def test_lines_that_left_the_screen_and_a_new_size() -> None:
    with run("for n in range(30): print('line', n)\n" + SIZE, rows=10, columns=40) as screen:
        screen.wait_for("line 29")
        assert screen.scrollback[0] == "line 0"
        assert "line 0" not in screen.display
        assert [line for line in screen.text.splitlines() if line.startswith("line")] == [
            f"line {n}" for n in range(30)
        ]
        screen.resize(12, 50)
        screen.send("x\n")
        screen.wait_for("now 12 50")


def test_what_does_not_come_is_told_with_the_screen() -> None:
    with run("print('here', flush=True); input()") as screen:
        screen.wait_for("here")
        with pytest.raises(ScreenTimeoutError, match=r"(?s)there is not: 'there'.*\|here"):
            screen.wait_for("there", timeout_s=0.1)
        screen.send("\n")
        with pytest.raises(ScreenTimeoutError, match="The program ended without"):
            screen.wait_for("there")
