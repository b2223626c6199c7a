"""Whether a ping pays. Pure; money in USD, times in seconds.

While return is certain (a tool, a rate limit, a sub-task) a ping pays whenever it costs less than what is lost without
it. Otherwise keeping on is a stopping problem (design, section 6): ping while what it is expected to save, the best
going-on included, exceeds its price.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from context.pauses import After, Pauses

Activity = Literal["idle", "question", "tool", "rate_limit", "task"]

_CERTAIN: Final = frozenset({"tool", "rate_limit", "task"})
_HORIZON_S: Final = 48 * 3600.0  # further than any series of pings goes


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
    policy: Literal["auto", "off", "always"],
    limit_s: float,
    budget_usd: float,
) -> KeepDecision:
    """Ping now, `waited` seconds into the wait and `margin_s` before the lease ends?

    `limit_s`: how long a wait is covered; `budget_usd`: what pings may still cost.
    """
    price = stakes.ping_usd
    certain = activity in _CERTAIN
    saving = stakes.loss_usd if certain else _saving(stakes, waited, after, hour, pauses)
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


def _saving(stakes: Stakes, waited: float, after: After, hour: int, pauses: Pauses) -> float:
    """What a ping now saves in expectation, with every later one decided in the best way.

    Backward induction over the instants at which pings are due. All costs are weighed with the probability that the
    person is still away; who never comes back loses nothing by a cold cache.
    """
    step = stakes.lease_s - stakes.margin_s
    never = pauses.stays(float("inf"), after, hour)

    def away(seconds: float) -> float:
        return pauses.stays(seconds, after, hour)

    def stop(at: float) -> float:
        return stakes.loss_usd * (away(at + stakes.margin_s) - never)

    here = away(waited)
    if here <= 0 or step <= 0:
        return 0.0
    steps = max(1, int(_HORIZON_S / step))
    later = stop(waited + steps * step)
    for n in range(steps - 1, 0, -1):
        at = waited + n * step
        later = min(stop(at), stakes.ping_usd * away(at) + later)
    return max(0.0, (stop(waited) - later) / here)
