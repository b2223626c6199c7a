"""How long a person stays away: what is expected before there is data, and what their own pauses teach.

A distribution over a row of growing intervals, and over never coming back. The prior counts as `_WORTH` pauses and so
fades as real ones come. A pause that followed the same thing, at about the same hour, teaches more than another.

Source of the prior: its quick part is that of public recorded sessions (pi-mono test fixtures, MIT, 2026-12-01: 87
pauses, median 39 s, three above 300 s; one fast user, no nights). Breaks, hours away, nights and never are not in
those: their shares are [guess], on the side of longer pauses than that one user's. None of it is fitted to
`benchmarks/keepalive`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

After = Literal["answer", "question", "failed"]
"""What a pause follows: the model was done; it asked something; the turn failed or was interrupted."""

AFTERS: Final[tuple[After, ...]] = get_args(After)
_RATIO: Final = 1.25
_EDGES: Final = tuple(2.0 * _RATIO**n for n in range(53))  # seconds, from 2 s to 2.5 days
_WORTH: Final = 20.0  # pauses of one's own that the prior counts as
_OTHER_AFTER: Final = 0.5  # weight of a pause after something else
_SAME_HOURS: Final = 2.0  # hours of the day within which habits are alike (one sigma)
_OTHER_HOUR: Final = 0.5  # weight of a pause at any other hour

# Share, median in seconds, spread (sigma of the logarithm).
_QUICK: Final = (0.80, 45.0, 1.1)
_BREAK: Final = (0.11, 780.0, 0.7)
_AWAY: Final = (0.03, 7200.0, 0.6)
_NIGHT_SHARE_DAY: Final = 0.01
_NIGHT_SHARE_EVENING: Final = 0.04
_EVENING: Final = (17, 5)  # from, to: hours at which a long pause is likely a night
_MORNING_H: Final = 8.5
_NIGHT_SPREAD: Final = 0.2
_NEVER: Final = 0.04
_SHARES_PRIOR: Final[dict[After, float]] = {"answer": 0.75, "question": 0.15, "failed": 0.10}


@dataclass(frozen=True, slots=True)
class Pause:
    """One wait for the person, in seconds; None: nobody came back. `hour`: local hour (0 to 23) in which it began."""

    seconds: float | None
    after: After
    hour: int


class Pauses:
    """A person's distribution of pauses."""

    def __init__(self, counts: dict[tuple[After, int], dict[int, int]]) -> None:
        self._counts = counts  # pauses per interval (-1: never), by what they followed and the hour
        self._tails: dict[tuple[After, int], list[float]] = {}

    @classmethod
    def learned(cls, seen: Iterable[Pause] = ()) -> "Pauses":
        """The prior, corrected by the pauses of this person."""
        counts: dict[tuple[After, int], dict[int, int]] = {}
        for pause in seen:
            at = -1 if pause.seconds is None else _interval(pause.seconds)
            of = counts.setdefault((pause.after, pause.hour), {})
            of[at] = of.get(at, 0) + 1
        return cls(counts)

    def returns(self, waited: float, until: float, after: After, hour: int) -> float:
        """The probability that the person comes back within (waited, until] seconds, not having come by `waited`."""
        there = self.stays(waited, after, hour)
        if there <= 0 or until <= waited:
            return 0.0
        return max(0.0, 1 - self.stays(until, after, hour) / there)

    def stays(self, seconds: float, after: After, hour: int) -> float:
        """The probability that the person is still away after so many seconds; of `inf`: that they never come."""
        tail = self._tails.get((after, hour))
        if tail is None:
            tail = self._tails[after, hour] = self._weighed(after, hour)
        if seconds <= 0:
            return 1.0
        if seconds >= _EDGES[-1]:
            return tail[-1]
        at = _interval(seconds)
        low = _EDGES[at - 1] if at else 0.0
        before = tail[at - 1] if at else 1.0
        return before + (tail[at] - before) * (seconds - low) / (_EDGES[at] - low)

    def shares(self) -> dict[After, float]:
        """What this person's pauses follow; sums to 1."""
        shares = {after: _WORTH * share for after, share in _SHARES_PRIOR.items()}
        for (after, _), of in self._counts.items():
            shares[after] += sum(of.values())
        total = sum(shares.values())
        return {after: share / total for after, share in shares.items()}

    def _weighed(self, after: After, hour: int) -> list[float]:
        """P(still away) at each edge."""
        weights = [_WORTH * weight for weight in _PRIORS[hour]]
        for (other_after, other_hour), of in self._counts.items():
            weight = (1.0 if other_after == after else _OTHER_AFTER) * _NEARNESS[(other_hour - hour) % 24]
            for at, count in of.items():
                weights[at] += weight * count
        total, tail, gone = sum(weights), [], 0.0
        for weight in weights[:-1]:
            gone += weight
            tail.append(max(0.0, 1 - gone / total))
        return tail


def _interval(seconds: float) -> int:
    """The interval that holds `seconds`: its edge is at or behind."""
    if seconds <= _EDGES[0]:
        return 0
    return min(len(_EDGES) - 1, math.ceil(math.log(seconds / _EDGES[0]) / _LOG_RATIO))


def _prior(hour: int) -> list[float]:
    """The weight of each interval, and last that of never, for a pause that begins at `hour`."""
    evening = hour >= _EVENING[0] or hour < _EVENING[1]
    share = _NIGHT_SHARE_EVENING if evening else _NIGHT_SHARE_DAY
    to_morning = ((_MORNING_H - hour) % 24) * 3600.0
    parts = (_QUICK, _BREAK, _AWAY, (share, to_morning, _NIGHT_SPREAD))

    def below(seconds: float) -> float:
        return sum(
            share * 0.5 * (1 + math.erf(math.log(seconds / median) / (spread * math.sqrt(2))))
            for share, median, spread in parts
        )

    ends = [below(edge) for edge in _EDGES]
    weights = [ends[0], *(later - earlier for earlier, later in pairwise(ends)), _NEVER]
    total = sum(weights)
    return [weight / total for weight in weights]


def _nearness(apart: int) -> float:
    """How much alike two hours are, from `_OTHER_HOUR` to 1."""
    apart = min(apart, 24 - apart)
    return _OTHER_HOUR + (1 - _OTHER_HOUR) * math.exp(-0.5 * (apart / _SAME_HOURS) ** 2)


_LOG_RATIO: Final = math.log(_RATIO)
_PRIORS: Final = tuple(_prior(hour) for hour in range(24))
_NEARNESS: Final = tuple(_nearness(apart) for apart in range(24))
