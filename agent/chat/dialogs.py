"""Questions in the live region: permission, yes or no, and a list to choose from.

What is typed in the moment a question appears was not meant for it, so that a question listens only after a while.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType

from agent.chat.front import Choice
from agent.gate import Answer
from agent.permissions import Ask
from agent.screens.diff import show_diff
from context.names import show_name

T = TypeVar("T")
_LISTENS_AFTER_S: Final = 0.4
_DIFF_LINES: Final = 400
_ROWS: Final = 8

Line = tuple[str, str]  # a style name and a text


class Dialog(ABC, Generic[T]):
    """`answer` is set by a key, and cancelled with what asked."""

    def __init__(self) -> None:
        self.answer: Final[asyncio.Future[T]] = asyncio.get_running_loop().create_future()

    def ahead(self, width: int) -> Sequence[RenderableType]:
        """What is printed before the question."""
        return ()

    @abstractmethod
    def lines(self, width: int) -> list[Line]:
        """What the live region shows."""

    @abstractmethod
    def key(self, key: str) -> bool:
        """Take a key: a character, or enter, escape, up, down, backspace. Whether the question listens by now."""

    def told(self, answer: T) -> str | None:
        """What stays on the screen."""
        return None

    def _give(self, answer: T) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class Question(Dialog[Answer]):
    """Whether a call may run: once, always, or not, with a reason if the person has one."""

    def __init__(self, ask: Ask, now: Callable[[], float]) -> None:
        super().__init__()
        self._ask = ask
        self._now = now
        self._from = now() + _LISTENS_AFTER_S
        self._reason: str | None = None

    def ahead(self, width: int) -> Sequence[RenderableType]:
        return () if self._ask.diff is None else (show_diff(self._ask.diff, _DIFF_LINES),)

    def lines(self, width: int) -> list[Line]:
        question = ("bold", show_name(self._ask.question))
        if self._reason is not None:
            return [question, ("", f"Why not (Enter sends it, Esc goes back): {self._reason}▏")]
        always = f"[a] always: {self._ask.always}   " if self._ask.always else ""
        return [question, ("class:key", f"[y] once   {always}[n] no   [r] no, and why")]

    def key(self, key: str) -> bool:
        if self._reason is not None:
            self._write(key)
            return True
        if self._now() < self._from:
            return False
        match key:
            case "y":
                self._give(Answer(allowed=True))
            case "a" if self._ask.always:
                self._give(Answer(allowed=True, always=True))
            case "n" | "escape":
                self._give(Answer(allowed=False))
            case "r":
                self._reason = ""
        return True

    def _write(self, key: str) -> None:
        assert self._reason is not None
        match key:
            case "enter":
                self._give(Answer(allowed=False, reason=self._reason.strip() or None))
            case "escape":
                self._reason = None
            case "backspace":
                self._reason = self._reason[:-1]
            case "up" | "down":
                pass
            case _:
                self._reason += key

    def told(self, answer: Answer) -> str:
        if answer.allowed:
            return f"  allowed: {self._ask.always}" if answer.always else "  allowed once"
        return f"  refused: {answer.reason}" if answer.reason else "  refused"


class YesNo(Dialog[bool]):
    def __init__(self, question: str, now: Callable[[], float]) -> None:
        super().__init__()
        self._question = question
        self._now = now
        self._from = now() + _LISTENS_AFTER_S

    def lines(self, width: int) -> list[Line]:
        return [("bold", show_name(self._question)), ("class:key", "[y] yes   [n] no")]

    def key(self, key: str) -> bool:
        if self._now() < self._from:
            return False
        if key in ("y", "n", "escape"):
            self._give(key == "y")
        return True

    def told(self, answer: bool) -> str:
        return f"{self._question} {'yes' if answer else 'no'}"


class Picker(Dialog[str | None]):
    """A list to choose from; what is typed filters it."""

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices
        self._filter = ""
        self._at = 0

    def lines(self, width: int) -> list[Line]:
        found = self._found()
        first = max(0, min(self._at - _ROWS // 2, len(found) - _ROWS))
        head = f"{self._title}  {self._filter}▏" if self._filter else f"{self._title}  (type to search)"
        rows: list[Line] = [("bold", head)]
        for number, choice in enumerate(found[first : first + _ROWS], first):
            mark = "❯ " if number == self._at else "  "
            rows.append(("class:chosen" if number == self._at else "", _row(mark, choice, width)))
        if not found:
            rows.append(("class:dim", "  nothing with that in it"))
        rows.append(("class:key", f"{len(found)} of {len(self._choices)}   Enter chooses   Esc leaves all as it is"))
        return rows

    def key(self, key: str) -> bool:
        found = self._found()
        match key:
            case "enter":
                if found:
                    self._give(found[self._at].key)
            case "escape":
                self._give(None)
            case "up":
                self._at = max(0, self._at - 1)
            case "down":
                self._at = min(max(0, len(found) - 1), self._at + 1)
            case "backspace":
                self._filter, self._at = self._filter[:-1], 0
            case _:
                self._filter, self._at = self._filter + key, 0
        return True

    def _found(self) -> list[Choice]:
        words = self._filter.casefold().split()
        return [
            choice
            for choice in self._choices
            if all(word in f"{choice.title} {choice.detail} {choice.key}".casefold() for word in words)
        ]


def _row(mark: str, choice: Choice, width: int) -> str:
    title, detail = show_name(choice.title), show_name(choice.detail)
    room = max(0, width - cell_len(mark) - 1)
    beside = room - cell_len(detail) - 2
    if not detail or beside < room // 2:
        return mark + set_cell_size(title, min(room, cell_len(title)))
    return f"{mark}{set_cell_size(title, min(beside, cell_len(title)))}  {detail}"
