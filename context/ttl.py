"""Which time to live each layer asks for. Pure; money in USD, times in seconds, sizes in the model's tokens.

The long one is written dearer (Anthropic 2 against 1.25, OpenAI 2.5 against 1.25; provider rules 4.2, 2026-12-01) and
needs fewer pings, or none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from context.block import Layer
from context.cache_rules import CacheRules, Ttl
from context.economics import Prices, Stakes, margin_of, wait_costs
from context.habits import Habits
from context.pauses import After, Pauses

_TTLS: Final[tuple[Ttl, ...]] = get_args(Ttl)


@dataclass(frozen=True, slots=True)
class TtlChoice:
    """`reason`: one line for the person."""

    ttl: Ttl
    reason: str


@dataclass(frozen=True, slots=True)
class Keeping:
    """How the tail will be kept warm: how long one wait is covered (0: not at all), and what pings may cost."""

    limit_s: float
    budget_usd: float


def choose_head_ttl(tokens: int, prices: Prices, rules: CacheRules, gaps: Sequence[float]) -> TtlChoice:
    """The time to live of a part of the head, `tokens` long.

    `gaps`: seconds between two uses of it so far (calls and pings are uses). Each gap longer than the time to live
    costs one more write. Without gaps nothing is known: short.
    """
    short, long = rules.ttl_short, rules.ttl_long
    if short is None or long is None:
        return _ONE_LIFE
    lost_short = sum(gap > short for gap in gaps)
    lost_long = sum(gap > long for gap in gaps)
    short_usd = tokens * (prices.write + (prices.write - prices.read) * lost_short)
    long_usd = tokens * (prices.write_long + (prices.write_long - prices.read) * lost_long)
    told = f"{lost_short - lost_long} of {len(gaps)} gaps between two uses were {_span(short)} to {_span(long)}"
    if long_usd < short_usd:
        return TtlChoice("long", f"{told}: the dearer write pays")
    return TtlChoice("short", f"{told}: the dearer write would not pay")


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
    keeping: Keeping,
) -> TtlChoice:
    """The time to live of HISTORY and COMMAND for a new epoch: the cheaper one, with the best pings for each.

    For a whole epoch: that a prefix written short lives long once a long marker stands behind it is not documented
    (provider rules 1.2, 2026-12-01).
    """
    if rules.ttl_short is None or rules.ttl_long is None:
        return _ONE_LIFE
    if outlook.one_shot:
        return TtlChoice("short", "one task, no pauses: a dearer write would not pay")
    costs = {
        ttl: _tail_cost(outlook, prices.written(ttl), seconds, prices.read, pauses, keeping)
        for ttl, seconds in _lives(rules)
    }
    told = ", ".join(f"{_span(seconds)} ${costs[ttl]:.3f}" for ttl, seconds in _lives(rules))
    return TtlChoice(min(costs, key=lambda ttl: costs[ttl]), f"expected for writes, pings and losses: {told}")


def choose_layers(
    head: tuple[int, int],
    outlook: TailOutlook,
    habits: Habits,
    prices: Prices | None,
    rules: CacheRules,
    keeping: Keeping,
    warm: Mapping[Layer, Ttl],
) -> dict[Layer, TtlChoice]:
    """A choice for SYSTEM, PROJECT and HISTORY (which is COMMAND's too).

    `head`: tokens of SYSTEM and of PROJECT. `prices` None: unknown. `warm`: the layers whose prefix is in the cache,
    and how it was written there: it stays as it is. A longer time to live may not follow a shorter one (provider rules
    1.2, 2026-12-01).
    """
    if prices is None:
        return dict.fromkeys((Layer.SYSTEM, Layer.PROJECT, Layer.HISTORY), TtlChoice("short", "the price is not known"))
    choices: dict[Layer, TtlChoice] = {}

    def settle(layer: Layer, fresh: TtlChoice) -> None:
        if layer in warm:
            fresh = TtlChoice(warm[layer], "warm: it stays as it was written")
        elif any(choice.ttl == "long" for choice in choices.values()):
            fresh = TtlChoice("long", "what follows it is to live long")
        choices[layer] = fresh

    tail = choose_tail_ttl(outlook, prices, rules, habits.pauses, keeping)
    if tail.ttl == "long" and "short" in (warm.get(Layer.SYSTEM), warm.get(Layer.PROJECT)):
        tail = TtlChoice("short", "what it follows is warm and lives short")
    settle(Layer.HISTORY, tail)
    settle(Layer.PROJECT, choose_head_ttl(head[1], prices, rules, habits.project_gaps))
    settle(Layer.SYSTEM, choose_head_ttl(head[0], prices, rules, habits.system_gaps))
    return choices


def _tail_cost(
    outlook: TailOutlook, write: float, lease_s: float, read: float, pauses: Pauses, keeping: Keeping
) -> float:
    """USD of what differs between the times to live: the writes, and each wait decided in the best way."""
    stakes = Stakes(read, write - read, lease_s, margin_of(lease_s))  # of one token: costs are in proportion
    # Turns are geometrically distributed, so the mean prefix of a wait is that after as many turns as are expected.
    prefix, per_token = outlook.prefix + outlook.per_turn * outlook.turns, 0.0
    for after, share in pauses.shares().items():

        def away(seconds: float, after: After = after) -> float:
            return pauses.stays(seconds, after, outlook.hour)

        due = lease_s - stakes.margin_s
        per_token += share * min(wait_costs(stakes, due, away, keeping.limit_s, keeping.budget_usd / prefix))
    return write * (outlook.written + outlook.per_turn * (outlook.turns - 1)) + per_token * prefix * outlook.turns


def _lives(rules: CacheRules) -> list[tuple[Ttl, float]]:
    return [(name, seconds) for name in _TTLS if (seconds := rules.ttl(name)) is not None]


def _span(seconds: float) -> str:
    return f"{seconds / 3600:g}h" if seconds >= 3600 else f"{seconds / 60:g}m"


_ONE_LIFE: Final = TtlChoice("short", "this cache has one time to live")
