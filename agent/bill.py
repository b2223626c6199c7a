"""What the calls of a turn have cost, and where prices come from."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from agent.ledger_rows import ANSWERED, CallOutcome
from backends.base import Usage

Pricing = Callable[[Usage, datetime], tuple[Decimal | None, str | None]]
"""What a call costs at a time: USD (None: unknown) and where the price is from."""


@dataclass(slots=True)
class Bill:
    """What the calls of a turn have cost, failed and interrupted attempts included.

    `limit_usd`: the most that may be spent. `calls`: replies, finished or cut. `usd` is None as soon as one attempt's
    price is unknown; `known_usd` leaves those out.
    """

    limit_usd: Decimal | None = None
    calls: int = 0
    known_usd: Decimal = Decimal(0)
    usd: Decimal | None = Decimal(0)

    @property
    def exhausted(self) -> bool:
        """Whether nothing more may be spent: the limit is reached, or it cannot be told any more."""
        return self.limit_usd is not None and (self.usd is None or self.known_usd >= self.limit_usd)

    def add_ping(self, usd: Decimal | None) -> None:
        """A call that only wrote or renewed the cache. `usd` None: its price is not known."""
        self.known_usd += usd or Decimal(0)
        self.usd = None if self.usd is None or usd is None else self.usd + usd

    def add(self, outcome: CallOutcome, *, counts: bool = True) -> None:
        """`counts`: whether it is one of the `calls`."""
        if outcome.status in ANSWERED and counts:
            self.calls += 1
        if outcome.status not in ANSWERED and outcome.usage == Usage():
            return  # refused before anything was read: not billed
        self.known_usd += outcome.cost_usd or Decimal(0)
        self.usd = None if self.usd is None or outcome.cost_usd is None else self.usd + outcome.cost_usd
