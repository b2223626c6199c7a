"""From logits to one token.

The order of llama.cpp: repeat penalties, DRY, top-k, top-p, min-p, XTC, temperature, then the draw. At temperature 0
the likeliest token is taken behind penalties and DRY. A grammar comes last: the token is drawn as if there were none
and checked; only when it does not fit is the choice narrowed, first among the likeliest tokens, then over the whole
vocabulary. Checking one token costs microseconds, masking a vocabulary of 152,000 takes 20 to 40 ms (measured
2026-12-01, docs/local-models.md).
"""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """How tokens are drawn. Temperature 0 takes the likeliest token and ignores `top_k`, `top_p`, `min_p`, XTC and
    `seed`, but not the penalties and DRY.

    `top_k` 0, `top_p` 1, `min_p` 0, `repeat` 1, `frequency` 0, `presence` 0, `dry_multiplier` 0 and `xtc_probability` 0
    switch each of them off. The penalties look at the last `repeat_window` tokens of the reply. Equal seeds and logits
    give equal tokens.

    DRY takes `dry_multiplier` × `dry_base` ^ (n - `dry_allowed`) from the logit of a token that would go on with a
    repetition: the last n tokens, at least `dry_allowed`, stood among the last `dry_window` tokens of the reply before,
    followed by this token. No repetition reaches over one of `dry_breakers`.

    XTC ("exclude top choices"), with `xtc_probability`, drops all candidates of at least `xtc_threshold` but the least
    likely of them.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    repeat_window: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed: int = 2
    dry_window: int = 2_048
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    seed: int = 0

    def seeded(self, digest: str, temperature: float | None = None) -> "Sampling":
        """For the reply to the prompt with this digest (hexadecimal): the same prompt gives the same reply, and two
        prompts do not share their luck. `temperature` None: that of the settings.
        """
        seed = self.seed ^ int(digest[:8], 16)
        return replace(self, seed=seed, temperature=self.temperature if temperature is None else temperature)


@dataclass(frozen=True, slots=True)
class Step:
    """What a step of sampling has left: token ids and their logits, in no particular order. `name` "logits" is what the
    model said, before the first step.
    """

    name: str
    ids: "npt.NDArray[np.int32]"
    logits: "npt.NDArray[np.float32]"


LOGITS: Final = "logits"
TEMPERATURE: Final = "temperature"
Watch = Callable[[Step], None]


class Sampler:
    """Draws the tokens of one reply. `grammar` is GBNF with the rule `root`; without one any text may come.

    Control tokens are never drawn, except those that end a reply when there is no grammar. `watch` is told of every
    step of every draw; the draws are the same without it.
    """

    def __init__(
        self, weights: Weights, sampling: Sampling, grammar: str | None = None, watch: Watch | None = None
    ) -> None:
        """Raises BackendError (LOCAL) for a grammar that llama.cpp does not understand."""
        import numpy as np

        self._lib: Final = native.library()
        self._weights: Final = weights
        self._watch: Final = watch
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
        self._steps: Final = self._make_steps(sampling)
        self._chain = self._lib.llama_sampler_chain_init(self._lib.llama_sampler_chain_default_params())
        for _, step in self._steps:
            self._lib.llama_sampler_chain_add(self._chain, step)

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

    def _make_steps(self, sampling: Sampling) -> list[tuple[str, Any]]:
        """llama.cpp's samplers in order, by name. The chain takes care of their memory."""
        lib, size = self._lib, self._weights.size
        steps = []
        if (sampling.repeat, sampling.frequency, sampling.presence) != (1.0, 0.0, 0.0):
            penalties = (sampling.repeat_window, sampling.repeat, sampling.frequency, sampling.presence)
            steps.append(("penalties", lib.llama_sampler_init_penalties(size, *penalties)))
        if sampling.dry_multiplier > 0:
            steps.append(("DRY", self._make_dry(sampling)))
        if sampling.temperature <= 0:
            return [*steps, ("greedy", lib.llama_sampler_init_greedy())]
        if sampling.top_k > 0:
            steps.append(("top-k", lib.llama_sampler_init_top_k(sampling.top_k)))
        if sampling.top_p < 1:
            steps.append(("top-p", lib.llama_sampler_init_top_p(sampling.top_p, _KEEP)))
        if sampling.min_p > 0:
            steps.append(("min-p", lib.llama_sampler_init_min_p(sampling.min_p, _KEEP)))
        seed = sampling.seed & 0xFFFFFFFF
        if sampling.xtc_probability > 0:
            xtc = (sampling.xtc_probability, sampling.xtc_threshold)
            steps.append(("XTC", lib.llama_sampler_init_xtc(*xtc, _KEEP, seed)))
        steps.append((TEMPERATURE, lib.llama_sampler_init_temp(sampling.temperature)))
        steps.append(("draw", lib.llama_sampler_init_dist(seed)))
        return steps

    def _make_dry(self, sampling: Sampling) -> Any:
        breakers = [text.encode() for text in sampling.dry_breakers]
        return self._lib.llama_sampler_init_dry(
            self._weights.vocabulary,
            *(sampling.dry_multiplier, sampling.dry_base, sampling.dry_allowed, sampling.dry_window),
            (ctypes.c_char_p * len(breakers))(*breakers),
            len(breakers),
        )

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
        if self._watch is None:
            self._lib.llama_sampler_apply(self._chain, ctypes.byref(candidates))
        else:
            self._watch(_step(LOGITS, candidates))
            for name, step in self._steps:
                self._lib.llama_sampler_apply(step, ctypes.byref(candidates))
                self._watch(_step(name, candidates))
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


def _step(name: str, candidates: Any) -> Step:
    import numpy as np

    data = np.ctypeslib.as_array(candidates.data, (candidates.size,))
    return Step(name, data["id"].copy(), data["logit"].copy())
