"""The chat on a pseudo-terminal against the emulator."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulator import Emulator
from pty_screen import Screen, ScreenTimeoutError

CTRL_C, CTRL_D, ESC, ENTER, DOWN, UP = "\x03", "\x04", "\x1b", "\r", "\x1b[B", "\x1b[A"
_PROGRAM = Path(__file__).parent.parent / "keepwarm.py"
_AGAIN_S = 0.3  # a question listens only a while after it has appeared: until then keys are lost


class ChatScreen(Screen):
    """Also knows when the chat is open, and how to answer a question."""

    def opened(self) -> "ChatScreen":
        """Until the session is open: its mode is in the status line."""
        self.wait_for("· ask")
        return self

    def say(self, text: str) -> None:
        self.send(f"{text}\r")

    def answer(self, key: str, question: str) -> None:
        """Wait for the question, and press the key until it is gone."""
        self.wait_for(question)
        for _ in range(50):
            self.send(key)
            try:
                self.wait_gone(question, timeout_s=_AGAIN_S)
            except ScreenTimeoutError:
                continue
            return
        raise ScreenTimeoutError(f"{key!r} does not answer {question!r}. The screen:\n{self.text}")

    def leave(self) -> None:
        """Leave the chat, which is idle."""
        self.send(CTRL_D)
        assert self.wait_end() == 0, self.text


Start = Callable[..., ChatScreen]


@pytest.fixture
def chat(repository: Path, environment: dict[str, str], anthropic_server: Emulator) -> Iterator[Start]:
    """Start the chat in the repository; keyword arguments are more environment."""
    screens: list[ChatScreen] = []

    def start(*arguments: str, rows: int = 40, columns: int = 100, **env: str) -> ChatScreen:
        screen = ChatScreen(
            [sys.executable, str(_PROGRAM), *arguments],
            env={**environment, **anthropic_server.env, **env},
            cwd=repository,
            rows=rows,
            columns=columns,
        )
        screens.append(screen)
        return screen

    yield start
    for screen in screens:
        screen.close()
