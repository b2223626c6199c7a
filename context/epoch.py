"""When a new epoch is worth it, and when a summary should take the place of the history. Pure; money in USD, sizes in
the model's own tokens.

Both compare what is left of the session as it is with what it would cost rewritten. Reading, writing and output have
their prices per token (design, section 6; multipliers of provider rules 4.2, 2026-12-01).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from context.economics import Prices

_LEAST_SHRINK: Final = 10  # a tenth: below that a rewrite loses reasoning for next to nothing
_READ_AGAIN: Final = 0.25  # of what was taken away, the share that a model is taken to read once more [guess]
_SUMMARY: Final = 2_000  # tokens of output that a summary takes
_INSTRUCTION: Final = 500  # tokens
_WINDOW_SHARE: Final = 0.95  # of the window that may be filled: our count is an estimate
_FLOOR: Final = 100_000  # tokens below which a summary costs more in what is forgotten than it saves
_CLEARLY: Final = 2.0  # a summary must save so many times what it costs
_MOST_TURNS_LEFT: Final = 10
_LEAST_CALLS: Final = 3.0  # in a turn: median of 143 in public recorded sessions (pi-mono test fixtures)


class Reason(StrEnum):
    """Why an epoch began."""

    COLD = "cold"
    MODEL = "model"
    PRESSURE = "pressure"
    REFRESH = "refresh"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """`as_is_usd`, `anew_usd`: expected cost of what is left of the session; None: the prices are not known."""

    start: bool
    as_is_usd: float | None
    anew_usd: float | None


def decide_epoch(
    *, tokens: int, folded: int, warm: int, warm_head: int, calls_left: float, prices: Prices | None
) -> EpochDecision:
    """Send the prompt as it is, or folded?

    `tokens` as it is, of which `warm` would be read from the cache; `folded` tokens after folding, of which
    `warm_head`. `calls_left`: further calls that the session is expected to make.
    """
    shrinks = _LEAST_SHRINK * (tokens - folded) >= tokens > 0
    again = _READ_AGAIN * max(0, tokens - folded)
    if prices is None:
        as_is, anew = tokens - warm, folded - warm_head + again
        return EpochDecision(shrinks and anew < as_is, None, None)
    as_is_usd = prices.read * warm + prices.write * (tokens - warm) + calls_left * prices.read * tokens
    anew_usd = (
        prices.read * warm_head
        + prices.write * (folded - warm_head + again)
        + calls_left * prices.read * (folded + again)
    )
    return EpochDecision(shrinks and anew_usd < as_is_usd, as_is_usd, anew_usd)


@dataclass(frozen=True, slots=True)
class CompactionDecision:
    """`why`: the window is full ("window"), carrying the history is dearer than a summary ("cost"), the session will be
    cold when its person comes back ("idle"). Costs in USD; None: the prices are not known, or do not matter.
    """

    compact: bool
    why: Literal["window", "cost", "idle"] | None = None
    cost_usd: float | None = None
    saving_usd: float | None = None


def is_full(tokens: int, window: int, reply_reserve: int) -> bool:
    """Whether a request of `tokens` leaves too little of the `window` for the reply, or for a summary."""
    return tokens + _INSTRUCTION + max(reply_reserve, _SUMMARY) > window * _WINDOW_SHARE


def decide_compaction(
    *,
    tokens: int,
    after: int,
    window: int,
    reply_reserve: int,
    warm: bool,
    calls_left: float,
    prices: Prices | None,
    floor: int = _FLOOR,
) -> CompactionDecision:
    """Ask for a summary now?

    `tokens`: all input of the next request, whatever of it is cached. `after`: what the compacted prompt is expected to
    take; `window` of the model, of which the reply needs `reply_reserve`. `warm`: the summary would be made from the
    cache; when it would not, the next request would have to write the history anyway. `calls_left`: further calls that
    the session is expected to make.
    """
    if is_full(tokens, window, reply_reserve):
        return CompactionDecision(True, "window")
    gone = tokens - after
    if prices is None or tokens < floor or gone <= 0:
        return CompactionDecision(False)
    asked = (prices.read if warm else prices.fresh) * tokens + prices.output * _SUMMARY
    again = _READ_AGAIN * gone
    cost = asked + prices.write * (after + again)
    saving = (calls_left * prices.read + (0.0 if warm else prices.write)) * (gone - again)
    worth = saving > _CLEARLY * cost
    return CompactionDecision(worth, "cost" if worth else None, cost, saving)


def decide_idle_compaction(
    *, tokens: int, folded: int, after: int, p_return: float, prices: Prices | None, floor: int = _FLOOR
) -> CompactionDecision:
    """Ask for a summary before the lease of an idle session runs out?

    Now it is made from the cache, by a request of `tokens`; on return, with probability `p_return`, the summary is
    written anew, and not what folding would leave of the history (`folded` tokens): that costs nothing then.
    """
    gone = folded - after
    if prices is None or tokens < floor or gone <= 0:
        return CompactionDecision(False)
    cost = prices.read * tokens + prices.output * _SUMMARY
    saving = p_return * prices.write * (1 - _READ_AGAIN) * gone
    worth = saving > cost
    return CompactionDecision(worth, "idle" if worth else None, cost, saving)


def expected_calls_left(turns_so_far: int, calls_per_turn: float) -> float:
    """Further calls of a session: as many turns again as there were, at least one and at most ten (the longer something
    has lasted, the longer it may be expected to last), each with as many calls as the turns so far, or the median.
    """
    return max(1, min(turns_so_far, _MOST_TURNS_LEFT)) * max(calls_per_turn, _LEAST_CALLS)
