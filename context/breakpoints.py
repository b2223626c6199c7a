"""Where cache markers go. A pure function from the prompt, the model's limits and the last request to at most four
markers.

Layout (design section 5): end of SYSTEM, end of PROJECT, exactly where the last request ended, and the end of this
request. The third one makes a provider's lookback irrelevant: however many blocks a turn adds, the entry written by
the last request is found at its own position. Sources: Anthropic prompt-caching documentation as of 2026-08-22 (4
breakpoints, 1h before 5m, writes only at breakpoints).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from context.block import Layer
from context.cache_rules import CacheRules, Ttl
from context.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Marker:
    """A breakpoint behind the first `blocks` blocks of the prompt."""

    blocks: int
    ttl: Ttl


_GENEROSITY: Final = 1.5  # how far an estimate may be below the provider's own count

ALL_SHORT: Final[Mapping[Layer, Ttl]] = dict.fromkeys(Layer, "short")


def plan_markers(
    prompt: Prompt,
    limits: CacheRules,
    last_request: int | None,
    ttl: Mapping[Layer, Ttl] = ALL_SHORT,
    scale: float = 1.0,
) -> tuple[Marker, ...]:
    """Markers for sending `prompt`, in order of position.

    `last_request`: blocks in the last request of this epoch, None before the first. `scale`: provider tokens per
    estimated token. A prefix that even a generous estimate leaves below the minimum gets no marker: it would not be
    cached and costs a slot. When the slots do not suffice the most stable prefix goes first: the tail and the last
    request's end carry all it carries.
    """
    ends: dict[int, tuple[Prompt, Layer]] = {}
    for layer in (Layer.SYSTEM, Layer.PROJECT):
        head = prompt.head(layer)
        ends.setdefault(head.length, (head, layer))
    if last_request is not None and last_request <= prompt.length:
        ends.setdefault(last_request, (prompt.at(last_request), Layer.HISTORY))
    ends.setdefault(prompt.length, (prompt, Layer.COMMAND))

    generous = scale * _GENEROSITY
    worth = [
        ends[length] for length in sorted(ends) if length and ends[length][0].tokens * generous >= limits.min_tokens
    ]
    markers: list[Marker] = []
    for prefix, layer in reversed(worth[-limits.max_markers :] if limits.max_markers else []):
        # A long TTL may not follow a short one, so whatever precedes a long marker is long.
        long = ttl[layer] == "long" or (bool(markers) and markers[-1].ttl == "long")
        markers.append(Marker(prefix.length, "long" if long else "short"))
    return tuple(reversed(markers))
