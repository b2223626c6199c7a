"""A model in memory with all that belongs to it, and the options that its KV states are kept by."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.base import BackendError, ErrorKind
from backends.llama import native
from backends.llama.build import build_key
from backends.llama.decoder import SEQUENCES, SNAPSHOTS, SPARE, ContextOptions, NativeDecoder
from backends.llama.drafts import NO_DRAFTS, Drafts, PromptLookup, pays
from backends.llama.engine import Engine
from backends.llama.kv_store import KvStore, Model
from backends.llama.needs import Demand
from backends.llama.tuning import Tuning
from backends.llama.weights import Weights
from backends.llama.wire import PromptTokens

CONTEXT_OPTION: Final = "--context"


@dataclass(frozen=True, slots=True)
class KvOptions:
    """How KV states are kept.

    `memory`: bytes that they may take (None: a quarter more than one context needs). `folder` and `quota` (bytes):
    where, and how much of them, they outlive the process; None or 0: they do not. `kv_type`: of keys and values
    (`native.KV_TYPES`). `exact`: reuse only what makes no difference to the last bit. `lookup`: guess what comes next
    where it was measured to pay (`drafts`).
    """

    memory: int | None = None
    folder: Path | None = None
    quota: int = 0
    kv_type: str = "f16"
    exact: bool = False
    lookup: bool = True

    def open_store(
        self, context: ContextOptions, name: str, path: Path, fingerprint: str, warn: Callable[[str], None]
    ) -> KvStore | None:
        """Where the states of the model `name` are kept for a context like this; None: nowhere."""
        if self.folder is None or not self.quota:
            return None
        kind = repr((context.kv_type, context.flash_attention, self.exact and context.tuning.batch))
        about = {"model": name, "file": str(path), "keys and values": context.kv_type}
        return KvStore(self.folder, Model(build_key(fingerprint, kind), about), self.quota, warn)


def context_options(cache: KvOptions, weights: Weights, demand: Demand, window: int, tuning: Tuning) -> ContextOptions:
    """A context for prompts of up to `window` tokens, which takes what `demand` says. Raises BackendError (LOCAL) where
    they do not fit the memory that `cache` allows.
    """
    sequences = SEQUENCES if weights.kind.rewinds else SNAPSHOTS
    cells = window if cache.exact else window + window // SPARE
    if cache.memory is not None and demand.token:  # a recurrent state is of one size, whatever it has read
        left = max(0, cache.memory - demand.states(sequences))
        room = int(left / demand.token) // native.CELLS_STEP * native.CELLS_STEP
        if room < window:
            raise BackendError(
                ErrorKind.LOCAL,
                f"A context of {window:,} tokens does not fit the memory that its KV cache may take, which holds "
                f"{room:,} tokens. Raise `kv_memory`, or choose a smaller {CONTEXT_OPTION}.",
            )
        cells = min(room, sequences * window)  # it may take so much; more is of no use
    return ContextOptions(cells, tuning, sequences, cache.kv_type)


@dataclass(frozen=True, slots=True)
class Loaded:
    """`prompts` belongs to the event loop's thread, everything else to the worker's."""

    weights: Weights
    decoder: NativeDecoder
    engine: Engine
    prompts: PromptTokens
    store: KvStore | None
    tuning: Tuning

    def close(self) -> None:
        self.engine.keep()
        if self.store is not None:
            self.store.close()
        self.decoder.close()
        self.weights.close()

    def drafts(self, options: KvOptions, temperature: float) -> Drafts:
        """Guesses for a reply, where they pay and change nothing."""
        cost = self.tuning.draft_cost
        if not options.lookup or options.exact or temperature > 0 or cost is None or not pays(cost):
            return NO_DRAFTS
        return PromptLookup(cost, self.decoder.logits)
