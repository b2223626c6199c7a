"""Leases: the remaining life of the cached prefixes of one prompt.

Pure: time is an argument. A lease begins at the start of the request that wrote or last read the prefix and lasts as
long as the provider granted, which its bill says (Anthropic's prompt-caching documentation, 2026-08-22). It does not
end with a process: what the ledger remembers of the cache holds for whoever opens the session next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from context.block import Layer
from context.cache_rules import CacheRules
from context.cachemodel import Entries, Entry, Scope
from context.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Lease:
    """Of the prefix that ends with `layer` and is `blocks` blocks long. Times in seconds since the epoch.

    `entry` None: as far as is known it was never cached.
    """

    layer: Layer
    blocks: int
    entry: Entry | None

    @property
    def tokens(self) -> int | None:
        return self.entry.tokens if self.entry else None

    @property
    def written(self) -> float | None:
        return self.entry.written if self.entry else None

    @property
    def refreshed(self) -> float | None:
        """When it was used last."""
        return self.entry.used if self.entry else None

    @property
    def expires(self) -> float | None:
        """None: it is not cached, or there is no clock."""
        return self.entry.expires if self.entry else None

    def warm(self, now: float) -> bool:
        return self.entry is not None and self.entry.alive(now)

    def left(self, now: float) -> float | None:
        """Seconds from `now`, 0 when it is cold; None as for `expires`."""
        return None if self.expires is None else max(0.0, self.expires - now)


def leases(prompt: Prompt, scope: Scope, rules: CacheRules, entries: Entries) -> tuple[Lease, ...]:
    """The leases of the ends of SYSTEM, PROJECT and HISTORY, of a `prompt` as it was sent."""
    ends = ((layer, prompt.head(layer)) for layer in (Layer.SYSTEM, Layer.PROJECT))
    head = [Lease(layer, end.length, entries.find(scope.key(rules, head=True), end.digest)) for layer, end in ends]
    tail = entries.find(scope.key(rules, head=False), prompt.digest)
    return (*head, Lease(Layer.HISTORY, prompt.length, tail))


def longest_warm(held: Sequence[Lease], now: float) -> Lease | None:
    """The lease of the longest prefix that is warm."""
    return max((lease for lease in held if lease.warm(now)), key=lambda lease: lease.blocks, default=None)
