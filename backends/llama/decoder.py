"""One llama.cpp context: evaluates tokens, keeps their KV entries, gives the logits of the last one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from backends.base import BackendError, ErrorKind
from backends.llama import native
from backends.llama.weights import Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BATCH: Final = 128
"""Tokens per batch. A prefill can be stopped between batches: 128 take under a second on two cores with a model of
1.5B, and cost 6 % of the speed of 512 (measured 2026-12-01, docs/local-models.md).
"""

_SEQUENCE: Final = 0


class Decoder(Protocol):
    """What the engine needs of a context. Positions count from 0."""

    @property
    def context(self) -> int:
        """Room in tokens."""
        ...

    @property
    def window(self) -> int:
        """Size of the sliding attention window in tokens, 0 without one."""
        ...

    def evaluate(self, tokens: Sequence[int], position: int) -> None:
        """Evaluate at most BATCH tokens from `position` on.

        Raises BackendError (LOCAL); the cache may then hold any part of them.
        """
        ...

    def held(self) -> tuple[int, int]:
        """First and last position in the cache, (-1, -1) when it is empty."""
        ...

    def cut(self, position: int) -> bool:
        """Take back the tokens from `position` on. False when the model cannot do that; then nothing has changed."""
        ...

    def clear(self) -> None:
        """Take back everything."""
        ...


class NativeDecoder:
    """A `llama_context` with one sequence. Everything but `close` belongs to one thread."""

    def __init__(self, weights: Weights, context: int, threads: int) -> None:
        """Raises BackendError (LOCAL) when there is not enough memory."""
        lib = native.library()
        self._lib: Final = lib
        self._weights: Final = weights
        self.pointer: Any = native.open_context(weights.pointer, context, threads, BATCH)
        self._memory: Final[Any] = lib.llama_get_memory(self.pointer)
        self._batch: Any = lib.llama_batch_init(BATCH, 0, 1)

    @property
    def context(self) -> int:
        return int(self._lib.llama_n_ctx_seq(self.pointer))

    @property
    def window(self) -> int:
        return self._weights.window

    def evaluate(self, tokens: Sequence[int], position: int) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = position + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = _SEQUENCE
            batch.logits[index] = index == len(tokens) - 1
        status = self._lib.llama_decode(self.pointer, batch)
        if status:
            raise BackendError(
                ErrorKind.LOCAL,
                f"llama.cpp could not evaluate {len(tokens)} tokens at position {position:,} "
                f"(status {status}): {native.last_words() or 'it gave no reason'}. "
                "The conversation is kept; try again.",
            )

    def logits(self) -> "npt.NDArray[np.float32]":
        """The logits behind the last evaluated token, one per vocabulary entry: a view, valid until the next call of
        `evaluate`.
        """
        import numpy as np

        pointer = self._lib.llama_get_logits_ith(self.pointer, -1)
        return np.ctypeslib.as_array(pointer, (self._weights.size,))

    def held(self) -> tuple[int, int]:
        lib, memory = self._lib, self._memory
        return (
            int(lib.llama_memory_seq_pos_min(memory, _SEQUENCE)),
            int(lib.llama_memory_seq_pos_max(memory, _SEQUENCE)),
        )

    def cut(self, position: int) -> bool:
        return bool(self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, position, -1))

    def clear(self) -> None:
        self._lib.llama_memory_clear(self._memory, True)

    def close(self) -> None:
        """Release the memory. Idempotent. Not while another thread evaluates."""
        if self.pointer:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self.pointer)
            self.pointer = self._batch = None
