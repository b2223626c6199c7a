"""When a new epoch is worth it, and when a summary should take the place of the history. Pure; money in USD, sizes in
the model's own tokens.

Both compare what is left of the session as it is with what it would cost rewritten. Reading, writing and output have
their prices per token (design, section 6; multipliers of provider rules 4.2, 2026-12-01).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

_LEAST_SHRINK: Final = 0.1  # below that a rewrite loses reasoning for next to nothing
_READ_AGAIN: Final = 0.25  # of what was taken away, the share that a model is taken to read once more [guess]
_SUMMARY: Final = 2_000  # tokens of output that a summary takes
_INSTRUCTION: Final = 500  # tokens
_WINDOW_SHARE: Final = 0.95  # of the window that may be filled: our count is an estimate
_FLOOR: Final = 100_000  # tokens below which a summary costs more in what is forgotten than it saves
_CLEARLY: Final = 2.0  # a summary must save so many times what it costs
_MOST_TURNS_LEFT: Final = 10
_LEAST_CALLS: Final = 5.0  # in a turn: the median of recorded sessions is above it (reference/workloads)


class Reason(StrEnum):
    """Why an epoch began."""

    COLD = "cold"
    MODEL = "model"
    PRESSURE = "pressure"
    REFRESH = "refresh"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class Tariff:
    """USD per token. `write`: at the short time to live; what an automatic cache takes is its `fresh`."""

    read: float
    write: float
    output: float
    fresh: float


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """`as_is_usd`, `anew_usd`: expected cost of what is left of the session; None: the prices are not known."""

    start: bool
    as_is_usd: float | None
    anew_usd: float | None


def decide_epoch(
    *, tokens: int, folded: int, warm: int, warm_head: int, calls_left: float, tariff: Tariff | None
) -> EpochDecision:
    """Send the prompt as it is, or folded?

    `tokens` as it is, of which `warm` would be read from the cache; `folded` tokens after folding, of which
    `warm_head`. `calls_left`: further calls that the session is expected to make.
    """
    shrinks = folded <= tokens * (1 - _LEAST_SHRINK)
    again = _READ_AGAIN * max(0, tokens - folded)
    if tariff is None:
        as_is, anew = tokens - warm, folded - warm_head + again
        return EpochDecision(shrinks and anew < as_is, None, None)
    as_is_usd = tariff.read * warm + tariff.write * (tokens - warm) + calls_left * tariff.read * tokens
    anew_usd = (
        tariff.read * warm_head
        + tariff.write * (folded - warm_head + again)
        + calls_left * tariff.read * (folded + again)
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


def decide_compaction(
    *,
    tokens: int,
    after: int,
    window: int,
    reply_reserve: int,
    warm: bool,
    calls_left: float,
    tariff: Tariff | None,
    floor: int = _FLOOR,
) -> CompactionDecision:
    """Ask for a summary now?

    `tokens`: all input of the next request, whatever of it is cached. `after`: what the compacted prompt is expected to
    take; `window` of the model, of which the reply needs `reply_reserve`. `warm`: the summary would be made from the
    cache. `calls_left`: further calls that the session is expected to make.
    """
    if tokens + _INSTRUCTION + max(reply_reserve, _SUMMARY) > window * _WINDOW_SHARE:
        return CompactionDecision(True, "window")
    gone = tokens - after
    if tariff is None or tokens < floor or gone <= 0:
        return CompactionDecision(False)
    asked = (tariff.read if warm else tariff.fresh) * tokens + tariff.output * _SUMMARY
    again = _READ_AGAIN * gone
    cost = asked + tariff.write * (after + again)
    saving = calls_left * tariff.read * (gone - again)
    worth = saving > _CLEARLY * cost
    return CompactionDecision(worth, "cost" if worth else None, cost, saving)


def decide_idle_compaction(
    *, tokens: int, after: int, p_return: float, tariff: Tariff | None, floor: int = _FLOOR
) -> CompactionDecision:
    """Ask for a summary before the lease of an idle session runs out?

    Now it is made from the cache; on return, with probability `p_return`, the summary is written anew and not all of
    the history.
    """
    gone = tokens - after
    if tariff is None or tokens < floor or gone <= 0:
        return CompactionDecision(False)
    cost = tariff.read * tokens + tariff.output * _SUMMARY
    saving = p_return * tariff.write * (1 - _READ_AGAIN) * gone
    worth = saving > cost
    return CompactionDecision(worth, "idle" if worth else None, cost, saving)


def expected_calls_left(turns: int, calls_per_turn: float) -> float:
    """Further calls of a session that has had `turns` turns: as many turns again, at least one, at most ten; the longer
    something has lasted, the longer it may be expected to last.
    """
    return max(1, min(turns, _MOST_TURNS_LEFT)) * max(calls_per_turn, _LEAST_CALLS)
