"""Watches one reply while it streams, and says when it goes round in circles: in its text, reasoning or a tool call."""

from dataclasses import dataclass
from typing import Final

from backends import base
from context.repetition import Repetition


@dataclass(frozen=True, slots=True)
class Circle:
    """A reply that repeats itself. `good`: what of its text is kept; `where`: what repeats, as a person is told it."""

    where: str
    good: str

    @property
    def notice(self) -> str:
        kept = len(self.good.strip())
        what = f"the {kept:,} characters of text before it are kept" if kept else "nothing of it is kept"
        return f"{self.where} went round in circles: the reply was cut, {what}."


class RepetitionGuard:
    """For one reply. Reasoning and calls of a reply that is cut are dropped: they are no use in part."""

    def __init__(self) -> None:
        self._said: Final[list[str]] = []
        self._text: Final = Repetition()
        self._thinking: Final = Repetition()
        self._calls: Final[dict[str, Repetition]] = {}

    def take(self, event: base.Event) -> Circle | None:
        """None: no circle so far."""
        match event:
            case base.TextDelta(text):
                self._said.append(text)
                if (end := self._text.feed(text)) is not None:
                    return Circle("The reply", "".join(self._said)[:end])
            case base.ThinkingDelta(text):
                if self._thinking.feed(text) is not None:
                    return Circle("The model's reasoning", "".join(self._said))
            case base.ToolCallDelta(call, fragment):
                if self._calls.setdefault(call, Repetition()).feed(fragment) is not None:
                    return Circle("A tool call", "".join(self._said))
        return None
