"""From logits to one token.

The order of llama.cpp: repeat penalties, top-k, top-p, min-p, temperature, then the draw. A grammar comes last: the
token is drawn as if there were none and checked; only when it does not fit is the choice narrowed, first among the
likeliest tokens, then over the whole vocabulary. Checking one token costs microseconds, masking a vocabulary of 152,000
takes 20 to 40 ms (measured 2026-12-01, docs/local-models.md).
"""

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from backends.base import BackendError, ErrorKind
from backends.llama import native
from backends.llama.weights import Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NARROWED: Final = (256, 8_192)  # how many of the likeliest tokens are tried when the drawn one does not fit
_NO_NUMBERS: Final = "The model's output is not made of numbers: the model file may be damaged. Download it again."
_KEEP: Final = 1  # top-p and min-p leave at least this many candidates


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Temperature 0 takes the likeliest token and ignores `top_k`, `top_p`, `min_p` and `seed`.

    `top_k` 0, `top_p` 1, `min_p` 0, `repeat` 1, `frequency` 0 and `presence` 0 switch each of them off. The penalties
    look at the last `repeat_window` tokens of the reply. Equal seeds and logits give equal tokens.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    repeat_window: int = 64
    seed: int = 0


class Sampler:
    """Draws the tokens of one reply. `grammar` is GBNF with the rule `root`; without one any text may come.

    Control tokens are never drawn, except those that end a reply when there is no grammar.
    """

    def __init__(self, weights: Weights, sampling: Sampling, grammar: str | None = None) -> None:
        """Raises BackendError (LOCAL) for a grammar that llama.cpp does not understand."""
        import numpy as np

        self._lib: Final = native.library()
        self._weights: Final = weights
        self._chain: Any = None
        self._grammar: Any = None
        self.masked: int = 0
        """How often the drawn token did not fit the grammar."""
        size = weights.size
        self._table: Final = np.zeros(size, dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._ids: Final = np.arange(size, dtype=np.int32)
        if grammar is not None:
            native.last_words()
            self._grammar = self._lib.llama_sampler_init_grammar(weights.vocabulary, grammar.encode(), b"root")
            if not self._grammar:
                raise BackendError(
                    ErrorKind.LOCAL,
                    f"llama.cpp does not take the tools' grammar: {native.last_words() or 'it gave no reason'}.",
                )
        self._chain = self._make_chain(sampling)

    def accept_given(self, tokens: "list[int]") -> None:
        """Tell the grammar that the reply begins with `tokens`, which nobody drew."""
        if self._grammar:
            for token in tokens:
                self._lib.llama_sampler_accept(self._grammar, token)

    def sample(self, logits: "npt.NDArray[np.float32]") -> int:
        """Choose the next token and take it. Raises as `choose` does."""
        token = self.choose(logits)
        self.accept(token)
        return token

    def choose(self, logits: "npt.NDArray[np.float32]") -> int:
        """The next token. Raises BackendError (LOCAL) when the logits are no numbers or no token fits the grammar."""
        token = self._draw(self._candidates(self._ids, logits))
        if not self.fits(token):
            self.masked += 1
            token = self._draw_fitting(logits)
        if not math.isfinite(logits[token]):
            raise BackendError(ErrorKind.LOCAL, _NO_NUMBERS)
        return token

    def accept(self, token: int) -> None:
        """Go on behind `token`, which must fit."""
        self._lib.llama_sampler_accept(self._chain, token)
        if self._grammar:
            self._lib.llama_sampler_accept(self._grammar, token)

    def fits(self, token: int) -> bool:
        """Whether `token` may come next."""
        if self._grammar is None:
            return self._may_speak(token)
        single = self._lib.llama_token_data(id=token, logit=0.0, p=0.0)
        array = self._lib.llama_token_data_array(data=ctypes.pointer(single), size=1, selected=-1, sorted=False)
        self._lib.llama_sampler_apply(self._grammar, ctypes.byref(array))
        return single.logit == 0.0 and self._may_speak(token)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        for pointer in (self._chain, self._grammar):
            if pointer:
                self._lib.llama_sampler_free(pointer)
        self._chain = self._grammar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_chain(self, sampling: Sampling) -> Any:
        lib = self._lib
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        steps = []
        if (sampling.repeat, sampling.frequency, sampling.presence) != (1.0, 0.0, 0.0):
            penalties = (sampling.repeat_window, sampling.repeat, sampling.frequency, sampling.presence)
            steps.append(lib.llama_sampler_init_penalties(self._weights.size, *penalties))
        if sampling.temperature <= 0:
            steps.append(lib.llama_sampler_init_greedy())
        else:
            if sampling.top_k > 0:
                steps.append(lib.llama_sampler_init_top_k(sampling.top_k))
            if sampling.top_p < 1:
                steps.append(lib.llama_sampler_init_top_p(sampling.top_p, _KEEP))
            if sampling.min_p > 0:
                steps.append(lib.llama_sampler_init_min_p(sampling.min_p, _KEEP))
            steps.append(lib.llama_sampler_init_temp(sampling.temperature))
            steps.append(lib.llama_sampler_init_dist(sampling.seed & 0xFFFFFFFF))
        for step in steps:
            lib.llama_sampler_chain_add(chain, step)
        return chain

    def _candidates(self, ids: "npt.NDArray[np.int32]", logits: "npt.NDArray[np.float32]") -> Any:
        """llama.cpp's candidate array over `ids`, in a table that is used again for each token."""
        table = self._table[: len(ids)]
        table["id"] = ids
        table["logit"] = logits
        return self._array(len(ids))

    def _array(self, count: int) -> Any:
        data = self._table.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data))
        return self._lib.llama_token_data_array(data=data, size=count, selected=-1, sorted=False)

    def _draw(self, candidates: Any) -> int:
        self._lib.llama_sampler_apply(self._chain, ctypes.byref(candidates))
        if not 0 <= candidates.selected < candidates.size:
            raise BackendError(ErrorKind.LOCAL, _NO_NUMBERS)
        return int(candidates.data[candidates.selected].id)

    def _may_speak(self, token: int) -> bool:
        return not self._weights.is_control(token) or (self._grammar is None and self._weights.ends_reply(token))

    def _draw_fitting(self, logits: "npt.NDArray[np.float32]") -> int:
        """Draw among the likeliest tokens that fit; only if none does, among all."""
        import numpy as np

        for count in (*_NARROWED, len(logits)):
            ids = np.argpartition(logits, -count)[-count:].astype(np.int32) if count < len(logits) else self._ids
            fitting = self._fitting(ids, logits[ids])
            if len(fitting):
                return self._draw(self._candidates(fitting, logits[fitting]))
        raise BackendError(ErrorKind.LOCAL, "No token of this model's vocabulary fits the tools' grammar.")

    def _fitting(self, ids: "npt.NDArray[np.int32]", logits: "npt.NDArray[np.float32]") -> "npt.NDArray[np.int32]":
        import numpy as np

        if self._grammar is not None:
            array = self._candidates(ids, logits)
            self._lib.llama_sampler_apply(self._grammar, ctypes.byref(array))
            table = self._table[: len(ids)]
            ids = table["id"][np.isfinite(table["logit"])]
        return np.array([token for token in ids.tolist() if self._may_speak(token)], dtype=np.int32)
