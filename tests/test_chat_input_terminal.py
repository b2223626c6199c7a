"""The chat's input as a person sees it: completion, history of the session before, narrow terminals."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from pty_screen import Screen

DRIVER = Path(__file__).with_name("input_driver.py")


class Start(Protocol):
    def __call__(self, *paths: str, rows: int = 24, columns: int = 80) -> Screen: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    screens: list[Screen] = []

    def start(*paths: str, rows: int = 24, columns: int = 80) -> Screen:
        command = [sys.executable, str(DRIVER), str(tmp_path / "history.jsonl"), *paths]
        screen = Screen(
            command, env={"HOME": str(tmp_path), "LANG": "C.UTF-8"}, cwd=tmp_path, rows=rows, columns=columns
        )
        screens.append(screen)
        return screen.wait_for("ready").wait_for(">")

    yield start
    for screen in screens:
        screen.close()


def test_files_are_offered_while_one_types(start: Start) -> None:
    screen = start("src/app.py", "docs/an app.md", "README.md")
    screen.send("look at @ap")
    screen.wait_for("docs/an app.md").wait_for("src/app.py")
    assert "README.md" not in "\n".join(screen.display)
    screen.send("\t")
    screen.wait_for("> look at @src/app.py")
    screen.send("\r")
    screen.wait_gone("docs/an app.md")
    screen.send("\r")
    screen.wait_for("sent 19: 'look at @src/app.py'")


def test_commands_are_offered_with_what_they_do(start: Start) -> None:
    screen = start()
    screen.send("/")
    screen.wait_for("what there is").wait_for("another one")
    screen.send("\x1b")
    screen.wait_gone("what there is")
    assert "escaped" not in screen.display


def test_the_session_before_is_in_history_and_found_by_search(start: Start) -> None:
    first = start()
    first.send("first\\\r")
    first.wait_until(lambda: first.cursor == (2, 2), "a second line")
    first.send("message\r")
    first.wait_for("sent 13: 'first\\nmessage'")
    first.send("other\r")
    first.wait_for("sent 5: 'other'")
    first.send("\x04")
    assert first.wait_end() == 0
    second = start()
    for _ in range(50):  # it is read beside the first prompt
        second.send("\x1b[A")
        second.run_for(0.2)
        if "> other" in second.display:
            break
    second.send("\x1b[B\x12mess")
    second.wait_for("  message")
    second.send("\r")
    second.wait_gone("mess\n")
    second.send("\r")
    second.wait_for("sent 13: 'first\\nmessage'")


def test_a_narrow_terminal_that_becomes_narrower(start: Start) -> None:
    screen = start(columns=40)
    text = "这是一个很长的消息 with many words in it, 👍 and more"
    screen.send(text)
    screen.wait_for("and more")
    screen.resize(24, 30)
    screen.wait_until(
        lambda: "".join(line[2:] for line in screen.display[1:6]).replace(" ", "") == text.replace(" ", ""),
        "the message, wrapped at 30 columns",
    )
    assert all(len(line) <= 30 for line in screen.display)


def test_a_long_text_takes_ten_rows_at_most(start: Start) -> None:
    screen = start()
    for number in range(15):
        screen.send(f"row {number}\n")
        screen.wait_for(f"row {number}")
    assert len([line for line in screen.display if "row" in line]) <= 10
