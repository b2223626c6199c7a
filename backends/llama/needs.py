"""What a model needs in memory at which context, and whether that much is free here.

Counted are the weights and what the engine keeps of the tokens: as large as `native.require_memory` will find it, which
refuses what cannot be. The buffers of a single batch come on top; they are small beside both.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.llama.about import About, Layers
from backends.llama.decoder import SNAPSHOTS, SPARE
from backends.llama.native import KV_TYPES

CONTEXTS: Final = (4_096, 16_384, 32_768)
SHOWN_TYPES: Final = ("f16", "q8_0")
_STATE_BYTES: Final = 4  # a value of a recurrent state is always a 32-bit number


class Verdict(StrEnum):
    FITS = "fits"
    SLOW = "slow: weights are read from disk again and again"  # the file is mapped, so that part of it is enough
    TOO_LARGE = "does not fit"
    UNKNOWN = "unknown: the system does not say what is free"


@dataclass(frozen=True, slots=True)
class Need:
    """At a context of `context` tokens, in bytes. `cache`: keys, values and states; `total`: with the weights."""

    context: int
    kv_type: str
    cache: int
    total: int
    verdict: Verdict


def cache_bytes(layers: Layers, tokens: int, kv_type: str = "f16") -> int:
    """Bytes that keys and values of `tokens` take. `kv_type`: one of KV_TYPES."""
    return math.ceil(tokens * layers.values * KV_TYPES[kv_type].bytes)


def needs(model: About, available: int | None) -> tuple[Need, ...]:
    """What the model needs at each of CONTEXTS that it was trained for, and at the trained one itself.

    `available`: free bytes, None where that is not known. Empty where the file does not say enough.
    """
    layers, trained = model.layers, model.context
    if layers is None:
        return ()
    contexts = {size for size in CONTEXTS if trained is None or size <= trained} | ({trained} if trained else set())
    return tuple(_need(model, layers, size, kv_type, available) for size in sorted(contexts) for kv_type in SHOWN_TYPES)


def _need(model: About, layers: Layers, context: int, kv_type: str, available: int | None) -> Need:
    state = 0 if model.kind.rewinds else SNAPSHOTS * layers.state * _STATE_BYTES
    cache = cache_bytes(layers, context, kv_type) + state
    asked = cache_bytes(layers, context + context // SPARE, kv_type) + state  # by the engine, which forks
    if available is None:
        verdict = Verdict.UNKNOWN
    elif asked > available:
        verdict = Verdict.TOO_LARGE
    else:
        verdict = Verdict.FITS if model.bytes + asked <= available else Verdict.SLOW
    return Need(context, kv_type, cache, model.bytes + cache, verdict)
