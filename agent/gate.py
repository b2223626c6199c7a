"""Permission for each call: the mode decides, and the person where the mode says so and a person is there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.permissions import Allow, Ask, Grants, Mode, Refuse, decide
from agent.tools.base import Access


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said.

    `always`: also to what the question offered to allow from now on. `reason` is for the model.
    """

    allowed: bool
    always: bool = False
    reason: str | None = None


Asker = Callable[[Ask], Awaitable[Answer]]


class ModeGate:
    """The gate of one run. `asker` is None when nobody can be asked; `readable` are folders that are free to read."""

    def __init__(self, mode: Mode, root: Path, asker: Asker | None, readable: Iterable[Path] = ()) -> None:
        self.mode = mode
        self._root = root
        self._asker = asker
        self._readable = tuple(readable)
        self._grants = Grants()
        self._one_question = asyncio.Lock()

    async def refusal(self, access: Access) -> str | None:
        """None when the call may run, else the reason that the model is told."""
        async with self._one_question:  # calls that run side by side ask one after another
            decision = decide(
                self.mode,
                access,
                self._root,
                interactive=self._asker is not None,
                grants=self._grants,
                readable=self._readable,
            )
            match decision:
                case Allow():
                    return None
                case Refuse(reason):
                    return reason
                case Ask():
                    assert self._asker is not None, "decide asks only when it may"
                    return self._heard(access, await self._asker(decision))

    def _heard(self, access: Access, answer: Answer) -> str | None:
        if not answer.allowed:
            return f"The user refused: {answer.reason}" if answer.reason else "The user refused this call."
        if answer.always:
            self._grants.remember(access, self._root)
        return None
