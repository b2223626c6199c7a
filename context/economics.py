"""Whether a ping pays. Pure; money in USD, times in seconds, sizes in the model's tokens.

While return is certain (a tool, a rate limit, a sub-task) a ping pays whenever it costs less than what is lost without
it. Otherwise keeping on is a stopping problem (design, section 6): ping while what it is expected to save, the best
going-on included, exceeds its price. Source of the multipliers: provider rules 1.2 and 4.3, 2026-12-01.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from context.cache_rules import Ttl
from context.pauses import After, Pauses

Activity = Literal["idle", "question", "tool", "rate_limit", "task"]
Policy = Literal["auto", "off", "always"]

MARGIN_S: Final = 30.0  # left of a lease when a ping goes out: time for two more tries
MARGIN_SHARE: Final = 0.1  # of the time to live, at most
_CERTAIN: Final = frozenset({"tool", "rate_limit", "task"})
_MOST_PINGS: Final = 600  # in one series that is thought through


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
        stop, go = wait_costs(stakes, waited, lambda t: pauses.stays(t, after, hour), limit_s, budget_usd)
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


def margin_of(lease_s: float) -> float:
    """Seconds before the end of a lease at which a ping goes out."""
    return min(MARGIN_S, lease_s * MARGIN_SHARE)


def wait_costs(
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
