"""What a model needs in memory at which context, and whether that much is free here.

Counted are the weights and what the engine keeps of the tokens: as large as the check before a context is made will
find it (`Demand`, `native.require_memory`). The buffers of a single batch come on top; they are small beside both.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from backends.llama import native
from backends.llama.about import About, Layers, read_about
from backends.llama.decoder import SEQUENCES, SNAPSHOTS, SPARE
from backends.llama.native import KV_TYPES
from backends.llama.weights import Weights

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


@dataclass(frozen=True, slots=True)
class Demand:
    """What a context takes, in bytes. `token`: keys and values of one token; `state`: what stands for all tokens of a
    sequence, 0 in a model without one.
    """

    token: float
    state: int

    @classmethod
    def of(cls, layers: Layers, kv_type: str = "f16") -> Self:
        """`kv_type`: one of KV_TYPES."""
        return cls(layers.values * KV_TYPES[kv_type].bytes, layers.state * _STATE_BYTES)

    @classmethod
    def of_weights(cls, weights: Weights, kv_type: str) -> Self:
        """By what the file says of each layer; where it does not say enough, as if all were like the first one."""
        layers = read_about(weights.path).layers
        if layers is None:
            return cls(native.cache_bytes(weights.pointer, 1_024, kv_type) / 1_024, 0)
        return cls.of(layers, kv_type)

    def states(self, sequences: int) -> int:
        """Of the states: the engine needs one more than its sequences, to save and restore them."""
        return (sequences + 1) * self.state

    def total(self, cells: int, sequences: int) -> int:
        """Of a context for `cells` tokens."""
        return math.ceil(cells * self.token) + self.states(sequences)


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
    demand = Demand.of(layers, kv_type)
    sequences = SEQUENCES if model.kind.rewinds else SNAPSHOTS
    cache = demand.total(context, sequences)
    asked = demand.total(context + context // SPARE, sequences)  # by the engine, which forks
    if available is None:
        verdict = Verdict.UNKNOWN
    elif asked > available:
        verdict = Verdict.TOO_LARGE
    else:
        verdict = Verdict.FITS if model.bytes + asked <= available else Verdict.SLOW
    return Need(context, kv_type, cache, model.bytes + cache, verdict)
