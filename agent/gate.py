"""Permission for each call: the mode decides, the person is asked where the mode says so and a person is there."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from agent.permissions import Allow, Ask, Refuse, decide
from agent.tools.base import Access, Effect


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said. `always`: also to all later calls of this effect in this run. `reason` goes to the model."""

    allowed: bool
    always: bool = False
    reason: str | None = None


Asker = Callable[[str], Awaitable[Answer]]
