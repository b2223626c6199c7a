"""Sums over calls in which an unknown summand makes the sum unknown, never smaller (rule R4)."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from agent.ledger_rows import CallRow
from backends.base import Usage


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of calls: tokens and USD. None: at least one call's value is unknown. Start with `Totals()`."""

    calls: int = 0
    fresh: int | None = 0
    cache_read: int | None = 0
    cache_write: int | None = 0
    output: int | None = 0
    cost_usd: Decimal | None = Decimal(0)

    def plus(self, usage: Usage, cost_usd: Decimal | None) -> "Totals":
        return Totals(
            self.calls + 1,
            _sum(self.fresh, usage.fresh),
            _sum(self.cache_read, usage.cache_read),
            _sum(self.cache_write, usage.cache_write),
            _sum(self.output, usage.output),
            None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd,
        )

    @property
    def input_total(self) -> int | None:
        return Usage(self.fresh, self.cache_read, self.cache_write).input_total

    @property
    def hit_rate(self) -> float | None:
        """Share of the input that was read from the cache, 0 to 1; None when unknown or when there was no input."""
        total = self.input_total
        return None if not total or self.cache_read is None else self.cache_read / total


def hit_rate(usage: Usage) -> float | None:
    """Share of one call's input that was read from the cache, 0 to 1."""
    return Totals().plus(usage, None).hit_rate


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def tokens(count: int | None) -> str:
    """A token count for a person."""
    return "unknown" if count is None else f"{count:,}"


def percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"


def money(usd: Decimal | None) -> str:
    """USD for a person: cents from ten dollars on, four decimals below."""
    if usd is None:
        return "unknown price"
    return f"${usd:,.2f}" if usd >= 10 else f"${usd:.4f}"


def total_of(calls: Iterable[CallRow]) -> Totals:
    """Sums over calls.

    A call that was refused before anything was read is not billed, and does not make sums unknown.
    """
    totals = Totals()
    for call in calls:
        if not (call.status == "failed" and call.usage == Usage()):
            totals = totals.plus(call.usage, call.cost_usd)
    return totals
