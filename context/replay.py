"""What a recorded session would have cost under another policy. Pure; money in USD, times in seconds, sizes in tokens.

The cache model is that of `context.cachemodel`, as far as pauses matter: one lease on the head (SYSTEM and PROJECT),
one on everything up to the end of the last request; both begin at the start of the request, or ping, that used them.
A call whose lease holds reads what the last request sent and writes the rest. Head first: the tail lives long only if
the head does (1h before 5m; provider rules 1.2, 2026-12-01). Prefixes below a provider's minimum are not modelled.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from context.cache_rules import CacheRules, Ttl
from context.economics import Activity, Prices, Stakes, keep, margin_of
from context.habits import Habits, expected_growth
from context.pauses import After
from context.ttl import Keeping, TailOutlook, choose_head_ttl, choose_tail_ttl

POLICIES: Final = ("none", "fixed:N", "always", "1h", "auto", "clairvoyant")
_ALWAYS_S: Final = 86_400.0  # "always" gives up after a day: a session that is never opened again must end


@dataclass(frozen=True, slots=True)
class CallShape:
    """`at`: seconds from the start of the turn to that of the request. `input`: all of its input tokens."""

    at: float
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class TurnShape:
    """`seconds`: from its start to its end. `pause`: seconds until the next turn, None: there was none; it begins in
    local hour `hour` (0 to 23) and follows `after`.
    """

    calls: tuple[CallShape, ...]
    seconds: float
    pause: float | None
    after: After
    hour: int


@dataclass(frozen=True, slots=True)
class SessionShape:
    """`head`: tokens of SYSTEM and PROJECT. `one_shot`: nobody answers. `closed`: seconds after the last turn at which
    the program was closed, None: it was left waiting.
    """

    head: int
    turns: tuple[TurnShape, ...]
    one_shot: bool = False
    closed: float | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The whole bill, and its parts in tokens. `pings` are in `usd`; their reads are not in `read`. `cold_turns`: turns
    that found or lost the tail cold, the first not counted.
    """

    usd: float = 0.0
    read: int = 0
    write: int = 0
    write_long: int = 0
    output: int = 0
    pings: int = 0
    ping_usd: float = 0.0
    cold_turns: int = 0


@dataclass(frozen=True, slots=True)
class _Gap:
    """Between the starts of two requests, `seconds` (None: no request follows). The program waits for `open` of them.
    The wait begins `began` seconds after the first request; `activity` is what is waited for.
    """

    seconds: float | None
    open: float
    began: float
    activity: Activity
    after: After
    hour: int


@dataclass(frozen=True, slots=True)
class _Step:
    """A call, the gap behind it, and whether it is the first of its turn."""

    call: CallShape
    gap: _Gap
    opens: bool


@dataclass(slots=True)
class _Cache:
    """Seconds since each lease was used last, at the start of the next request."""

    head: Ttl
    tail: Ttl
    head_age: float = math.inf
    tail_age: float = math.inf


def replay(
    session: SessionShape,
    prices: Prices,
    rules: CacheRules,
    policy: str,
    known: Habits,
    caps: Keeping,
) -> Replayed:
    """The bill of `session` under `policy`, one of `POLICIES`.

    `known` before the session; `caps`: limits on what "auto" does.

    Raises ValueError for an unknown policy.
    """
    kind, most = _parsed(policy)
    steps = _steps(session)
    if kind == "clairvoyant":
        return _clairvoyant(session.head, steps, prices, rules)
    return _Run(session, prices, rules, kind, most, known, caps, list(known.project_gaps)).bill(steps)


_Kind = Literal["none", "fixed", "always", "1h", "auto", "clairvoyant"]


def _parsed(policy: str) -> tuple[_Kind, int]:
    match policy.partition(":"):
        case ("none" | "always" | "1h" | "auto" | "clairvoyant") as kind, "", "":
            return kind, 0
        case "fixed", ":", most if most.isdecimal():
            return "fixed", int(most)
    raise ValueError(f"unknown policy {policy!r}; one of {', '.join(POLICIES)}")


