"""Usage: the tokens of one call in counters that never overlap (rule R4 of the design)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as the provider bills them, or as they are forecast.

    `fresh`: input neither read from nor written to a cache. `cache_read`: input served from the cache. `cache_write`:
    input written to it, of which `cache_write_long` at the long TTL (Anthropic 1h, OpenAI 12h). `output`: generated,
    of which `reasoning` was thinking. None: not reported. `tier`: the provider's word for how it served the call, where
    that has prices of its own ("flex", "priority", "batch", "fast"); None: at the standard ones.
    """

    fresh: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_long: int | None = None
    output: int | None = None
    reasoning: int | None = None
    tier: str | None = None

    @property
    def input_total(self) -> int | None:
        """All input tokens of the request, cached or not; None when a summand is unknown."""
        if self.fresh is None or self.cache_read is None or self.cache_write is None:
            return None
        return self.fresh + self.cache_read + self.cache_write
