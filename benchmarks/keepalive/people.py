"""Simulated people and their sessions.

Shapes of turns: medians and tails of public recorded sessions (pi-mono test fixtures). Habits are drawn anew for each
person from wide ranges, which are not those of the product's prior: how fast they answer, how often and how long they
break, when they work, how often they leave a session for good.
"""

import csv
import random
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import cast

from context.pauses import After
from context.replay import CallShape, SessionShape, TurnShape

SESSIONS_EACH = 30
WINDOW = 180_000  # tokens: a session ends there
HOUR = 3600.0
Draw = Callable[[random.Random, After, float], float | None]
"""A pause in seconds (None: nobody comes back), after what, at which local time in hours."""


@dataclass(frozen=True)
class Person:
    name: str
    sessions: tuple[SessionShape, ...]
    habits: "Habits | None" = None


@dataclass(frozen=True)
class Habits:
    """Times in seconds unless told otherwise; shares of pauses."""

    quick: float
    quick_spread: float
    break_share: float
    break_length: float
    away_share: float
    away_length: float
    begins: float  # local hour
    ends: float  # local hour
    leaves: float  # share of pauses after which the session is never opened again
    resumes: float  # of nights, the share after which it goes on
    closes: float  # of the sessions that are left for good, the share that is closed; the others are left waiting

    @classmethod
    def drawn(cls, rng: random.Random) -> "Habits":
        begins = rng.choice((7.5, 8.5, 9.0, 9.5, 10.5, 13.0))
        return cls(
            quick=rng.uniform(12, 80),
            quick_spread=rng.uniform(0.8, 1.3),
            break_share=rng.uniform(0.03, 0.2),
            break_length=rng.uniform(400, 1500),
            away_share=rng.uniform(0.005, 0.05),
            away_length=rng.uniform(3000, 8000),
            begins=begins,
            ends=begins + rng.uniform(7.5, 10.5),
            leaves=rng.uniform(0.03, 0.15),
            resumes=rng.uniform(0.2, 0.8),
            closes=rng.uniform(0.2, 0.9),
        )

    def pause(self, rng: random.Random, after: After, clock: float) -> float | None:
        """`clock`: local time in hours since midnight of the day the session began."""
        leaves = self.leaves * {"answer": 1.2, "question": 0.2, "failed": 0.4}[after]
        if rng.random() < leaves:
            return None
        of_day = clock % 24
        late = of_day >= self.ends % 24 if self.ends < 24 else self.ends % 24 <= of_day < self.begins
        if rng.random() < (0.35 if late else 0.004):
            if rng.random() > self.resumes:
                return None
            return ((self.begins - of_day) % 24 + rng.uniform(0, 1.2)) * HOUR
        breaks = self.break_share * {"answer": 1.1, "question": 0.9, "failed": 0.5}[after]
        away = self.away_share * (3.0 if 11.5 <= of_day < 13.5 else 1.0)
        kind = rng.random()
        if kind < breaks:
            return rng.lognormvariate(log(self.break_length), 0.6)
        if kind < breaks + away:
            return rng.lognormvariate(log(self.away_length), 0.5)
        quick = self.quick * {"answer": 1.2, "question": 0.5, "failed": 0.8}[after]
        return rng.lognormvariate(log(quick), self.quick_spread)


def people(sessions: int, seed: int) -> list[Person]:
    """As many people as have `sessions` sessions between them."""
    found = []
    for number in range(max(1, sessions // SESSIONS_EACH)):
        rng = random.Random(f"{seed}/{number}")
        habits = Habits.drawn(rng)
        name = (
            f"quick {habits.quick:.0f} s, breaks {habits.break_share:.0%} of {habits.break_length / 60:.0f} min,"
            f" leaves {habits.leaves:.0%}"
        )
        shapes = (_session(rng, habits.pause, habits.begins, habits.ends, habits.closes) for _ in range(SESSIONS_EACH))
        found.append(Person(f"{number:>2} {name}"[:42], tuple(shapes), habits))
    return found


def from_file(path: Path, sessions: int, seed: int) -> list[Person]:
    """People who all pause like the file; they differ in how many turns they have."""
    with path.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        pauses = [float(row["pause_s"]) for row in rows]
    found = []
    for number in range(max(1, sessions // SESSIONS_EACH)):
        rng = random.Random(f"{seed}/file/{number}")
        leaves, closes = rng.uniform(0.03, 0.15), rng.uniform(0.2, 0.9)

        def pause(rng: random.Random, after: After, clock: float, leaves: float = leaves) -> float | None:
            return None if rng.random() < leaves else rng.choice(pauses)

        shapes = tuple(_session(rng, pause, 9, 17, closes) for _ in range(SESSIONS_EACH))
        found.append(Person(f"{number:>2} as in the file, leaves {leaves:.0%}", shapes))
    return found


def _session(rng: random.Random, pause: Draw, begins: float, ends: float, closes: float) -> SessionShape:
    head = rng.randint(5_000, 15_000)
    clock, tokens = rng.uniform(begins, ends), head
    turns = []
    while True:
        calls, seconds, tokens = _turn(rng, tokens)
        clock += seconds / HOUR
        after = cast(After, rng.choices(("answer", "question", "failed"), (0.7, 0.2, 0.1))[0])
        away = pause(rng, after, clock) if tokens < WINDOW else None
        turns.append(TurnShape(calls, seconds, away, after, int(clock % 24)))
        if away is None:
            closed = rng.lognormvariate(log(60), 1.0) if rng.random() < closes else None
            return SessionShape(head, tuple(turns), closed=closed)
        clock += away / HOUR


def _turn(rng: random.Random, tokens: int) -> tuple[tuple[CallShape, ...], float, int]:
    """Its calls, its seconds, and the tokens of the conversation behind it."""
    calls, at = [], 0.0
    tokens += 5 + int(rng.lognormvariate(log(16), 1.2))  # the person's message
    for _ in range(min(73, max(1, round(rng.lognormvariate(log(3), 1.2))))):
        output = 1 + int(min(16_000, rng.lognormvariate(log(100), 1.4)))
        calls.append(CallShape(at, tokens, output))
        at += 2 + output / 60  # until the reply is there
        tool = rng.lognormvariate(log(400), 0.8) if rng.random() < 0.01 else rng.lognormvariate(log(1), 1.3)
        at += min(tool, 3 * HOUR)
        tokens += output + 20 + int(min(12_500, rng.lognormvariate(log(60), 1.9)))
    return tuple(calls), at, tokens
