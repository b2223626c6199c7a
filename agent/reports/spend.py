"""What calls have cost: tokens and money of each counter, what caching saved, and what misses lost.

Sums leave out what is unknown and say how much that is (rule R4). The parts of a sum of money are the ledger's own
bills, split by today's prices: they always add to what was billed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from agent.cost_record import CELL_S, Cell, Count
from agent.ledger_rows import CallRow
from agent.ping_record import Ping
from agent.rates import Rates
from backends.base import Usage
from backends.llama.models import is_local
from context.attribution import InputBill, split
from context.forecast import Cause

COUNTERS: Final = ("fresh", "cache_read", "write_short", "write_long", "output")
"""Each token of a call is in exactly one of these; `reasoning` is part of `output`."""
_NO_LOSS: Final = (None, Cause.NONE, Cause.FIRST)


@dataclass(frozen=True, slots=True)
class Sum:
    """Tokens or USD: `known`, with `unknown` summands left out."""

    known: Decimal = Decimal(0)
    unknown: int = 0

    def plus(self, known: Decimal | int, unknown: int = 0) -> "Sum":
        return Sum(self.known + known, self.unknown + unknown)

    @property
    def value(self) -> Decimal | None:
        """None: not all of it is known."""
        return None if self.unknown else self.known


@dataclass(slots=True)
class Spend:
    """Start with `Spend()` and add to it. `tokens` and `usd` by counter (USD of what a price is known for); `cost` is
    the bill, of which pings are a part; `saved` against no caching at all; `lost` by cause: tokens, and what they cost
    above the price of a read. `local_s`: seconds that a local model worked.
    """

    calls: int = 0
    tokens: dict[str, Sum] = field(default_factory=lambda: {name: Sum() for name in (*COUNTERS, "reasoning")})
    usd: dict[str, Sum] = field(default_factory=lambda: {name: Sum() for name in COUNTERS})
    cost: Sum = field(default_factory=Sum)
    pings: int = 0
    pings_usd: Sum = field(default_factory=Sum)
    saved: Sum = field(default_factory=Sum)
    lost: dict[str, tuple[int, Sum]] = field(default_factory=dict)
    local_s: float = 0.0

    @property
    def input(self) -> Sum:
        total = Sum()
        for name in COUNTERS[:-1]:
            total = total.plus(self.tokens[name].known, self.tokens[name].unknown)
        return total

    @property
    def hit_rate(self) -> float | None:
        """Share of the input that was read from the cache, 0 to 1; None: unknown, or there was no input."""
        total = self.input
        return None if total.unknown or not total.known else float(self.tokens["cache_read"].known / total.known)

    @property
    def lost_usd(self) -> Sum:
        total = Sum()
        for _, usd in self.lost.values():
            total = total.plus(usd.known, usd.unknown)
        return total

    def add(self, cell: Cell, rates: Rates | None) -> None:
        """Calls. `rates` None: not known."""
        self.calls += cell.calls
        self.local_s += cell.seconds if is_local(cell.model) else 0.0
        counts = _counts(cell)
        for name, count in (*counts.items(), ("reasoning", cell.reasoning)):
            self.tokens[name] = self.tokens[name].plus(count.known, count.unknown)
        self.cost = self.cost.plus(cell.usd, cell.unpriced)
        parts = money_by_counter(cell, rates)
        for name in COUNTERS:
            self.usd[name] = self.usd[name].plus(parts[name] if parts else 0, cell.unpriced if parts else cell.calls)
        self._save(cell, rates, parts)
        self._lose(cell, rates, parts)

    def add_ping(self, ping: Ping) -> None:
        """A call that only renewed the cache. One that failed costs nothing; the bill of a cancelled one never came."""
        if ping.status != "failed":
            self.add_pings(1, ping.cost_usd or Decimal(0), 1 if ping.cost_usd is None else 0)

    def add_pings(self, count: int, usd: Decimal, unknown: int) -> None:
        """`count` of them, `unknown` of them of unknown price."""
        self.pings += count
        self.pings_usd = self.pings_usd.plus(usd, unknown)
        self.cost = self.cost.plus(usd, unknown)

    def add_part(self, part: InputBill) -> None:
        """A part of the input of a call."""
        order = ("cache_read", "write_long", "write_short", "fresh")
        for name, tokens, usd in zip(order, part.tokens, part.usd, strict=True):
            self.tokens[name] = self.tokens[name].plus(tokens)
            self.usd[name] = self.usd[name].plus(usd)
            self.cost = self.cost.plus(usd)

    def add_output(self, tokens: int, reasoning: Count, usd: Decimal) -> None:
        """The output of a call."""
        self.tokens["output"] = self.tokens["output"].plus(tokens)
        self.tokens["reasoning"] = self.tokens["reasoning"].plus(reasoning.known, reasoning.unknown)
        self.usd["output"] = self.usd["output"].plus(usd)
        self.cost = self.cost.plus(usd)

    def merge(self, other: "Spend") -> None:
        """Add all of `other`."""
        self.calls += other.calls
        self.pings += other.pings
        self.local_s += other.local_s
        for sums, more in ((self.tokens, other.tokens), (self.usd, other.usd)):
            for name, each in more.items():
                sums[name] = sums[name].plus(each.known, each.unknown)
        self.cost = self.cost.plus(other.cost.known, other.cost.unknown)
        self.pings_usd = self.pings_usd.plus(other.pings_usd.known, other.pings_usd.unknown)
        self.saved = self.saved.plus(other.saved.known, other.saved.unknown)
        for cause, (tokens, usd) in other.lost.items():
            before, lost = self.lost.get(cause, (0, Sum()))
            self.lost[cause] = (before + tokens, lost.plus(usd.known, usd.unknown))

    def _save(self, cell: Cell, rates: Rates | None, parts: Mapping[str, Decimal] | None) -> None:
        known = not cell.unpriced and not any(count.unknown for count in _counts(cell).values())
        if not known or parts is None or rates is None or rates.fresh is None:
            self.saved = self.saved.plus(0, cell.calls)
            return
        paid = sum((parts[name] for name in COUNTERS[:-1]), Decimal(0))
        self.saved = self.saved.plus(cell.input * rates.fresh - paid)

    def _lose(self, cell: Cell, rates: Rates | None, parts: Mapping[str, Decimal] | None) -> None:
        if cell.cause in _NO_LOSS or not cell.missed:
            return
        cause = cell.cause or Cause.UNKNOWN
        tokens, usd = self.lost.get(cause, (0, Sum()))
        sent = cell.input - cell.cache_read.known
        if parts is None or rates is None or rates.cache_read is None or not sent:
            usd = usd.plus(0, cell.calls)
        else:
            paid = (parts["fresh"] + parts["write_short"] + parts["write_long"]) / sent
            usd = usd.plus(cell.missed * max(paid - rates.cache_read, Decimal(0)))
        self.lost[cause] = (tokens + cell.missed, usd)


def money_by_counter(cell: Cell, rates: Rates | None) -> dict[str, Decimal] | None:
    """USD of each counter, which add to the cell's bill to the last digit. None: they cannot be told."""
    if not cell.usd:
        return dict.fromkeys(COUNTERS, Decimal(0))
    if rates is None:
        return None
    prices = (rates.fresh, rates.cache_read, rates.write_short, rates.write_long, rates.output)
    weights: list[Decimal] = []
    for count, price in zip(_counts(cell).values(), prices, strict=True):
        if count.known and price is None:
            return None
        weights.append(count.known * (price or Decimal(0)))
    return dict(zip(COUNTERS, split(cell.usd, weights), strict=True)) if any(weights) else None


