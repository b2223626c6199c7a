"""What a budget allows: whether a call may begin, and when to warn. Pure; money in USD.

A budget is a limit on what the calls and pings of one session, or of one day, may cost together.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final, Literal

BudgetScope = Literal["session", "day"]

_WARN_AT: Final = Decimal("0.8")  # share of the limit


@dataclass(frozen=True, slots=True)
class Spend:
    """One call or ping that began `at` (seconds since the epoch).

    `usd`: its bill; where none has come (it is under way, or was cut) what its input was expected to cost, which is the
    least. None: its price is not known. `billed`: whether it is the bill.
    """

    session: str
    at: float
    usd: Decimal | None
    billed: bool = True


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # four fifths are spent
    STOP = "stop"  # all of it is spent, or it cannot be told any more


@dataclass(frozen=True, slots=True)
class Budget:
    """`spent`: what is known; of it `unbilled` are expectations. `unpriced`: calls of unknown price, which are not in
    it.
    """

    scope: BudgetScope
    limit: Decimal
    spent: Decimal = Decimal(0)
    unbilled: Decimal = Decimal(0)
    unpriced: int = 0

    @classmethod
    def of(cls, scope: BudgetScope, limit: Decimal, spends: Iterable[Spend]) -> "Budget":
        spent = unbilled = Decimal(0)
        unpriced = 0
        for spend in spends:
            spent += spend.usd or 0
            unbilled += 0 if spend.billed or spend.usd is None else spend.usd
            unpriced += spend.usd is None
        return cls(scope, limit, spent, unbilled, unpriced)

    @property
    def level(self) -> Level:
        if self.unpriced or self.spent >= self.limit:
            return Level.STOP
        return Level.WARN if self.spent >= self.limit * _WARN_AT else Level.OK

    @property
    def left(self) -> Decimal:
        """What may still be spent. Nothing, where it cannot be told."""
        return Decimal(0) if self.unpriced else max(Decimal(0), self.limit - self.spent)

    def exceeded_by(self, expected: Decimal | None) -> bool:
        """Whether a call whose input is expected to cost so much (None: unknown) would spend more than is left."""
        return expected is not None and expected > self.left
