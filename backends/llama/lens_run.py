"""Draws a reply under the lens, and goes back to one of its tokens to take another one.

Going back is a prefill of fewer tokens: the engine cuts the KV cache there, and evaluates one token. Everything here
runs in the worker's thread.
"""

import codecs
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backends.base import BackendError, ErrorKind
from backends.llama.engine import Engine, Prefilled, StopRequested
from backends.llama.lens import Recorder, Seen
from backends.llama.reply import ReplyReader
from backends.llama.sampling import Sampler, Sampling
from backends.llama.tool_grammar import REPLY_START
from backends.llama.weights import Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Logits = Callable[[int], "npt.NDArray[np.float32]"]


@dataclass(frozen=True, slots=True)
class View:
    """What is drawn. `prompt`: its tokens; `given`: those at its end that are the beginning of the reply, which a
    grammar must be told of. `grammar` None: any text, until the model ends it. `limit` in tokens of the reply.
    """

    prompt: "array[int]"
    given: "array[int]"
    sampling: Sampling
    grammar: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class Branch:
    """The way that a reply did not go. `at`: the token (counted from 0) at which it parts; `rank`: of the one taken
    there, among those that could come. `seen`: the whole reply, and what going back took.
    """

    at: int
    rank: int
    seen: Seen


class LensRun:
    """One prompt. `logits` are those of a row of the last batch, as the decoder gives them."""

    def __init__(self, engine: Engine, weights: Weights, logits: Logits, view: View) -> None:
        self._engine: Final = engine
        self._weights: Final = weights
        self._logits: Final = logits
        self._view: Final = view

    def draw(self, stop: StopRequested = lambda: False) -> Seen:
        """The reply as it comes. Raises StoppedError, and BackendError (OVERFLOW, LOCAL)."""
        prefilled, seconds = self._prefill(array("i"), stop)
        recorder = Recorder(self._weights.piece)
        with self._sampler(recorder) as sampler:
            return self._go_on(recorder, sampler, prefilled, seconds, stop)

    def branch(self, seen: Seen, at: int, rank: int | None = None, stop: StopRequested = lambda: False) -> Branch:
        """Back to token `at` of `seen`, and on from there with the token of that `rank` instead (None: the likeliest
        one that was not drawn). Raises as `draw` does, and BackendError (INVALID) where there is no such token.
        """
        if not 0 <= at < len(seen.looks):
            raise BackendError(
                ErrorKind.INVALID, f"The reply has {len(seen.looks)} tokens, and none is number {at + 1}."
            )
        before = [look.drawn.token for look in seen.looks[:at]]
        there, seconds = self._prefill(array("i", before), stop)
        recorder = Recorder(self._weights.piece)
        with self._sampler(recorder) as sampler:
            for token in before:
                sampler.accept(token)
            token, rank = self._other(sampler, seen.looks[at].drawn.token, rank)
            recorder.looks = list(seen.looks[:at])
            recorder.drew(self._logits(-1), token)
            sampler.accept(token)
            self._prefill(array("i", [*before, token]), stop)
            return Branch(at, rank, self._go_on(recorder, sampler, there, seconds, stop))

    def _prefill(self, drawn: "array[int]", stop: StopRequested) -> tuple[Prefilled, float]:
        begun = time.perf_counter()
        prefilled = self._engine.prefill(self._view.prompt + drawn, stop=stop)
        return prefilled, time.perf_counter() - begun

    def _sampler(self, recorder: Recorder) -> Sampler:
        sampler = Sampler(self._weights, self._view.sampling, self._view.grammar, recorder.watch)
        sampler.accept_given(self._view.given.tolist())
        return sampler

    def _go_on(
        self, recorder: Recorder, sampler: Sampler, prefilled: Prefilled, seconds: float, stop: StopRequested
    ) -> Seen:
        """Draw behind the tokens so far, which the engine holds, to the end of the reply."""

        def sample(row: int) -> int:
            logits = self._logits(row)
            token = sampler.choose(logits)
            recorder.drew(logits, token)
            sampler.accept(token)
            return token

        end = _End(self._weights, grammar=self._view.grammar is not None)
        ended = any(end.comes_with(look.drawn.token) for look in recorder.looks)
        limit = self._view.limit - len(recorder.looks)
        if not ended and limit > 0:
            for token in self._engine.generate(sample, limit, stop):
                if ended := end.comes_with(token):
                    break
        prompt = prefilled.reused + prefilled.evaluated
        given = REPLY_START if self._view.grammar is not None else ""
        return Seen(prompt, prefilled.reused, prefilled.restored, seconds, tuple(recorder.looks), ended, given)

    def _other(self, sampler: Sampler, drawn: int, rank: int | None) -> tuple[int, int]:
        """The token that takes the place of `drawn`, and its rank among those that fit."""
        import numpy as np

        found = 0
        for token in np.argsort(-self._logits(-1), kind="stable").tolist():
            if not sampler.fits(token):
                continue
            found += 1
            if token == drawn and found == rank:
                raise BackendError(
                    ErrorKind.INVALID, f"The token of rank {rank} is the one that was drawn. Choose another one."
                )
            if (rank is None and token != drawn) or found == rank:
                return token, found
        raise BackendError(ErrorKind.INVALID, f"Only {found} tokens can stand there. Choose another place.")


class _End:
    """Tells the last token of a reply."""

    def __init__(self, weights: Weights, *, grammar: bool) -> None:
        self._weights: Final = weights
        self._reader: Final = ReplyReader("lens") if grammar else None
        self._utf8: Final = codecs.getincrementaldecoder("utf-8")("replace")
        if self._reader is not None:
            self._reader.feed(REPLY_START)

    def comes_with(self, token: int) -> bool:
        if self._reader is None:
            return self._weights.ends_reply(token)
        self._reader.feed(self._utf8.decode(self._weights.piece(token)))
        return self._reader.complete
