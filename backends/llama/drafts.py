"""Guesses at what a model writes next, from what it has read: code that is edited is mostly code that is copied.

A guess is evaluated along with the token before it, which costs little more than that token alone where memory is the
bottleneck, and is taken back where the model draws something else. Prompt lookup (Saxena, 2023): the tokens that
followed the last ones when they stood there before.

Tokens that are evaluated together have other last digits than tokens that are evaluated one by one. Where that could
decide which token comes next, it is evaluated once more, alone: a reply does not depend on what was guessed.
"""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NGRAMS: Final = (4, 3)  # lengths of what must have stood there before
MOST: Final = 4
"""Tokens of a guess, at most."""

_TRIES: Final = 6  # guesses after which it is known whether they help
_PAUSE: Final = 48  # tokens until it is tried again
_DOUBT: Final = 1.5  # twice the largest difference in a logit that was measured (docs/local-models.md)
_FORGET: Final = 0.9  # weight of what was known before, at each guess


class Drafts:
    """Guesses nothing. `guess` is given the tokens so far, and how many it may guess at most; `hit` says that one of
    them was drawn.
    """

    def guess(self, text: "array[int]", most: int) -> "array[int]":
        return text[:0]

    def hit(self) -> None:
        pass

    def sure(self, row: int) -> bool:
        """Whether the logits of a row leave no doubt which token is the likeliest."""
        return False


NO_DRAFTS: Final = Drafts()


class PromptLookup(Drafts):
    """For one reply of a greedy model. `cost`: what a token with guesses takes, over a token without. It stops where
    hits do not pay that; counted, not timed, so that equal prompts give equal replies. `logits` are those of a row of
    the last batch.
    """

    def __init__(self, cost: float, logits: "Callable[[int], npt.NDArray[np.float32]]") -> None:
        self._cost = cost
        self._logits = logits
        self._tries = 0
        self._hits = float(MOST)  # expected of a guess
        self._now = 0
        self._pause = 0

    def guess(self, text: "array[int]", most: int) -> "array[int]":
        self._settle()
        if self._pause:
            self._pause -= 1
            return text[:0]
        found = _what_followed(text, min(most, MOST))
        if found:
            self._tries += 1
            self._now = 0
        return found

    def hit(self) -> None:
        self._now += 1

    def sure(self, row: int) -> bool:
        import numpy as np

        second, first = np.partition(self._logits(row), -2)[-2:]
        return bool(first - second > _DOUBT)

    def _settle(self) -> None:
        """Count the last guess, and pause where guesses do not pay."""
        if self._now < 0:
            return
        if self._tries:
            self._hits = _FORGET * self._hits + (1 - _FORGET) * self._now
        self._now = -1
        if self._tries >= _TRIES and 1 + self._hits < self._cost:
            self._tries, self._hits, self._pause = 0, float(MOST), _PAUSE


def pays(cost: float) -> bool:
    """Whether guesses can be worth what a token with them takes over one without: where half of them are right."""
    return cost < 1 + MOST / 2


def _what_followed(text: "array[int]", most: int) -> "array[int]":
    """What stood behind the last tokens when they came before; the latest such place."""
    import numpy as np

    whole = np.frombuffer(text, dtype=np.int32)
    for size in _NGRAMS:
        if len(whole) <= size:
            continue
        starts = len(whole) - size  # the last one is the end itself
        same = np.ones(starts, dtype=bool)
        for place in range(size):
            same &= whole[place : place + starts] == whole[starts + place]
        places = np.flatnonzero(same)
        if len(places):
            start = int(places[-1]) + size
            return text[start : start + most]
    return text[:0]
