"""Draws one reply token by token; when its tool call could do nothing, goes back and takes the likeliest other way.

A small model that is about to call `edit` often copies the old text once more as the new one. Such a call is refused
anyway, and told so, a greedy model gives up or repeats it. So the reply is taken back to the token at which another one
was nearly as likely, and goes on from there with that one: the model's own second choice, found by one look at numbers
that were computed already. The KV cache keeps everything before that token. Fragments that were told of what is taken
back stay told: the finished call is the one that counts.
"""

import codecs
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backends.base import Event, ToolCallFinished, Veto
from backends.llama.drafts import NO_DRAFTS, Drafts
from backends.llama.engine import Engine, StopRequested
from backends.llama.lens import Recorder
from backends.llama.pieces import whole
from backends.llama.reply import ReplyReader
from backends.llama.sampling import Sampler
from backends.llama.tool_grammar import REPLY_START
from backends.llama.weights import Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_MOST_RETREATS: Final = 3  # in one reply
_LEAST_PROBABILITY: Final = 0.05  # of a second choice that is worth a try
_LOOKED_AT: Final = 4  # of the likeliest tokens

Logits = Callable[[int], "npt.NDArray[np.float32]"]  # of a row of the last batch, counted from its end


@dataclass(frozen=True, slots=True)
class _Step:
    """A drawn token, the character of the reply at which it begins, and the next best choice, if there was one. A step
    that was the next best choice itself has no further one, so that no way is gone twice.
    """

    token: int
    start: int
    other: int | None
    probability: float


@dataclass(slots=True)
class Drawing:
    """One reply. `prompt` are the tokens it follows, `given` those of its beginning at the prompt's end. `sampler`
    makes a new sampler, because a grammar cannot be taken back. `lens` looks at each token, where somebody wants to see
    it. `tokens` are those of the reply as it stands, `drawn` counts also what was taken back.
    """

    engine: Engine
    weights: Weights
    prompt: "array[int]"
    given: list[int]
    sampler: Callable[[], Sampler]
    logits: Logits
    call_id: str
    veto: Veto | None
    tell: Callable[[Event], None]
    stop: StopRequested
    drafts: Drafts = NO_DRAFTS
    lens: Recorder | None = None
    drawn: int = 0
    _steps: list[_Step] = field(default_factory=list)

    @property
    def tokens(self) -> "array[int]":
        return array("i", [step.token for step in self._steps])

    @property
    def kept(self) -> "array[int]":
        """`tokens` without those of a character that the limit has cut off: it was not told, and no prompt gets it."""
        tokens = self.tokens
        return tokens[: whole([self.weights.piece(token) for token in tokens])]

    def run(self, limit: int) -> ReplyReader:
        """Draw up to `limit` tokens and tell the events. Raises what Engine and Sampler raise."""
        for retreats in range(_MOST_RETREATS + 1):
            reader = self._draw(limit, last=retreats == _MOST_RETREATS)
            if reader is not None:
                return reader
        raise AssertionError("the last try always gives a reply")

    def _draw(self, limit: int, *, last: bool) -> ReplyReader | None:
        """Go on behind the tokens so far. None: the reply was taken back to another choice."""
        reader, utf8 = ReplyReader(self.call_id), codecs.getincrementaldecoder("utf-8")("replace")
        text, before = REPLY_START, self.tokens
        reader.feed(text)

        def read(token: int) -> list[Event]:
            nonlocal text
            piece = utf8.decode(self.weights.piece(token))
            text += piece
            return reader.feed(piece)

        with self.sampler() as sampler:
            sampler.accept_given([*self.given, *before])
            for token in before[:-1]:  # told already
                read(token)

            def sample(row: int) -> int:
                logits = self.logits(row)
                token = sampler.choose(logits)
                if self.lens is not None:
                    self.lens.drew(logits, token)
                other, probability = (None, 0.0) if self.veto is None else self._second(sampler, logits, token)
                sampler.accept(token)
                self._steps.append(_Step(token, len(text), other, probability))
                self.drawn += 1
                return token

            def tokens() -> Iterator[int]:
                yield from before[-1:]  # the other choice, which may be the end of the reply
                if before:
                    self.engine.prefill(self.prompt + before, stop=self.stop)
                yield from self.engine.generate(sample, limit - len(before), self.stop, self.drafts)

            for token in tokens():
                events = read(token)
                if not last and self._retreat(text, events):
                    return None
                for event in events:
                    self.tell(event)
                if reader.complete:
                    break
        return reader

    def _retreat(self, text: str, events: list[Event]) -> bool:
        """Whether the call that is complete now was vetoed and another choice was taken instead."""
        finished = next((event for event in events if isinstance(event, ToolCallFinished)), None)
        if finished is None or self.veto is None:
            return False
        offset = self.veto(finished.call)
        if offset is None:
            return False
        first = text.rindex(finished.call.arguments) + offset
        choices = [
            (step.probability, index)
            for index, step in enumerate(self._steps)
            if step.other is not None and step.start >= first
        ]
        probability, index = max(choices, default=(0.0, 0))
        other = self._steps[index].other
        if probability < _LEAST_PROBABILITY or other is None:
            return False
        self._steps[index:] = [_Step(other, self._steps[index].start, None, 0.0)]
        if self.lens is not None:
            self.lens.instead(index, other)
        return True

    def _second(self, sampler: Sampler, logits: "npt.NDArray[np.float32]", token: int) -> tuple[int | None, float]:
        """The likeliest other token that may come here and differs in more than blanks, and its probability."""
        import numpy as np

        best = np.argpartition(logits, -_LOOKED_AT)[-_LOOKED_AT:]
        drawn = self.weights.piece(token).strip()
        for other in best[np.argsort(-logits[best])].tolist():
            if other != token and self.weights.piece(other).strip() not in (drawn, b"") and sampler.fits(other):
                return other, float(np.exp(logits[other] - logits.max()) / np.exp(logits - logits.max()).sum())
        return None, 0.0
