"""One llama.cpp context with several sequences: evaluates tokens, keeps their KV entries, gives logits."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from backends.base import BackendError, ErrorKind
from backends.llama import native
from backends.llama.tuning import Tuning
from backends.llama.weights import Kind, Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ROWS: Final = 8
"""Tokens at the end of a batch whose logits can be asked for."""

SPARE: Final = 4  # a fork or another session may have a quarter of a context besides
SEQUENCES: Final = 16
SNAPSHOTS: Final = 8  # sequences of a model whose state cannot be taken back: each is a state of its own in memory

_WHOLE: Final = -1


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How a context is made. `cells`: tokens that all sequences together may hold. `kv_type`: of keys and values
    (`KV_TYPES`); flash attention is used where it is quantised, whatever `tuning` says: llama.cpp has no other way.
    """

    cells: int
    tuning: Tuning
    sequences: int = SEQUENCES
    kv_type: str = "f16"

    @property
    def flash_attention(self) -> bool | None:
        return self.tuning.flash_attention if self.kv_type == "f16" else True


class Decoder(Protocol):
    """What the engine needs of a context. Positions count from 0, and each sequence has its own."""

    @property
    def cells(self) -> int:
        """Tokens that all sequences together may hold; what two of them share counts once."""
        ...

    @property
    def sequences(self) -> int: ...

    @property
    def batch(self) -> int:
        """Tokens that are evaluated at once, at most."""
        ...

    @property
    def kind(self) -> Kind: ...

    @property
    def window(self) -> int:
        """Size of the sliding attention window in tokens, 0 without one."""
        ...

    def evaluate(self, sequence: int, tokens: Sequence[int], position: int, rows: int = 1) -> None:
        """Evaluate at most `batch` tokens from `position` on, for the logits of the last `rows` of them.

        Raises BackendError (LOCAL); the sequence may then hold any part of them.
        """
        ...

    def held(self, sequence: int) -> tuple[int, int]:
        """First and last position that it holds, (-1, -1) when it is empty."""
        ...

    def cut(self, sequence: int, position: int) -> bool:
        """Take back the tokens from `position` on. False when the model cannot do that; then nothing has changed."""
        ...

    def share(self, source: int, target: int, length: int) -> None:
        """Give `target`, which is empty, the first `length` tokens of `source`: all of them where it cannot be cut."""
        ...

    def drop(self, sequence: int) -> None:
        """Take back everything of one sequence."""
        ...

    def save(self, sequence: int, start: int, end: int) -> bytes:
        """What was computed for positions `start` to `end`; for the whole sequence where it cannot be cut."""
        ...

    def restore(self, sequence: int, data: bytes, start: int, end: int) -> bool:
        """Put behind the first `start` tokens of the sequence what `save` gave. Whether llama.cpp took it."""
        ...


class NativeDecoder:
    """A `llama_context`. Everything but `close` belongs to one thread."""

    def __init__(self, weights: Weights, options: ContextOptions) -> None:
        """Raises BackendError (LOCAL) when there is not enough memory."""
        lib = native.library()
        self._lib: Final = lib
        self._weights: Final = weights
        self._options: Final = options
        self._scratch: Final = options.sequences  # one more, through which parts are saved and restored
        self.pointer: Any = native.open_context(
            weights.pointer,
            cells=options.cells,
            sequences=options.sequences + 1,
            threads=(options.tuning.threads, options.tuning.batch_threads),
            batch=options.tuning.batch,
            rows=ROWS,
            flash_attention=options.flash_attention,
            kv_type=options.kv_type,
        )
        self._memory: Final[Any] = lib.llama_get_memory(self.pointer)
        self._batch: Any = lib.llama_batch_init(options.tuning.batch, 0, 1)

    @property
    def cells(self) -> int:
        return int(self._lib.llama_n_ctx(self.pointer))

    @property
    def sequences(self) -> int:
        return self._options.sequences

    @property
    def batch(self) -> int:
        return self._options.tuning.batch

    def set_threads(self, one: int, many: int) -> None:
        """How many evaluate a single token, and several at once."""
        self._lib.llama_set_n_threads(self.pointer, one, many)

    @property
    def kind(self) -> Kind:
        return self._weights.kind

    @property
    def window(self) -> int:
        return self._weights.window

    def evaluate(self, sequence: int, tokens: Sequence[int], position: int, rows: int = 1) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        first_row = len(tokens) - rows
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = position + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = index >= first_row
        status = self._lib.llama_decode(self.pointer, batch)
        if status:
            raise BackendError(
                ErrorKind.LOCAL,
                f"llama.cpp could not evaluate {len(tokens)} tokens at position {position:,} "
                f"(status {status}): {native.last_words() or 'it gave no reason'}. "
                "The conversation is kept; try again.",
            )

    def logits(self, row: int = -1) -> "npt.NDArray[np.float32]":
        """The logits behind a token of the last batch, one per vocabulary entry: a view, valid until the next call of
        `evaluate`. `row` counts from the end: -1 is the last token.
        """
        import numpy as np

        pointer = self._lib.llama_get_logits_ith(self.pointer, row)
        return np.ctypeslib.as_array(pointer, (self._weights.size,))

    def held(self, sequence: int) -> tuple[int, int]:
        lib, memory = self._lib, self._memory
        return (
            int(lib.llama_memory_seq_pos_min(memory, sequence)),
            int(lib.llama_memory_seq_pos_max(memory, sequence)),
        )

    def cut(self, sequence: int, position: int) -> bool:
        return bool(self._lib.llama_memory_seq_rm(self._memory, sequence, position, _WHOLE))

    def share(self, source: int, target: int, length: int) -> None:
        start, end = (0, length) if self.kind.rewinds else (_WHOLE, _WHOLE)
        self._lib.llama_memory_seq_cp(self._memory, source, target, start, end)

    def drop(self, sequence: int) -> None:
        self._lib.llama_memory_seq_rm(self._memory, sequence, _WHOLE, _WHOLE)

    def save(self, sequence: int, start: int, end: int) -> bytes:
        lib, source = self._lib, sequence
        if self.kind.rewinds:
            source = self._scratch
            lib.llama_memory_seq_cp(self._memory, sequence, source, start, end)
        try:
            size = lib.llama_state_seq_get_size(self.pointer, source)
            buffer = (ctypes.c_uint8 * size)()
            written = lib.llama_state_seq_get_data(self.pointer, buffer, size, source)
        finally:
            if source != sequence:
                self.drop(source)
        return memoryview(buffer).cast("B")[:written].tobytes()

    def restore(self, sequence: int, data: bytes, start: int, end: int) -> bool:
        lib = self._lib
        target = self._scratch if self.kind.rewinds else sequence
        buffer = ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(ctypes.c_uint8))
        taken = lib.llama_state_seq_set_data(self.pointer, buffer, len(data), target) == len(data)
        if target != sequence:
            if taken:
                lib.llama_memory_seq_cp(self._memory, target, sequence, start, end)
            self.drop(target)
        elif not taken:
            self.drop(target)
        return bool(taken) and self.held(sequence)[1] == end - 1

    def close(self) -> None:
        """Release the memory. Idempotent. Not while another thread evaluates."""
        if self.pointer:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self.pointer)
            self.pointer = self._batch = None
