"""Whether a ping pays, and which time to live. Pure; money in USD, times in seconds, sizes in the model's tokens.

While return is certain (a tool, a rate limit, a sub-task) a ping pays whenever it costs less than what is lost without
it. Otherwise keeping on is a stopping problem (design, section 6): ping while what it is expected to save, the best
going-on included, exceeds its price. Source of the multipliers: provider rules 1.2 and 4.3, 2026-12-01.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from context.cache_rules import CacheRules, Ttl
from context.pauses import After, Pauses

Activity = Literal["idle", "question", "tool", "rate_limit", "task"]
Policy = Literal["auto", "off", "always"]

MARGIN: Final = 0.1  # of the time to live that is left when a ping goes out: time for two more tries
_CERTAIN: Final = frozenset({"tool", "rate_limit", "task"})
_MOST_PINGS: Final = 600  # in one series that is thought through
_MOST_TURNS: Final = 40
_GROWTH: Final = 4_000.0  # tokens added by a turn before any is known [guess]
_GROWTH_WORTH: Final = 2.0  # turns that this counts as


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per token. An automatic cache's `write` and `write_long` are its `fresh`."""

    fresh: float
    read: float
    write: float
    write_long: float
    output: float

    def written(self, ttl: Ttl) -> float:
        return self.write_long if ttl == "long" else self.write


@dataclass(frozen=True, slots=True)
class Stakes:
    """`ping_usd`: one ping. `loss_usd`: what is paid more on return when the lease is gone. `lease_s`: time to live;
    a ping goes out `margin_s` before its end.
    """

    ping_usd: float
    loss_usd: float
    lease_s: float
    margin_s: float


class Why(StrEnum):
    CERTAIN = "certain"  # return is certain, and a ping costs less than a loss
    PAYS = "pays"  # it is expected to save more than it costs
    ALWAYS = "always"  # the person wants it so
    STOPPED = "stopped"  # it is not expected to save what it costs
    TIME = "time"  # the wait is longer than is to be covered
    BUDGET = "budget"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class KeepDecision:
    """`saving_usd`: what going on in the best way is expected to save, before `price_usd`, which is this ping's."""

    ping: bool
    why: Why
    saving_usd: float
    price_usd: float


def keep(
    stakes: Stakes,
    *,
    activity: Activity,
    waited: float,
    after: After,
    hour: int,
    pauses: Pauses,
    policy: Policy,
    limit_s: float,
    budget_usd: float,
) -> KeepDecision:
    """Ping now, `waited` seconds into the wait and `margin_s` before the lease ends?

    `limit_s`: how long a wait is covered; `budget_usd`: what pings may still cost.
    """
    price = stakes.ping_usd
    certain = activity in _CERTAIN
    if certain:
        saving = stakes.loss_usd
    else:
        stop, go = _wait_costs(stakes, waited, lambda t: pauses.stays(t, after, hour), limit_s, budget_usd)
        here = pauses.stays(waited, after, hour)
        saving = max(0.0, (stop - go) / here + price) if here > 0 and go < math.inf else 0.0
    if policy == "off":
        return KeepDecision(False, Why.OFF, saving, price)
    if waited > limit_s:
        return KeepDecision(False, Why.TIME, saving, price)
    if price > budget_usd:
        return KeepDecision(False, Why.BUDGET, saving, price)
    if policy == "always":
        return KeepDecision(True, Why.ALWAYS, saving, price)
    if saving <= price:
        return KeepDecision(False, Why.STOPPED, saving, price)
    return KeepDecision(True, Why.CERTAIN if certain else Why.PAYS, saving, price)


