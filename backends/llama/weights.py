"""A loaded model file: its vocabulary, chat template and limits. The weights stay mapped from the file."""

import ctypes
from array import array
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from backends.base import BackendError, ErrorKind
from backends.llama import native
from backends.llama.gguf import part_paths, read_header


class Kind(StrEnum):
    """What a model keeps of the tokens that it has read.

    Keys and values for each of them (ATTENTION); in some layers only for the last ones (WINDOW); one state that stands
    for all of them (RECURRENT); both (HYBRID).
    """

    ATTENTION = "attention"
    WINDOW = "sliding window"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"

    @property
    def rewinds(self) -> bool:
        """Whether the last tokens can be taken back. A state cannot: only an earlier copy of it goes back."""
        return self in (Kind.ATTENTION, Kind.WINDOW)


class Weights:
    """A model in memory. Not safe for use after `close`; its vocabulary may be used from several threads.

    `trained_context` in tokens; `window` is the size of a sliding attention window in tokens, 0 without one.
    """

    def __init__(self, pointer: Any, path: Path) -> None:
        lib = native.library()
        self._lib: Final = lib
        self._pieces: Final[dict[int, bytes]] = {}
        self.path: Final = path
        self.pointer: Any = pointer
        self.vocabulary: Final[Any] = lib.llama_model_get_vocab(pointer)
        self.size: Final[int] = lib.llama_vocab_n_tokens(self.vocabulary)
        self.trained_context: Final[int] = lib.llama_model_n_ctx_train(pointer)
        self.window: Final[int] = lib.llama_model_n_swa(pointer)
        self.kind: Final = self._kind()

    @classmethod
    def load(cls, path: Path, gpu_layers: int | None = None) -> "Weights":
        """Map a GGUF file. `gpu_layers`: those that the GPU takes, where there is one (None: all).

        Raises BackendError (LOCAL) for a file that is missing, cut off, foreign, or no model that writes text.
        """
        for part in part_paths(path):  # says more plainly than llama.cpp what is wrong with a file
            read_header(part)
        weights = cls(native.load_weights(path, gpu_layers), path)
        lib = native.library()
        if not lib.llama_model_has_decoder(weights.pointer) or lib.llama_model_has_encoder(weights.pointer):
            weights.close()
            raise BackendError(
                ErrorKind.LOCAL,
                f"{path} is no model that writes text (an encoder). Choose a model of `agent models list`.",
            )
        return weights

    def close(self) -> None:
        """Release the memory. Idempotent."""
        if self.pointer:
            self._lib.llama_model_free(self.pointer)
            self.pointer = None

    def _kind(self) -> Kind:
        if self._lib.llama_model_is_recurrent(self.pointer):
            return Kind.RECURRENT
        if self._lib.llama_model_is_hybrid(self.pointer):
            return Kind.HYBRID
        return Kind.WINDOW if self.window else Kind.ATTENTION

    @property
    def chat_template(self) -> str | None:
        """The template that the file brings along, as Jinja text."""
        template: bytes | None = self._lib.llama_model_chat_template(self.pointer, None)
        return template.decode(errors="replace") if template else None

    @property
    def bos(self) -> int | None:
        """The token that begins every prompt, where the vocabulary wants one."""
        return int(self._lib.llama_vocab_bos(self.vocabulary)) if self._adds_bos else None

    @property
    def bos_text(self) -> str:
        return self._token_text(self._lib.llama_vocab_bos(self.vocabulary))

    @property
    def eos_text(self) -> str:
        return self._token_text(self._lib.llama_vocab_eos(self.vocabulary))

    @property
    def _adds_bos(self) -> bool:
        return bool(self._lib.llama_vocab_get_add_bos(self.vocabulary))

    def _token_text(self, token: int) -> str:
        return self.piece(token).decode(errors="replace") if token >= 0 else ""

    def tokenize(self, text: str, *, special: bool = False) -> "array[int]":
        """Token ids of `text`. With `special`, the text of control tokens (`<|im_end|>`) becomes those tokens; without,
        it stays ordinary text, so that a file that quotes them cannot end a message.
        """
        data = text.encode()
        if not data:
            return array("i")
        room = len(data) + 16
        while True:
            buffer = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(self.vocabulary, data, len(data), buffer, room, False, special)
            if count >= 0:
                return array("i", buffer[:count])
            room = -count

    def piece(self, token: int) -> bytes:
        """The bytes that `token` stands for; they may begin or end inside a character."""
        known = self._pieces.get(token)
        if known is None:
            buffer = ctypes.create_string_buffer(64)
            length = self._lib.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
            if length < 0:
                buffer = ctypes.create_string_buffer(-length)
                length = self._lib.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
            known = self._pieces[token] = buffer.raw[:length]
        return known

    def is_control(self, token: int) -> bool:
        """Whether `token` steers the format instead of standing for text."""
        return bool(self._lib.llama_vocab_is_control(self.vocabulary, token))

    def ends_reply(self, token: int) -> bool:
        """Whether `token` is one with which the model ends its reply."""
        return bool(self._lib.llama_vocab_is_eog(self.vocabulary, token))
