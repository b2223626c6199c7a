"""The chat on a pseudo-terminal, as a person sees it: the real program against the emulator."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from emulator import Emulator
from pty_screen import Screen
from scripted import FIX, plan

Start = Callable[..., Screen]
READY = "ask"  # the mode in the status line: the session is open


@pytest.fixture
def start(repository: Path, environment: dict[str, str], anthropic_server: Emulator) -> Iterator[Start]:
    screens = []

    def spawn(*arguments: str, rows: int = 30, columns: int = 100, **env: str) -> Screen:
        screen = Screen(
            [sys.executable, str(ROOT / "keepwarm.py"), *arguments],
            env={**environment, **anthropic_server.env, **env},
            cwd=repository,
            rows=rows,
            columns=columns,
        )
        screens.append(screen)
        return screen

    yield spawn
    for screen in screens:
        screen.close()


def test_a_question_is_answered_and_the_session_goes_on(start: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(answer="It is a **shop**."))
    screen = start()
    screen.wait_for("> ")
    screen.send("What is this?\r")
    screen.wait_for("It is a shop.")
    screen.send("And again?\r")
    screen.wait_until(lambda: screen.text.count("It is a shop.") == 2, "a second answer")
    screen.send("\x04")
    assert screen.wait_end() == 0
    assert len([body for body in anthropic_server.bodies if body["messages"]]) >= 2


def test_a_change_is_shown_before_it_is_allowed_and_can_be_taken_back(
    start: Start, anthropic_server: Emulator, repository: Path
) -> None:
    anthropic_server.play(plan(*FIX))
    screen = start()
    screen.send("Fix the price\r")
    screen.wait_for("[y] once")
    assert "return price + tax" in screen.text
    assert "price - tax" in (repository / "price.py").read_text()
    screen.wait_settled()
    screen.send("y")
    screen.wait_for("python3 check.py")
    screen.wait_for("[y] once")
    screen.send("y")
    screen.wait_for("check.py passes.")
    assert "price + tax" in (repository / "price.py").read_text()
    screen.send("/undo\r")
    screen.wait_for("put back: price.py")
    assert "price - tax" in (repository / "price.py").read_text()
