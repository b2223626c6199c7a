"""The engine: evaluates a prompt on top of what the KV cache already holds, then one token at a time.

Everything here runs in one worker thread. What was evaluated stays usable whatever happens: when a prefill is stopped
between two batches, the next one goes on from there.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from backends.base import BackendError, ErrorKind
from backends.llama.decoder import BATCH, Decoder


class StoppedError(Exception):
    """The caller asked to stop; the cache keeps what was evaluated."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Tokens of one prompt: `reused` came from the cache, `evaluated` were computed."""

    reused: int
    evaluated: int


Progress = Callable[[int], None]  # tokens of the prompt that are in the cache now
StopRequested = Callable[[], bool]


def common_prefix(one: "array[int]", other: "array[int]") -> int:
    """How many leading tokens both share."""
    import numpy as np

    length = min(len(one), len(other))
    if not length:
        return 0
    differs = np.frombuffer(one, dtype=np.int32, count=length) != np.frombuffer(other, dtype=np.int32, count=length)
    first = int(differs.argmax())
    return first if differs[first] else length


def can_cut(position: int, first: int, window: int) -> bool:
    """Whether a cache that holds positions from `first` on is still right after everything from `position` on is taken
    back.

    A return value of llama.cpp does not tell: with a sliding window it says yes although the tokens that the window
    needs are gone, and then computes something else without a word (measured with Gemma 3 on 2026-12-01). A recurrent
    state reports its last position as `first`: it cannot go back at all.
    """
    return first == 0 or 0 <= first < position - window


class Engine:
    """Keeps the list of tokens that are in the cache, and never believes in more than what was evaluated."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder: Final = decoder
        self._cached: array[int] = array("i")

    @property
    def cached(self) -> int:
        """Tokens in the cache."""
        return len(self._cached)

    def prefill(
        self, tokens: "array[int]", progress: Progress = lambda _: None, stop: StopRequested = lambda: False
    ) -> Prefilled:
        """Bring the cache to exactly `tokens` (at least one), evaluating only what is not there, in batches.

        `progress` is told before the first batch and after each. Raises StoppedError between batches, and BackendError
        (OVERFLOW for a prompt that does not fit, LOCAL for a failure in llama.cpp).
        """
        if len(tokens) > self._decoder.context:
            raise BackendError(
                ErrorKind.OVERFLOW, f"{len(tokens):,} tokens do not fit a context of {self._decoder.context:,}."
            )
        # The last token is always evaluated: its logits are where the reply begins.
        reused = self._keep(min(common_prefix(tokens, self._cached), len(tokens) - 1))
        progress(reused)
        while len(self._cached) < len(tokens):
            if stop():
                raise StoppedError
            start = len(self._cached)
            self._evaluate(tokens[start : start + BATCH])
            progress(len(self._cached))
        return Prefilled(reused, len(tokens) - reused)

    def generate(self, sample: Callable[[], int], limit: int, stop: StopRequested = lambda: False) -> Iterator[int]:
        """Up to `limit` sampled tokens. Call it behind a prefill, with room for them in the context.

        A token is evaluated when the next one is asked for, so that the last one of a reply costs nothing yet. Raises
        StoppedError between tokens, and BackendError (LOCAL).
        """
        for count in range(limit):
            if stop():
                raise StoppedError
            token = sample()
            yield token
            if count + 1 < limit:
                self._evaluate(array("i", [token]))

    def _keep(self, length: int) -> int:
        """Cut the cache to its first `length` tokens where that is exact, else empty it. Returns what is left."""
        if length == len(self._cached):
            return length
        first, _ = self._decoder.held()
        if length and can_cut(length, first, self._decoder.window) and self._decoder.cut(length):
            del self._cached[length:]
            return length
        self._decoder.clear()
        self._cached = array("i")
        return 0

    def _evaluate(self, tokens: "array[int]") -> None:
        try:
            self._decoder.evaluate(tokens, len(self._cached))
        except BackendError:
            # Part of the batch may be in the cache. Nothing after a failure is worth a wrong continuation.
            self._decoder.clear()
            self._cached = array("i")
            raise
        self._cached.extend(tokens)