def _steps(session: SessionShape) -> list[_Step]:
    steps = []
    for turn in session.turns:
        for number, call in enumerate(turn.calls):
            if number + 1 < len(turn.calls):
                seconds = turn.calls[number + 1].at - call.at
                gap = _Gap(seconds, seconds, 0.0, "tool", turn.after, turn.hour)
            else:
                began = max(0.0, turn.seconds - call.at)
                ends = None if turn.pause is None else began + turn.pause
                activity: Activity = "question" if turn.after == "question" else "idle"
                gap = _Gap(ends, math.inf if ends is None else ends, began, activity, turn.after, turn.hour)
            steps.append(_Step(call, gap, number == 0))
    if steps:
        last = steps[-1].gap
        waits = math.inf if session.closed is None else last.began + session.closed
        steps[-1] = replace(steps[-1], gap=replace(last, seconds=None, open=waits))
    return steps


@dataclass(slots=True)
class _Run:
    """One session under a policy that does not know the future."""

    session: SessionShape
    prices: Prices
    rules: CacheRules
    kind: _Kind
    most: int  # pings in one wait, of "fixed"
    known: Habits
    caps: Keeping
    head_gaps: list[float]
    growth: list[int] = field(default_factory=list)  # tokens added by each turn so far
    spent: float = 0.0  # USD on pings

    def bill(self, steps: list[_Step]) -> Replayed:
        total, cache, last, opened, cold = Replayed(), _Cache("short", "short"), 0, 0, False
        for number, step in enumerate(steps):
            if step.opens:
                if number:
                    self.growth.append(max(0, last - opened))
                opened, cold = last, False
            call = step.call
            head_warm = self._alive(cache.head, cache.head_age)
            # A prefix that shrank was rewritten: only the head is what it was.
            tail_warm = self._alive(cache.tail, cache.tail_age) and call.input >= last
            if not tail_warm:
                self._choose(cache, call, head_warm, step.gap.hour)
            counted = bool(number) and not tail_warm and not cold
            cold = cold or counted
            head = min(self.session.head, call.input)
            total = _charged(total, self.prices, call, head, last, cache, head_warm, tail_warm, counted)
            pings, since = self._pings(cache.tail, call.input, step.gap)
            paid = pings * self.prices.read * call.input
            self.spent += paid
            total = replace(total, usd=total.usd + paid, pings=total.pings + pings, ping_usd=total.ping_usd + paid)
            if step.gap.seconds is not None:
                cache.head_age = cache.tail_age = step.gap.seconds - since
                self.head_gaps.append(cache.head_age)
            last = call.input
        return total

    def _alive(self, ttl: Ttl, age: float) -> bool:
        seconds = self.rules.ttl(ttl)
        return age < math.inf and (seconds is None or age <= seconds)

    def _choose(self, cache: _Cache, call: CallShape, head_warm: bool, hour: int) -> None:
        """The times to live of what the call writes."""
        if self.kind == "1h":
            cache.head = cache.tail = "long"
        if self.kind != "auto":
            return
        head = min(self.session.head, call.input)
        outlook = TailOutlook(
            call.input - (head if head_warm else 0),
            call.input,
            expected_growth(self.growth),
            self.known.expected_turns,
            hour,
            self.session.one_shot,
        )
        left = max(0.0, self.caps.budget_usd - self.spent)
        cache.tail = choose_tail_ttl(
            outlook, self.prices, self.rules, self.known.pauses, Keeping(self.caps.limit_s, left)
        ).ttl
        if not head_warm:
            chosen = choose_head_ttl(head, self.prices, self.rules, self.head_gaps).ttl
            cache.head = "long" if cache.tail == "long" else chosen
        elif cache.head == "short":
            cache.tail = "short"

    def _pings(self, ttl: Ttl, tokens: int, gap: _Gap) -> tuple[int, float]:
        """Pings in the gap, and when the last was (0: none), in seconds after the request."""
        lease = self.rules.ttl(ttl)
        if lease is None or self.kind in ("none", "1h"):
            return 0, 0.0
        pings, step = 0, lease - margin_of(lease)
        while (pings + 1) * step < gap.open and self._goes_on(ttl, tokens, gap, pings, (pings + 1) * step):
            pings += 1
        return pings, pings * step

    def _goes_on(self, ttl: Ttl, tokens: int, gap: _Gap, pings: int, at: float) -> bool:
        if self.kind == "fixed":
            return pings < self.most
        if self.kind == "always":
            return at < _ALWAYS_S
        lease = self.rules.ttl(ttl) or 0.0
        ping = self.prices.read * tokens
        return keep(
            Stakes(ping, (self.prices.written(ttl) - self.prices.read) * tokens, lease, margin_of(lease)),
            activity=gap.activity,
            waited=max(0.0, at - gap.began),
            after=gap.after,
            hour=gap.hour,
            pauses=self.known.pauses,
            policy="auto",
            limit_s=self.caps.limit_s,
            budget_usd=self.caps.budget_usd - self.spent - pings * ping,
        ).ping


