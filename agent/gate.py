"""Permission for each call: the mode decides, and the person where the mode says so and a person is there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.permission_rules import Rules
from agent.permissions import Allow, Ask, Grants, Mode, Refuse, decide
from agent.tools.base import Access, Effect, ToolError

CHANGED_MEANWHILE = (
    "The file changed while the user was asked, so they saw another change. Nothing was done. Try again."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said.

    `always`: also to what the question offered to allow from now on. `reason` is for the model.
    """

    allowed: bool
    always: bool = False
    reason: str | None = None


_BY_PERSON = "The user refused"


def by_person(refusal: str) -> bool:
    """Whether it is the answer of a person, not of a mode or a rule."""
    return refusal.startswith(_BY_PERSON)


Asker = Callable[[Ask], Awaitable[Answer]]


class ModeGate:
    """The gate of one session. `asker` is None when nobody can be asked; `readable` are folders that are free to read.

    `mode` may be set while the session is open; it counts from the next call on. `home` is what `~` means in `rules`.
    """

    def __init__(
        self,
        mode: Mode,
        root: Path,
        asker: Asker | None,
        readable: Iterable[Path] = (),
        rules: Rules = Rules(),  # noqa: B008 (immutable)
        home: Path | None = None,
    ) -> None:
        self.mode = mode
        self._root = root
        self._asker = asker
        self._readable = tuple(readable)
        self._grants = Grants()
        self._rules = rules
        self._home = home
        self._one_question = asyncio.Lock()
        self.before_effects: Callable[[], Awaitable[None]] | None = None
        """What a call waits for that may change something: until the files are kept as they are, for undo."""
        self.confined = False
        """Whether the command that was allowed last belongs into the sandbox: nobody was asked about it."""

    async def refusal(self, access: Access) -> str | None:
        """None when the call may run, else the reason that the model is told."""
        reason = await self._refusal(access)
        if reason is None and access.effect is not Effect.READ and self.before_effects is not None:
            await self.before_effects()
        return reason

    async def _refusal(self, access: Access) -> str | None:
        async with self._one_question:  # calls that run side by side ask one after another
            decision = decide(
                self.mode,
                access,
                self._root,
                interactive=self._asker is not None,
                grants=self._grants,
                readable=self._readable,
                rules=self._rules,
                home=self._home,
            )
            self.confined = False
            match decision:
                case Allow(confined):
                    self.confined = confined
                    return None
                case Refuse(reason):
                    return reason
                case Ask():
                    assert self._asker is not None, "decide asks only when it may"
                    return await self._ask(self._asker, decision, access)

    async def _ask(self, asker: Asker, ask: Ask, access: Access) -> str | None:
        shown = await asyncio.to_thread(_diff, access)
        answer = await asker(replace(ask, diff=shown))
        if answer.allowed and shown is not None and await asyncio.to_thread(_diff, access) != shown:
            return CHANGED_MEANWHILE
        return self._heard(access, answer, ask.pattern)

    def _heard(self, access: Access, answer: Answer, pattern: str | None) -> str | None:
        if not answer.allowed:
            return f"{_BY_PERSON}: {answer.reason}" if answer.reason else f"{_BY_PERSON} this call."
        if answer.always:
            self._grants.remember(access, self._root, pattern)
        return None


def _diff(access: Access) -> str | None:
    """What the call will change; None where that cannot be said, also because the call is going to fail."""
    try:
        return None if access.diff is None else access.diff()
    except (ToolError, OSError):
        return None
