"""A model in memory with all that belongs to it, and the options that its KV states are kept by."""

from dataclasses import dataclass
from pathlib import Path

from backends.llama.decoder import NativeDecoder
from backends.llama.drafts import NO_DRAFTS, Drafts, PromptLookup, pays
from backends.llama.engine import Engine
from backends.llama.kv_store import KvStore
from backends.llama.tuning import Tuning
from backends.llama.weights import Weights
from backends.llama.wire import PromptTokens


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
