"""The lens: what the model knew when it drew a token, and what each step of sampling made of it. Pure.

Probabilities and entropy are those of the softmax over the whole vocabulary, before any step of sampling. What the
steps did is read from what they left (`sampling.Step`), not computed a second time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from backends.llama.sampling import LOGITS, TEMPERATURE, Step

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SURE: Final = 0.99  # probability from which on a token counts as having no alternative
_DOUBTFUL: Final = 0.5  # probability below which a drawn token could as well have been another one
_DOUBTFUL_BITS: Final = 1.0  # of entropy: as open as a toss of a coin
_BEST: Final = 5  # of the likeliest tokens that are kept; Drawing takes its second choice among the first 4
_CUTS: Final = ("top-k", "top-p", "min-p", "XTC")
_PENALTIES: Final = ("penalties", "DRY")
_FROM_THE_TOP: Final = "XTC"  # cuts the likeliest ones, all others cut the least likely

Piece = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could come, the bytes that it stands for, and what the model said of it. `rank` 1: the likeliest."""

    token: int
    piece: bytes
    logit: float
    probability: float
    rank: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A step that drops candidates: how many there were `before` and `after`, and the two next to the cut, the one that
    was `kept` and the one that was `dropped` (None: nothing was).
    """

    name: str
    before: int
    after: int
    kept: Candidate
    dropped: Candidate | None


@dataclass(frozen=True, slots=True)
class Look:
    """One token of a reply.

    `drawn`: what came. `entropy` in bits. `best`: the likeliest tokens in order. `penalty`: what penalties and DRY took
    from its logit. `before_temperature`, `after_temperature`: its probability among the candidates that were left; None
    where no step of temperature was taken (temperature 0, or a token that was not drawn but chosen). `fitting`: how
    many candidates a grammar left, None where the drawn token fitted by itself.
    """

    drawn: Candidate
    entropy: float
    best: tuple[Candidate, ...]
    cuts: tuple[Cut, ...] = ()
    penalty: float = 0.0
    before_temperature: float | None = None
    after_temperature: float | None = None
    fitting: int | None = None

    @property
    def is_sure(self) -> bool:
        return self.drawn.probability >= SURE

    @property
    def is_doubtful(self) -> bool:
        return self.drawn.probability < _DOUBTFUL or self.entropy >= _DOUBTFUL_BITS

    def instead(self, token: int, piece: Piece) -> "Look":
        """The same place, with another one of the likeliest tokens chosen."""
        chosen = next((candidate for candidate in self.best if candidate.token == token), None)
        if chosen is None:  # as likely as the last one that was kept
            chosen = replace(self.best[-1], token=token, piece=piece(token))
        return Look(chosen, self.entropy, self.best)


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens `start` to `end` (counted from 0, without `end`) that had no alternative."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Seen:
    """A reply through the lens. In tokens: `prompt`, of which `reused` came from the KV cache and `restored` of those
    from disk. `seconds` of prefill. `given`: the beginning of the reply that nobody drew. `ended`: the model came to an
    end; otherwise the reply was cut at its limit.
    """

    prompt: int
    reused: int
    restored: int
    seconds: float
    looks: tuple[Look, ...]
    ended: bool
    given: str = ""


class Recorder:
    """Looks at each token of one reply. `watch` is for the sampler; `drew` is told of each token behind it."""

    def __init__(self, piece: Piece) -> None:
        self._piece: Final = piece
        self._steps: list[Step] = []
        self.looks: list[Look] = []

    def watch(self, step: Step) -> None:
        if step.name == LOGITS:
            self._steps = []
        self._steps.append(step)

    def drew(self, logits: "npt.NDArray[np.float32]", token: int) -> None:
        self.looks.append(look(logits, self._steps, token, self._piece))
        self._steps = []

    def instead(self, index: int, token: int) -> None:
        """The reply is taken back to token `index`, which now is another one of the likeliest."""
        self.looks[index:] = [self.looks[index].instead(token, self._piece)]


class _Vocabulary:
    """The softmax over all tokens."""

    def __init__(self, logits: "npt.NDArray[np.float32]", piece: Piece) -> None:
        import numpy as np

        self._logits = logits
        self._piece = piece
        self.probabilities = _softmax(logits)
        some = self.probabilities[self.probabilities > 0]
        self.entropy = max(0.0, float(-(some * np.log2(some)).sum()))

    def candidate(self, token: int) -> Candidate:
        logit = self._logits[token]
        rank = 1 + int((self._logits > logit).sum())
        return Candidate(token, self._piece(token), float(logit), float(self.probabilities[token]), rank)

    def best(self, count: int) -> "list[int]":
        import numpy as np

        count = min(count, len(self._logits))
        ids = np.argpartition(self._logits, -count)[-count:]
        order = np.lexsort((ids, -self._logits[ids]))  # of equals the lower number first
        return [int(token) for token in ids[order]]


def look(logits: "npt.NDArray[np.float32]", steps: Sequence[Step], token: int, piece: Piece) -> Look:
    """What was known when `token` was drawn from `logits` in these steps (none: it was chosen otherwise)."""
    vocabulary = _Vocabulary(logits, piece)
    best = tuple(vocabulary.candidate(each) for each in vocabulary.best(_BEST))
    seen = Look(vocabulary.candidate(token), vocabulary.entropy, best)
    if not steps:
        return seen
    cuts: list[Cut] = []
    penalised = steps[0]
    for before, after in pairwise(steps):
        if after.name in _CUTS:
            cuts.append(_cut(before, after, vocabulary))
        elif after.name == TEMPERATURE:
            seen = replace(
                seen, before_temperature=_probability(before, token), after_temperature=_probability(after, token)
            )
        elif after.name in _PENALTIES:
            penalised = after
    penalty = _logit(steps[0], token) - _logit(penalised, token)
    fitting = len(steps[0].ids) if len(steps[0].ids) < len(logits) else None
    return replace(seen, cuts=tuple(cuts), penalty=penalty, fitting=fitting)


def _cut(before: Step, after: Step, vocabulary: _Vocabulary) -> Cut:
    import numpy as np

    dropped = ~np.isin(before.ids, after.ids, assume_unique=True)
    from_the_top = after.name == _FROM_THE_TOP
    kept = int(after.ids[(np.argmax if from_the_top else np.argmin)(after.logits)])
    gone: Candidate | None = None
    if dropped.any():
        ids, logits = before.ids[dropped], before.logits[dropped]
        gone = vocabulary.candidate(int(ids[(np.argmin if from_the_top else np.argmax)(logits)]))
    return Cut(after.name, len(before.ids), len(after.ids), vocabulary.candidate(kept), gone)


def _softmax(logits: "npt.NDArray[np.float32]") -> "npt.NDArray[np.float64]":
    import numpy as np

    powers: npt.NDArray[np.float64] = np.exp(logits.astype(np.float64) - float(logits.max()))
    powers /= powers.sum()
    return powers


def _probability(step: Step, token: int) -> float:
    """Of `token` among what the step has left."""
    return float(_softmax(step.logits)[step.ids == token].sum())


def _logit(step: Step, token: int) -> float:
    return float(step.logits[step.ids == token][0])


def sure_runs(looks: Sequence[Look]) -> list[Run]:
    """Where several tokens in a row had no alternative, the longest first."""
    runs = [run for run in _runs(looks) if run.length > 1]
    return sorted(runs, key=lambda run: (-run.length, run.start))


def forced_runs(looks: Sequence[Look]) -> list[Run]:
    """Runs without alternative behind a token that could have been another one: with that token they were decided. The
    longest first.
    """
    runs = [run for run in _runs(looks) if run.start and looks[run.start - 1].is_doubtful]
    return sorted(runs, key=lambda run: (-run.length, run.start))


def most_doubtful(looks: Sequence[Look]) -> list[int]:
    """Indices of the tokens at which the model was least sure what comes next, the greatest entropy first."""
    doubtful = [index for index, each in enumerate(looks) if each.is_doubtful]
    return sorted(doubtful, key=lambda index: (-looks[index].entropy, index))


def _runs(looks: Sequence[Look]) -> list[Run]:
    runs, start = [], None
    for index, each in enumerate(looks):
        if each.is_sure:
            start = index if start is None else start
        elif start is not None:
            runs.append(Run(start, index))
            start = None
    if start is not None:
        runs.append(Run(start, len(looks)))
    return runs
