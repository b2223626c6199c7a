"""What the chat needs of a screen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import RenderableType

from agent import events
from agent.gate import Answer
from agent.permissions import Ask


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a picker. `key` is what choosing it gives."""

    key: str
    title: str
    detail: str = ""


class Front(Protocol):
    """Everything is called from the event loop's thread. `width` in cells."""

    @property
    def width(self) -> int: ...

    def write(self, what: RenderableType) -> None:
        """Print above the live region, for good."""
        ...

    def event(self, event: events.Event) -> None:
        """Show what happens in a turn."""
        ...

    async def show(self, report: Callable[[], None]) -> None:
        """Let `report` print to standard output."""
        ...

    async def ask(self, question: Ask) -> Answer:
        """Whether a call may run. Cancellable."""
        ...

    async def agree(self, question: str) -> bool:
        """Yes or no. Cancellable."""
        ...

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """The key of one of the choices; None: none of them. Cancellable."""
        ...

    def say_command(self, text: str) -> None:
        """Show what the person has sent."""
        ...

    def working(self, what: str | None) -> None:
        """What is being done, None: the person has the word."""
        ...

    def waiting(self, messages: Sequence[str]) -> None:
        """The messages that will be sent after this turn."""
        ...

    def edit(self, text: str) -> bool:
        """Put `text` where the person types, if there is nothing yet. Whether it is there now."""
        ...

    def thinking(self) -> str:
        """What the model thought in its last reply."""
        ...

    def mode_changed(self, mode: str) -> None: ...
