"""What a provider's prompt cache promises for one model: data, no decisions.

Sources: Anthropic's prompt-caching documentation as of 2026-08-22 (4 breakpoints, lookback of 20 positions, minimum
prefix per model, 5 minutes and 1 hour counted from the start of the request); OpenAI's prompt-caching guide and
openai 3.57.0, types/responses/response_create_params.py (4 writes a request, 30 minutes and 12 hours, no lookback
limit in blocks; before gpt-5.6 automatic in steps of 128 tokens).
"""

from dataclasses import dataclass
from typing import Literal

Ttl = Literal["short", "long"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """Tokens are the model's own, times in seconds.

    `kind`: "markers" (written at breakpoints that we set), "automatic" (any prefix, best effort) or "none" (no cache
    that is billed: a local model's KV cache is told by the engine). `min_tokens`: shorter prefixes are silently not
    cached. `max_markers`: more are an error. `lookback`: positions from a marker back to an earlier write, the marker
    included; None: no limit. `ttl_short`, `ttl_long`: None where there is no clock or no long time to live. `step`: an
    automatic cache hits in multiples of it. `effort_keeps_system`: whether SYSTEM and PROJECT survive a change of
    effort.
    """

    kind: Literal["markers", "automatic", "none"] = "markers"
    max_markers: int = 4
    min_tokens: int = 1024
    lookback: int | None = 20
    ttl_short: float | None = 300.0
    ttl_long: float | None = 3600.0
    step: int = 1
    effort_keeps_system: bool = True

    def ttl(self, name: Ttl) -> float | None:
        return self.ttl_long if name == "long" else self.ttl_short