def _charged(
    total: Replayed,
    prices: Prices,
    call: CallShape,
    head: int,
    last: int,
    cache: _Cache,
    head_warm: bool,
    tail_warm: bool,
    counted: bool,
) -> Replayed:
    """`total` and one call. `last`: input tokens of the call before; `counted`: as a cold turn."""
    read = last if tail_warm else head if head_warm else 0
    head_written = 0 if read >= head else head
    tail_written = call.input - read - head_written
    long = (head_written if cache.head == "long" else 0) + (tail_written if cache.tail == "long" else 0)
    short = head_written + tail_written - long
    usd = prices.read * read + prices.write * short + prices.write_long * long + prices.output * call.output
    return replace(
        total,
        usd=total.usd + usd,
        read=total.read + read,
        write=total.write + short,
        write_long=total.write_long + long,
        output=total.output + call.output,
        cold_turns=total.cold_turns + counted,
    )


def _clairvoyant(head_tokens: int, steps: list[_Step], prices: Prices, rules: CacheRules) -> Replayed:
    """The least that the session could have cost: a lower bound of every policy here.

    Exact dynamic programme over the times to live of head and tail. In each gap it keeps the tail, the head alone,
    or neither, with the fewest pings that do it. (Pings of the head alone are nobody's policy; with them the bound
    covers whoever pings for a while and then stops.)
    """
    clocks: tuple[Ttl, ...] = ("short",) if rules.ttl_long is None else ("short", "long")
    pairs = [(head, tail) for head in clocks for tail in clocks if head == "long" or tail == "short"]
    best: dict[tuple[Ttl, Ttl], Replayed] = {}
    last, gap = 0, _Gap(None, 0.0, 0.0, "idle", "answer", 0)
    cold = False
    for number, step in enumerate(steps):
        call = step.call
        head = min(head_tokens, call.input)
        cold = bool(number)
        after: dict[tuple[Ttl, Ttl], Replayed] = {}

        def offer(was: Replayed, to: tuple[Ttl, Ttl], pinged: int, tokens: int, warm: tuple[bool, bool]) -> None:
            paid = pinged * prices.read * tokens
            was = replace(was, usd=was.usd + paid, pings=was.pings + pinged, ping_usd=was.ping_usd + paid)
            counted = cold and not warm[1]  # noqa: B023
            new = _charged(was, prices, call, head, last, _Cache(*to), *warm, counted)  # noqa: B023 - called at once
            if to not in after or new.usd < after[to].usd:  # noqa: B023
                after[to] = new  # noqa: B023

        for (head_ttl, tail_ttl), was in best.items():
            if call.input >= last:
                offer(was, (head_ttl, tail_ttl), _fewest(gap.seconds, rules.ttl(tail_ttl)), last, (True, True))
            for tail in clocks:
                if (head_ttl, tail) in pairs:
                    held = _fewest(gap.seconds, rules.ttl(head_ttl))
                    offer(was, (head_ttl, tail), held, head, (True, False))
            for pair in pairs:
                offer(was, pair, 0, 0, (False, False))
        if not best:
            for pair in pairs:
                offer(Replayed(), pair, 0, 0, (False, False))
        best, last, gap = after, call.input, step.gap
    return min(best.values(), key=lambda done: done.usd, default=Replayed())


def _fewest(seconds: float | None, lease: float | None) -> int:
    """Pings that keep a lease over `seconds`."""
    if seconds is None or lease is None or seconds <= lease:
        return 0
    return math.ceil((seconds - lease) / (lease - margin_of(lease)))
