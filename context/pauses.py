"""How long a person stays away: what is expected before there is data, and what their own pauses teach.

The prior is a mixture of quick replies, breaks, and pauses of hours, with a share that never comes back. The quick part
is from public recorded sessions (pi-mono test fixtures: 87 pauses, median 39 s, one in twenty-two above 260 s); nights
and breaks are not in those, so their shares are [guess]. It counts as much as `_WORTH` pauses of one's own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

After = Literal["answer", "question", "failed"]
"""What a pause follows: the model was done; it asked something; the turn failed or was interrupted."""

_EDGES: Final = tuple(2.0 * 1.25**n for n in range(53))  # seconds, from 2 s to 2.5 days
_WORTH: Final = 20.0  # pauses of one's own that the prior counts as
_SAME: Final = 3.0  # weight of a pause after the same thing, against one after something else
# Share, median in seconds, spread (sigma of the logarithm).
_PRIOR: Final = ((0.80, 45.0, 1.1), (0.11, 780.0, 0.7), (0.03, 7200.0, 0.6), (0.02, 54_000.0, 0.25))
_NEVER: Final = 0.04


@dataclass(frozen=True, slots=True)
class Pause:
    """One wait for the person, in seconds; None: nobody came back. `hour`: local hour (0 to 23) in which it began."""

    seconds: float | None
    after: After
    hour: int


class Pauses:
    """A person's distribution of pauses: the weight in each of a row of growing intervals, and of never."""

    def __init__(self, seen: tuple[Pause, ...]) -> None:
        self._seen = seen
        self._tails: dict[After, list[float]] = {}

    @classmethod
    def learned(cls, seen: Iterable[Pause] = ()) -> "Pauses":
        """The prior, corrected by the pauses of this person."""
        return cls(tuple(seen))

    def returns(self, waited: float, until: float, after: After, hour: int) -> float:
        """The probability that the person comes back within (waited, until] seconds, not having come by `waited`."""
        there = self.stays(waited, after, hour)
        if there <= 0 or until <= waited:
            return 0.0
        return max(0.0, 1 - self.stays(until, after, hour) / there)

    def stays(self, seconds: float, after: After, hour: int) -> float:
        """The probability that the person is still away after so many seconds; of `inf`: that they never come."""
        tail = self._tails.get(after)
        if tail is None:
            tail = self._tails[after] = self._weighed(after)
        if seconds <= 0:
            return 1.0
        if seconds >= _EDGES[-1]:
            return tail[-1]
        at = max(0, min(len(_EDGES) - 1, math.ceil(_place(seconds))))
        low = _EDGES[at - 1] if at else 0.0
        share = (seconds - low) / (_EDGES[at] - low)
        before = tail[at - 1] if at else 1.0
        return before + (tail[at] - before) * share

    def _weighed(self, after: After) -> list[float]:
        """P(still away) at each edge."""
        weights = [_WORTH * weight for weight in _PRIOR_WEIGHTS]
        for pause in self._seen:
            at = -1 if pause.seconds is None else max(0, min(len(_EDGES) - 1, math.ceil(_place(pause.seconds))))
            weights[at] += _SAME if pause.after == after else 1.0
        total, tail, gone = sum(weights), [], 0.0
        for weight in weights[:-1]:
            gone += weight
            tail.append(max(0.0, 1 - gone / total))
        return tail


def _place(seconds: float) -> float:
    """Where among the edges: the edge at or behind `seconds` is its ceiling."""
    return math.log(max(seconds, 1e-9) / _EDGES[0]) / math.log(1.25)


def _prior_weights() -> list[float]:
    def below(seconds: float) -> float:
        return sum(
            share * 0.5 * (1 + math.erf(math.log(seconds / median) / (spread * math.sqrt(2))))
            for share, median, spread in _PRIOR
        )

    ends = [below(edge) for edge in _EDGES]
    return [ends[0], *(later - earlier for earlier, later in pairwise(ends)), _NEVER]


_PRIOR_WEIGHTS: Final = _prior_weights()