def input_bill(cell: Cell, rates: Rates | None) -> InputBill | None:
    """The input of a cell, and its money. None: not all of it is known."""
    parts, counts = money_by_counter(cell, rates), _counts(cell)
    if parts is None or cell.unpriced or any(count.unknown for count in counts.values()):
        return None
    order = ("cache_read", "write_long", "write_short", "fresh")
    one, two, three, four = ((counts[name].known, parts[name]) for name in order)
    return InputBill((one[0], two[0], three[0], four[0]), (one[1], two[1], three[1], four[1]))


def cell_of(call: CallRow) -> Cell:
    """One call."""
    usage, missed = call.usage, call.verdict.missed if call.verdict else None
    write, long = usage.cache_write, 0 if usage.cache_write == 0 else usage.cache_write_long
    return Cell(
        model=call.model,
        price=call.price,
        tier=usage.tier,
        at=int(call.started // CELL_S * CELL_S),
        cause=call.verdict.cause if call.verdict else None,
        calls=1,
        fresh=_count(usage.fresh),
        cache_read=_count(usage.cache_read),
        write_short=_count(None if write is None or long is None else write - long),
        write_long=_count(long),
        output=_count(usage.output),
        reasoning=_count(usage.reasoning),
        usd=call.cost_usd or Decimal(0),
        unpriced=0 if call.cost_usd is not None else 1,
        missed=missed or 0,
        seconds=call.duration_s or 0.0,
    )


def is_billed(call: CallRow) -> bool:
    """A call that was refused before anything was read is not."""
    return not (call.status == "failed" and call.usage == Usage())


def _count(tokens: int | None) -> Count:
    return Count(0, 1) if tokens is None else Count(tokens, 0)


def _counts(cell: Cell) -> dict[str, Count]:
    return {
        "fresh": cell.fresh,
        "cache_read": cell.cache_read,
        "write_short": cell.write_short,
        "write_long": cell.write_long,
        "output": cell.output,
    }
