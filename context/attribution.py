"""Whose money a bill is: split over the parts of a prompt, and over the blocks that were carried. Pure; money in USD.

A cache holds prefixes, so that the counters of a call lie in the prompt in this order: first what was read, then what
was written to live long (1h before 5m; provider rules 1.2, 2026-12-01), then what was written to live short, then what
is fresh. A part of the prompt pays for what of it lies in each of them. The sizes of parts are estimates: they are
scaled to the input that was billed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Final

_SMALLEST: Final = -15  # decimal places of a share: a token of any price is a whole number of these


@dataclass(frozen=True, slots=True)
class InputBill:
    """Tokens and USD of the input of one call, in the order in which they lie in the prompt: read, written to live
    long, written to live short, fresh.
    """

    tokens: tuple[int, int, int, int]
    usd: tuple[Decimal, Decimal, Decimal, Decimal]

    @property
    def total(self) -> int:
        return sum(self.tokens)


def split(total: Decimal, weights: Sequence[Decimal | int]) -> tuple[Decimal, ...]:
    """`total` in shares in proportion to `weights` (none below 0), which add to it to the last digit.

    What rounding leaves over goes to the largest share. All to the last one where all weights are 0. Raises ValueError
    without weights.
    """
    if not weights:
        raise ValueError("nothing to split among")
    whole = sum(weights, Decimal(0))
    if not whole:
        return (*(Decimal(0) for _ in weights[1:]), total)
    exponent = total.as_tuple().exponent
    places = Decimal(1).scaleb(min(_SMALLEST, exponent if isinstance(exponent, int) else 0))
    shares = [(total * weight / whole).quantize(places) for weight in weights]
    largest = max(range(len(shares)), key=lambda at: weights[at])
    shares[largest] += total - sum(shares, Decimal(0))
    return tuple(shares)


def split_tokens(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Like `split`, in whole tokens: the running sums are rounded, so that no share is off by more than one."""
    whole = sum(weights)
    if not whole:
        return (*(0 for _ in weights[1:]), total)
    ends = [total * reached // whole for reached in accumulate(weights)]
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))


def by_part(sizes: Sequence[int], bill: InputBill) -> tuple[InputBill, ...]:
    """What each part of a prompt, of `sizes` tokens in order, has in the bill; together that is all of it."""
    weights = [[0] * len(sizes) for _ in bill.tokens]
    for counter, part, shared in _overlaps(bill.tokens, sizes):
        weights[counter][part] = shared
    tokens = zip(*(split_tokens(count, row) for count, row in zip(bill.tokens, weights, strict=True)), strict=True)
    usd = zip(*(split(money, row) for money, row in zip(bill.usd, weights, strict=True)), strict=True)
    return tuple(InputBill(*part) for part in zip(tokens, usd, strict=True))


def _overlaps(first: Sequence[int], second: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Two rows of lengths are laid beside each other, scaled to the same length: the index in each, and how much of
    both lies side by side, in a unit of its own.
    """
    one, other = sum(first), sum(second)
    at, part, left, room = 0, 0, first[0] * other, second[0] * one
    while True:
        common = min(left, room)
        if common:
            yield at, part, common
        left, room = left - common, room - common
        if not left:
            at += 1
            if at == len(first):
                return
            left = first[at] * other
        elif not room:
            part += 1
            if part == len(second):
                return
            room = second[part] * one


@dataclass(frozen=True, slots=True)
class Carry:
    """How many calls had a block in their input, and what that cost in all."""

    calls: int
    usd: Decimal


class Carried:
    """What each block of one epoch cost over its calls. Each call takes O(log blocks).

    `ends`: estimated tokens of the first 0, 1, 2, … blocks.
    """

    def __init__(self, ends: Sequence[int]) -> None:
        self._ends = ends
        self._calls = [0] * (len(ends) + 1)  # by block: what is added from it on
        self._rates = [Decimal(0)] * (len(ends) + 1)  # USD per estimated token, in the same way
        self._edges: dict[int, Decimal] = {}  # blocks that lie across a border between counters

    def add(self, blocks: int, bill: InputBill) -> None:
        """A call that sent the first `blocks`. Raises IndexError when there are fewer."""
        self._calls[0] += 1
        self._calls[blocks] -= 1
        known, total = self._ends[blocks], bill.total
        if not known or not total:
            return
        scale = Decimal(known) / total  # estimated tokens for each that was billed
        start = Decimal(0)
        for tokens, usd in zip(bill.tokens, bill.usd, strict=True):
            if tokens:
                end = min(start + tokens * scale, Decimal(known))
                self._spread(start, end, usd / (tokens * scale), blocks)
                start = end

    def _spread(self, start: Decimal, end: Decimal, rate: Decimal, blocks: int) -> None:
        """`rate` for each estimated token from `start` to `end`."""
        first = bisect_left(self._ends, start, 0, blocks + 1)  # the first block that begins in it
        last = bisect_right(self._ends, end, 0, blocks + 1) - 1  # and the last border in it
        if first > last:  # all of it lies in one block
            self._edge(first - 1, (end - start) * rate)
            return
        self._rates[first] += rate
        self._rates[last] -= rate
        if self._ends[first] > start:
            self._edge(first - 1, (self._ends[first] - start) * rate)
        if end > self._ends[last]:
            self._edge(last, (end - self._ends[last]) * rate)

    def _edge(self, block: int, usd: Decimal) -> None:
        self._edges[block] = self._edges.get(block, Decimal(0)) + usd

    def blocks(self) -> list[Carry]:
        """One for each block, in order."""
        found: list[Carry] = []
        rates, calls = accumulate(self._rates), accumulate(self._calls)
        for block, (rate, count) in enumerate(zip(rates, calls, strict=True)):
            if block + 1 == len(self._ends):
                break
            size = self._ends[block + 1] - self._ends[block]
            usd = rate * size + self._edges.get(block, Decimal(0))
            found.append(Carry(count, usd.quantize(Decimal(1).scaleb(_SMALLEST))))
        return found
