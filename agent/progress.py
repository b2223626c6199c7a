"""Whether the tool calls of a turn still teach the model anything. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from context.block import ToolCall

REPEATS_BEFORE_STOP: Final = 5
ERRORS_BEFORE_STOP: Final = 3
REFUSALS_BEFORE_STOP: Final = 3
REPEATED: Final = "(The same call gave the same result before. Do something else.)"
SAME_ERROR: Final = (
    "(The same error as with the last arguments. Find out what brings it about, or say what keeps you from going on.)"
)
# Durations and addresses differ from run to run and tell nothing new.
_NO_NEWS: Final = re.compile(r"\b\d+(?:\.\d+)?(?=\s?m?s\b)|0x[0-9a-f]+")


class Progress:
    """Of one session, turn by turn: what was done in earlier turns is no loop."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()  # every outcome of this turn
        self._outcomes: Counter[tuple[str, str, str]] = Counter()  # since one of them was new
        # With which arguments a tool gave which error, in replies in a row that brought nothing else.
        self._errors: dict[tuple[str, str], list[str]] = {}
        self._new_errors: dict[tuple[str, str], str] = {}  # of the reply at hand, with the first arguments
        self._worked = False  # whether one of its calls did
        self._refused: Counter[tuple[str, str]] = Counter()  # calls that a person has refused, in this turn

    def begin_turn(self) -> None:
        self._known.clear()
        self._outcomes.clear()
        self._errors = {}
        self._refused.clear()

    def begin_reply(self) -> None:
        self._new_errors, self._worked = {}, False

    def note(self, call: ToolCall, text: str, *, failed: bool, refused: bool = False) -> str | None:
        """A call gave `text`. What to tell the model of that, if it is nothing new.

        `refused`: a person said no. That is news each time, and no error: the model may try as many other ways as it
        likes, but not the very same call.
        """
        told = _NO_NEWS.sub("", text)
        outcome, error = (call.name, call.arguments, told), (call.name, told)
        if refused:
            self._refused[call.name, call.arguments] += 1
        elif failed:
            self._new_errors.setdefault(error, call.arguments)
        else:
            self._worked = True
        if outcome not in self._known:
            self._known.add(outcome)
            self._outcomes.clear()  # something new was learned: what came before is no loop
        self._outcomes[outcome] += 1
        if self._outcomes[outcome] > 1:
            return REPEATED
        return SAME_ERROR if failed and error in self._errors else None

    def end_reply(self) -> None:
        before, self._errors = self._errors, {}
        if self._worked:
            return
        for error, arguments in self._new_errors.items():
            ways = before.get(error, [])
            self._errors[error] = ways if arguments in ways else [*ways, arguments]

    def stuck(self, calls: Sequence[ToolCall]) -> str | None:
        """What the model keeps doing in vain, if it does: one of `calls` gave the same result REPEATS_BEFORE_STOP
        times while nothing new came up, or a tool the same error ERRORS_BEFORE_STOP times in a row, whatever its
        arguments, or a person refused the very same call REFUSALS_BEFORE_STOP times.
        """
        for call in calls:
            if self._refused[call.name, call.arguments] >= REFUSALS_BEFORE_STOP:
                return f"calling {call.name} though you refused that"
        for (name, _), ways in self._errors.items():
            if len(ways) >= ERRORS_BEFORE_STOP:
                return f"getting the same error from {name}"
        tired = {
            (name, arguments) for (name, arguments, _), count in self._outcomes.items() if count >= REPEATS_BEFORE_STOP
        }
        again = next((call for call in calls if (call.name, call.arguments) in tired), None)
        return None if again is None else f"calling {again.name} with the same result"
