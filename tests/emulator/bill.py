"""What one request costs, by the emulator's own price table."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from .models import Model

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True)
class Bill:
    """Tokens of one request; the counters do not overlap. `output` is 0 as long as the reply has not ended.

    `write_short`: written for 5m / 30m, `write_long`: for 1h / 12h. `model` is None where nothing has a price.
    """

    fresh: int
    read: int = 0
    write_short: int = 0
    write_long: int = 0
    output: int = 0
    model: Model | None = field(default=None, repr=False)

    @property
    def input_total(self) -> int:
        return self.fresh + self.read + self.write_short + self.write_long

    @property
    def usd(self) -> Decimal | None:
        """The price of all of it; the model's cliff raises the whole request. None: unknown."""
        if self.model is None:
            return None
        price = self.model.price_of(self.input_total)
        return (
            self.fresh * price.fresh
            + self.read * price.read
            + self.write_short * price.write_short
            + self.write_long * price.write_long
            + self.output * price.output
        ) / _MILLION

    def with_output(self, tokens: int) -> "Bill":
        return replace(self, output=tokens)


def _nothing() -> None:
    """Most requests to servers without a cache leave no trace."""


@dataclass(frozen=True)
class Account:
    """A request that was looked up in the cache: its bill, and `begin`, which writes what it writes.

    `begin` is called when the response begins, and not at all when it never does: an entry is usable only from then
    on. `notes` is the API module's own, for the events that it makes (diagnostics, for example).
    """

    bill: Bill
    begin: Callable[[], None] = _nothing
    notes: Any = None
