"""What `auto` would do if it were told a simulated person's habits: how much of its distance to the bound is chance."""

import random
from bisect import bisect_right

from benchmarks.keepalive.people import Habits
from context.pauses import After, Pauses

_DRAWS = 4_000


class ToldPauses(Pauses):
    """The distribution that `habits` draw from, by as many draws as make it exact enough."""

    def __init__(self, habits: Habits) -> None:
        super().__init__({})
        self._habits = habits
        self._drawn: dict[tuple[After, int], list[float]] = {}

    def stays(self, seconds: float, after: After, hour: int) -> float:
        drawn = self._drawn.get((after, hour))
        if drawn is None:
            drawn = self._drawn[after, hour] = self._draw(after, hour)
        return 1 - bisect_right(drawn, min(seconds, 1e300)) / len(drawn)

    def _draw(self, after: After, hour: int) -> list[float]:
        rng = random.Random(f"{after}/{hour}")
        pauses = (self._habits.pause(rng, after, hour + rng.random()) for _ in range(_DRAWS))
        left_open = 1 - self._habits.closes
        return sorted(float("inf") if p is None else p for p in pauses if p is not None or rng.random() < left_open)