def _wait_costs(
    stakes: Stakes, due: float, away: Callable[[float], float], limit_s: float, budget_usd: float
) -> tuple[float, float]:
    """Expected cost of letting the lease go at `due`, and of a ping then followed by the best: both weighed with the
    probability of being away at all.

    Backward induction over the instants at which pings are due. With A(t) = P(away after t), N = P(never back):
    stop(t) = loss * (A(t + margin) - N); go(t) = ping * A(t) + min(stop(t + step), go(t + step)). Who never comes back
    loses nothing by a cold cache. A series that costs more than the loss cannot pay: that bounds the horizon.
    """
    step = stakes.lease_s - stakes.margin_s
    never = away(math.inf)

    def stop(at: float) -> float:
        return stakes.loss_usd * max(0.0, away(at + stakes.margin_s) - never)

    allowed = _MOST_PINGS
    if stakes.ping_usd > 0:
        allowed = int(min(allowed, stakes.loss_usd / stakes.ping_usd + 1, budget_usd / stakes.ping_usd))
    if due > limit_s or step <= 0 or allowed < 1:
        return stop(due), math.inf
    allowed = int(min(allowed, (limit_s - due) // step + 1))
    go, later = math.inf, stop(due + allowed * step)
    for n in range(allowed - 1, -1, -1):
        at = due + n * step
        go = stakes.ping_usd * away(at) + later
        later = min(stop(at), go)
    return stop(due), go


@dataclass(frozen=True, slots=True)
class TtlChoice:
    """`short_usd`, `long_usd`: what each is expected to cost. `reason`: one line for the person.

    Only `context.replay` chooses by it so far; what is sent takes the setting `cache_ttl`.
    """

    ttl: Ttl
    short_usd: float
    long_usd: float
    reason: str


def choose_head_ttl(tokens: int, prices: Prices, rules: CacheRules, gaps: Sequence[float]) -> TtlChoice:
    """The time to live of SYSTEM and PROJECT, `tokens` long.

    `gaps`: seconds between uses of this head so far, across sessions of this repository (calls and pings are uses).
    Each gap longer than the time to live costs one more write. Without gaps nothing is known: short.
    """
    short, long = rules.ttl_short, rules.ttl_long
    if short is None or long is None:
        return TtlChoice("short", 0.0, 0.0, "this cache has one time to live")
    lost_short = sum(gap > short for gap in gaps)
    lost_long = sum(gap > long for gap in gaps)
    short_usd = tokens * (prices.write + (prices.write - prices.read) * lost_short)
    long_usd = tokens * (prices.write_long + (prices.write_long - prices.read) * lost_long)
    told = f"{lost_short - lost_long} of {len(gaps)} gaps between {_span(short)} and {_span(long)}"
    if long_usd < short_usd:
        return TtlChoice("long", short_usd, long_usd, f"{told}: the dearer write pays")
    return TtlChoice("short", short_usd, long_usd, f"{told}: the dearer write would not pay")


@dataclass(frozen=True, slots=True)
class TailOutlook:
    """What the rest of an epoch is expected to hold.

    `written`: tokens that the first call of the epoch writes; `prefix`: all of its input. `per_turn`: tokens that each
    later turn adds. `one_shot`: nobody answers, so there are no pauses but those of tools.
    """

    written: float
    prefix: float
    per_turn: float
    hour: int
    one_shot: bool = False


def choose_tail_ttl(
    outlook: TailOutlook,
    prices: Prices,
    rules: CacheRules,
    pauses: Pauses,
    *,
    policy: Policy = "auto",
    limit_s: float,
    budget_usd: float,
) -> TtlChoice:
    """The time to live of HISTORY and COMMAND for a new epoch: the cheaper one, with the best pings for each.

    For a whole epoch: that a prefix written short lives long once a long marker stands behind it is not documented
    (provider rules 1.2, 2026-12-01).
    """
    if rules.ttl_short is None or rules.ttl_long is None:
        return TtlChoice("short", 0.0, 0.0, "this cache has one time to live")
    if outlook.one_shot:
        return TtlChoice("short", 0.0, 0.0, "one task, no pauses: a dearer write would not pay")
    costs = {
        ttl: _tail_cost(outlook, ttl, seconds, prices, pauses, policy, limit_s, budget_usd)
        for ttl, seconds in (("short", rules.ttl_short), ("long", rules.ttl_long))
    }
    names = f"{_span(rules.ttl_short)} ${costs['short']:.3f}, {_span(rules.ttl_long)} ${costs['long']:.3f}"
    ttl: Ttl = "long" if costs["long"] < costs["short"] else "short"
    return TtlChoice(ttl, costs["short"], costs["long"], f"expected for writes, pings and losses: {names}")


def expected_growth(seen: Sequence[int]) -> float:
    """Tokens that the next turns of a session will add each, from what its turns added so far."""
    return (_GROWTH * _GROWTH_WORTH + sum(seen)) / (_GROWTH_WORTH + len(seen))


def _tail_cost(
    outlook: TailOutlook,
    ttl: str,
    lease_s: float,
    prices: Prices,
    pauses: Pauses,
    policy: Policy,
    limit_s: float,
    budget_usd: float,
) -> float:
    """USD of what differs between the times to live: the writes, and each wait decided in the best way."""
    write = prices.written("long" if ttl == "long" else "short")
    shares = pauses.shares()
    never = sum(share * pauses.stays(math.inf, after, outlook.hour) for after, share in shares.items())
    turns = min(_MOST_TURNS, 1 / never) if never > 0 else _MOST_TURNS
    per_token = 0.0  # of one wait; costs are in proportion to the prefix
    stakes = Stakes(prices.read, write - prices.read, lease_s, lease_s * MARGIN)
    mean_prefix = outlook.prefix + outlook.per_turn * turns / 2
    due = lease_s - stakes.margin_s
    for after, share in shares.items():
        stop, go = _wait_costs(
            stakes,
            due,
            lambda t, after=after: pauses.stays(t, after, outlook.hour),  # type: ignore[misc]
            limit_s if policy == "auto" else 0.0,
            budget_usd / mean_prefix,
        )
        per_token += share * min(stop, go)
    return write * (outlook.written + outlook.per_turn * (turns - 1)) + per_token * mean_prefix * turns


def _span(seconds: float) -> str:
    return f"{seconds / 3600:g}h" if seconds >= 3600 else f"{seconds / 60:g}m"
