"""Which time to live each layer asks for. Pure; money in USD, times in seconds, sizes in the model's tokens.

The long one is written dearer (Anthropic 2 against 1.25, OpenAI 2.5 against 1.25; provider rules 4.2, 2026-12-01) and
needs fewer pings, or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from context.cache_rules import CacheRules, Ttl
from context.economics import Policy, Prices, Stakes, margin_of, wait_costs
from context.pauses import Pauses

_GROWTH: Final = 4_000.0  # tokens added by a turn before any is known [guess]
_GROWTH_WORTH: Final = 2.0  # turns that this counts as
_TURNS: Final = 8.0  # of a session before any is known [guess]
_TURNS_WORTH: Final = 3.0  # sessions that this counts as


@dataclass(frozen=True, slots=True)
class TtlChoice:
    """`short_usd`, `long_usd`: what each is expected to cost. `reason`: one line for the person."""

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
    later turn adds, `turns` how many there will be. `one_shot`: nobody answers, so there are no pauses but those of
    tools.
    """

    written: float
    prefix: float
    per_turn: float
    turns: float
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


def expected_turns(seen: Sequence[int]) -> float:
    """Turns that a session will have, from how many this person's sessions had; and as many again, however long it has
    lasted.
    """
    return (_TURNS * _TURNS_WORTH + sum(seen)) / (_TURNS_WORTH + len(seen))


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
    per_token = 0.0  # of one wait; costs are in proportion to the prefix
    stakes = Stakes(prices.read, write - prices.read, lease_s, margin_of(lease_s))
    mean_prefix = outlook.prefix + outlook.per_turn * outlook.turns
    due = lease_s - stakes.margin_s
    for after, share in shares.items():
        stop, go = wait_costs(
            stakes,
            due,
            lambda t, after=after: pauses.stays(t, after, outlook.hour),  # type: ignore[misc]
            limit_s if policy == "auto" else 0.0,
            budget_usd / mean_prefix,
        )
        per_token += share * min(stop, go)
    return write * (outlook.written + outlook.per_turn * (outlook.turns - 1)) + per_token * mean_prefix * outlook.turns


def _span(seconds: float) -> str:
    return f"{seconds / 3600:g}h" if seconds >= 3600 else f"{seconds / 60:g}m"
