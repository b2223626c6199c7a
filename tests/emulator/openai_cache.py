"""OpenAI's two prompt caches, billed by the published rules; time is an argument.

`BreakpointCache`: gpt-5.6 and later; entries are written at breakpoints and matched exactly. `AutomaticCache`: older
models and most compatible servers; any common prefix is a hit, in steps. Both work on rows of `Element`s.
Sources: provider rules 2.1 and 3 as of 2026-12-01; openai SDK 3.57.0, `response_create_params.PromptCacheOptions`.
"""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from .bill import Bill
from .cache import Entries
from .openai_prefix import Element

LOOKBACK: Final = 80  # breakpoints of the conversation that are considered for a match
MAX_WRITES: Final = 4
LONG: Final = frozenset({"12h", "1h"})
SECONDS: Final = {"30m": 1800.0, "12h": 43200.0, "5m": 300.0, "1h": 3600.0}

POSITIONS: Final = 20  # how far back a `cache_control` looks, itself included

Mode = Literal["implicit", "explicit", "cache_control"]
Evict = Literal["all", "deepest"]


@dataclass(frozen=True)
class Lookup:
    """One billed request. `begin` writes and renews its entries; without it the request leaves no trace.

    `reusable`: tokens up to the last breakpoint that it read or wrote.
    """

    bill: Bill
    reusable: int
    begin: Callable[[], None]


def digests(key: Hashable, elements: Sequence[Element]) -> list[bytes]:
    """The name of each prefix under `key`."""
    chain = hashlib.sha256(repr(key).encode())
    names = []
    for element in elements:
        chain.update(hashlib.sha256(element.data).digest())
        names.append(chain.digest())
    return names


@dataclass(frozen=True)
class _Row:
    """The cacheable elements of a request: names and lengths of the prefixes that end at each."""

    elements: Sequence[Element]
    names: Sequence[bytes]
    ends: Sequence[int]

    @classmethod
    def of(cls, key: Hashable, elements: Sequence[Element]) -> "_Row":
        row = [element for element in elements if element.cached]
        return cls(row, digests(key, row), list(accumulate(element.tokens for element in row)))


class BreakpointCache:
    """Entries of one organisation."""

    def __init__(self) -> None:
        self.entries = Entries()

    def look_up(
        self,
        elements: Sequence[Element],
        *,
        key: Hashable,
        now: float,
        mode: Mode = "implicit",
        ttl: str = "30m",
        minimum: int = 1024,
        granted: Mapping[str, str] | None = None,
        evict: Evict | None = None,
    ) -> Lookup:
        """Bill one request that starts `now` (seconds). `key`: what divides the cache: model, cache key, effort, ….

        `ttl` is that of the implicit breakpoint. `granted`: TTLs that are kept and billed shorter than asked. The mode
        `cache_control` is that of providers which cache as Anthropic does: a mark looks back over positions.
        """
        if evict == "all":
            self.entries.evict()
        row = _Row.of(key, elements)
        marks = {at: element.mark for at, element in enumerate(row.elements) if element.mark is not None}
        boundaries = [at for at, element in enumerate(row.elements) if element.boundary] if mode == "implicit" else []
        if mode == "cache_control":
            looked_at = {at for mark in marks for at in range(max(0, mark - POSITIONS + 1), mark + 1)}
        else:
            looked_at = set(sorted({*marks, *boundaries})[-LOOKBACK:])
        considered = [at for at in looked_at if row.ends[at] >= minimum]

        hit = self._hit(row, considered, now)
        if evict == "deepest" and hit >= 0:
            self.entries.evict(row.names[hit])
            hit = self._hit(row, considered, now)
        read = row.ends[hit] if hit >= 0 else 0

        writes = {
            at: (granted or {}).get(asked, asked)
            for at, asked in _writes(marks, boundaries[-1:], ttl).items()
            if at > hit and row.ends[at] >= minimum
        }
        last = max((row.ends[at] for at in writes), default=read)
        last_long = max((row.ends[at] for at, kept in writes.items() if kept in LONG), default=read)
        used = [row.names[at] for at in {hit, *(at for at in marks if at < hit)}] if hit >= 0 else []

        def begin() -> None:
            self.entries.refresh(used, now)
            for at, kept in writes.items():
                self.entries.write(row.names[at], row.ends[at], SECONDS[kept], now)

        total = sum(element.tokens for element in elements)
        return Lookup(Bill(total - last, read, last - last_long, last_long - read), last, begin)

    def _hit(self, row: _Row, considered: Sequence[int], now: float) -> int:
        return max((at for at in considered if self.entries.live(row.names[at], now)), default=-1)


def _writes(marks: Mapping[int, str], implicit: Sequence[int], ttl: str) -> dict[int, str]:
    """Where a request may write, with the TTL it asks for: the implicit breakpoint and the latest explicit ones."""
    explicit = sorted(marks)[-(MAX_WRITES - len(implicit)) :]
    wanted = {at: marks[at] for at in explicit}
    for at in implicit:
        if wanted.get(at) not in LONG:
            wanted[at] = ttl
    return wanted


class AutomaticCache:
    """Prefixes of the requests seen lately. Hits in `step` tokens from `minimum` on; writing is free and not reported.

    The common prefix is counted in whole elements. `lifetime` in seconds from the start of the last request that had
    the prefix.
    """

    def __init__(self, *, step: int = 128, minimum: int = 1024, lifetime: float = 600.0) -> None:
        self.step = step
        self.minimum = minimum
        self.lifetime = lifetime
        self.entries = Entries()

    def look_up(
        self,
        elements: Sequence[Element],
        *,
        key: Hashable,
        now: float,
        lifetime: float | None = None,
        evict: Evict | None = None,
    ) -> Lookup:
        """Bill one request that starts `now` (seconds)."""
        if evict == "all":
            self.entries.evict()
        row = _Row.of(key, elements)
        known = self._known(row, now)
        if evict == "deepest" and known:
            self.entries.evict(row.names[known - 1])
            known -= 1
        common = row.ends[known - 1] if known else 0
        read = common - common % self.step
        if read < self.minimum:
            read = 0
        kept = self.lifetime if lifetime is None else lifetime

        def begin() -> None:
            for name, end in zip(row.names, row.ends, strict=True):
                self.entries.write(name, end, kept, now)

        total = sum(element.tokens for element in elements)
        return Lookup(Bill(total - read, read), row.ends[-1] if row.ends else 0, begin)

    def _known(self, row: _Row, now: float) -> int:
        """How many elements from the front are those of a request seen before."""
        for at, name in enumerate(row.names):
            if not self.entries.live(name, now):
                return at
        return len(row.names)
