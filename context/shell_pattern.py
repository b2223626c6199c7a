"""Whether a command fits a pattern such as `git push *`, also when parts of the command are unknown. Pure.

A pattern is matched word by word, so that no quoting changes what it means. `*` within a word stands for any text in
it; `*` alone for any number of further words, also none; `*` at the very end of the pattern for anything that follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from context.shell_words import HOLE

_END: Final = "\0"  # of a word; no command line can hold it
_State = tuple[int, bool]  # the next piece of the pattern, and whether we are inside of a word that a lone `*` takes


class Fit(IntEnum):
    NO = 0
    MAYBE = 1  # it depends on what is known only when the command runs
    YES = 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """`text` as written. Holds at least one word."""

    text: str

    def fit(self, words: Sequence[str]) -> Fit:
        """How a command of these words (with HOLEs) fits. Takes time in proportion to the lengths of both."""
        pieces = _pieces(self.text)
        states, unknown = _closed({(0, False)}, pieces), False
        for char in "".join(word + _END for word in words):
            if any(_takes_all(state, pieces) for state in states):
                return Fit.MAYBE if unknown else Fit.YES
            if char == HOLE:
                states, unknown = _anything(states, pieces), True
            else:
                states = _closed({after for state in states for after in _after(state, char, pieces)}, pieces)
        if not any(at == len(pieces) or pieces[at] == "REST" for at, _ in states):
            return Fit.NO
        return Fit.MAYBE if unknown else Fit.YES


def _pieces(text: str) -> list[str]:
    """Characters; TEXT for `*` in a word, WORDS for one alone, REST for one at the end of the last word."""
    words, pieces = text.split(), list[str]()
    for number, word in enumerate(words):
        if word == "*":
            pieces.append("WORDS")
            continue
        rest = number == len(words) - 1 and word.endswith("*")
        pieces += ["TEXT" if char == "*" else char for char in (word[:-1] if rest else word)]
        pieces.append("REST" if rest else _END)
    return pieces


def _takes_all(state: _State, pieces: list[str]) -> bool:
    at, inside = state
    return at < len(pieces) and (
        pieces[at] == "REST" or (at == len(pieces) - 1 and pieces[at] == "WORDS" and not inside)
    )


def _after(state: _State, char: str, pieces: list[str]) -> list[_State]:
    at, _ = state
    if at == len(pieces):
        return []
    match pieces[at]:
        case "REST":
            return [state]
        case "TEXT":
            return [state] if char != _END else []
        case "WORDS":
            return [(at, char != _END)]
        case wanted:
            return [(at + 1, False)] if char == wanted else []


def _closed(states: set[_State], pieces: list[str]) -> set[_State]:
    """With the states that are reached by a `*` that stands for nothing more."""
    closed = set(states)
    for at, inside in states:
        while at < len(pieces) and pieces[at] in ("TEXT", "WORDS") and not inside:
            at += 1
            closed.add((at, False))
    return closed


def _anything(states: set[_State], pieces: list[str]) -> set[_State]:
    """All states that any text leads to."""
    first = min((at for at, _ in states), default=len(pieces) + 1)
    reached = {(at, False) for at in range(first, len(pieces) + 1)}
    return reached | {(at, True) for at, _ in reached if at < len(pieces) and pieces[at] == "WORDS"}
