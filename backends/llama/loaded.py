"""A model in memory with all that belongs to it, and the options that its KV states are kept by."""

from dataclasses import dataclass
from pathlib import Path

from backends.llama.decoder import NativeDecoder
from backends.llama.engine import Engine
from backends.llama.kv_store import KvStore
from backends.llama.weights import Weights
from backends.llama.wire import PromptTokens


@dataclass(frozen=True, slots=True)
class Loaded:
    """`prompts` belongs to the event loop's thread, everything else to the worker's."""

    weights: Weights
    decoder: NativeDecoder
    engine: Engine
    prompts: PromptTokens
    store: KvStore | None

    def close(self) -> None:
        self.engine.keep()
        if self.store is not None:
            self.store.close()
        self.decoder.close()
        self.weights.close()


@dataclass(frozen=True, slots=True)
class KvOptions:
    """How KV states are kept.

    `memory`: bytes that they may take (None: a quarter more than one context needs). `folder` and `quota` (bytes):
    where, and how much of them, they outlive the process; None or 0: they do not. `kv_type`: of keys and values
    (`native.KV_TYPES`). `exact`: reuse only what makes no difference to the last bit. `draft_cost`: what a token with
    guesses takes over one without (`drafts`), None: no guesses.
    """

    memory: int | None = None
    folder: Path | None = None
    quota: int = 0
    kv_type: str = "f16"
    exact: bool = False
    draft_cost: float | None = None
