"""The engine: evaluates a prompt on top of what the KV cache already holds, then one token at a time.

Several sequences lie in one cache: the conversation that goes on, what it was forked from, other sessions. A prompt
goes on from the one that has most in common with it, or from what is on disk (`kv_store`). Everything here runs in one
worker thread. What was evaluated stays usable whatever happens: when a prefill is stopped between two batches, the next
one goes on from there.
"""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backends.base import BackendError, ErrorKind
from backends.llama.decoder import ROWS, Decoder
from backends.llama.drafts import NO_DRAFTS, Drafts
from backends.llama.kv_store import KvStore
from backends.llama.sequences import Held, Sequences
from backends.llama.weights import Kind

_SMALL: Final = 64  # tokens: a tail as short as that is not kept beside what takes its place
_WORTH_READING: Final = 32  # tokens that disk must have beyond memory; fewer are evaluated sooner
_WORTH_WRITING: Final = 32
_RESTORED: Final = 0.02  # what a token from disk costs, as a share of evaluating it (measured: 0.1 to 2 %)
_TYPICAL_S: Final = 0.01  # seconds a token, before anything was measured


class StoppedError(Exception):
    """The caller asked to stop; the cache keeps what was evaluated."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Tokens of one prompt: `reused` came from the cache, of which `restored` from disk; `evaluated` were computed."""

    reused: int
    evaluated: int
    restored: int = 0


Progress = Callable[[int], None]  # tokens of the prompt that are in the cache now
StopRequested = Callable[[], bool]


def can_cut(position: int, first: int, window: int) -> bool:
    """Whether a sequence that holds positions from `first` on is still right after everything from `position` on is
    taken back.

    A return value of llama.cpp does not tell: with a sliding window it says yes although the tokens that the window
    needs are gone, and then computes something else without a word (measured with Gemma 3 on 2026-12-01). A recurrent
    state reports its last position as `first`: it cannot go back at all.
    """
    return first == 0 or 0 <= first < position - window


class Engine:
    """Keeps the tokens that each sequence holds, and never believes in more than what was evaluated.

    `window`: tokens that one prompt with its reply may have (None: all that there is room for). `store`: where states
    are kept beyond the process. `exact`: reuse only what a cold run would have evaluated in the same batches, so that
    logits are equal to the bit; one sequence then, because a token's place in the cache can show in the last digit.
    """

    def __init__(
        self, decoder: Decoder, window: int | None = None, *, store: KvStore | None = None, exact: bool = False
    ) -> None:
        self._decoder: Final = decoder
        self._batch: Final = decoder.batch
        self._window: Final = window or decoder.cells
        # A sliding window comes back from disk without its older tokens, so that all later ones get other cells.
        self._store: Final = None if exact and decoder.window else store
        self._exact: Final = exact
        # A recurrent state takes no cells that grow; what bounds its sequences is their number.
        cells = self._window * decoder.sequences if decoder.kind is Kind.RECURRENT else decoder.cells
        self._sequences: Final = Sequences(1 if exact and decoder.kind.rewinds else decoder.sequences, cells)
        self._current: int | None = None
        self._token_s = _TYPICAL_S

    @property
    def cached(self) -> int:
        """Tokens in the current sequence."""
        return len(self._held.tokens) if self._current is not None else 0

    @property
    def sequences(self) -> int:
        """How many are held."""
        return len(self._sequences)

    def prefill(
        self,
        tokens: "array[int]",
        progress: Progress = lambda _: None,
        stop: StopRequested = lambda: False,
        marks: Sequence[int] = (),
    ) -> Prefilled:
        """Bring the current sequence to exactly `tokens` (at least one), evaluating only what is nowhere, in batches.

        `marks`: lengths, in order, at which other prompts may go another way; states are kept there. `progress` is told
        before the first batch and after each. Raises StoppedError between batches, and BackendError (OVERFLOW for a
        prompt that does not fit, LOCAL for a failure in llama.cpp).
        """
        if len(tokens) > self._window:
            raise BackendError(ErrorKind.OVERFLOW, f"{len(tokens):,} tokens do not fit a context of {self._window:,}.")
        # The last token is always evaluated: its logits are where the reply begins.
        reused, restored = self._begin(tokens, len(tokens) - 1)
        # At once, not when cells run out: attention looks over all cells up to the last one that is used.
        self._make_room(len(tokens) - self.cached)
        progress(reused)
        kept = [mark - mark % self._batch if self._exact else mark for mark in marks]
        for end in self._ends(kept, reused, len(tokens)):
            while (start := self.cached) < end:
                if stop():
                    raise StoppedError
                self._evaluate(tokens[start : min(start + self._batch, end)])
                progress(self.cached)
            if end in kept and not (self._exact and self._rewinds):
                self._save(end)
            if end < len(tokens) and not self._rewinds:
                self._take_snapshot()
        if self._exact and self._rewinds:  # batches do not end there, and need not
            for mark in kept:
                self._save(mark)
        return Prefilled(reused, len(tokens) - reused, restored)

    def generate(
        self,
        sample: Callable[[int], int],
        limit: int,
        stop: StopRequested = lambda: False,
        drafts: Drafts = NO_DRAFTS,
    ) -> Iterator[int]:
        """Up to `limit` sampled tokens. Call it behind a prefill, with room for them in the context.

        `sample` draws from the logits of a row of the last batch, counted from its end. `drafts` guesses what comes
        next, which is evaluated along with the token before it; a guess that is not drawn is taken back. A token is
        evaluated when the next one is asked for, so that the last one of a reply costs nothing yet. Raises StoppedError
        between tokens, and BackendError (LOCAL).
        """
        guessed, row, alone = 0, -1, True  # `guessed`: tokens in the cache that were not drawn yet
        try:
            for left in range(limit, 0, -1):
                if stop():
                    raise StoppedError
                if not alone and not drafts.sure(row):
                    self._cut_to(self.cached - guessed)
                    self._evaluate_again()
                    guessed, row, alone = 0, -1, True
                token = sample(row)
                if guessed and self._held.tokens[-guessed] == token:
                    guessed, row = guessed - 1, row + 1
                    drafts.hit()
                    yield token
                    continue
                self._cut_to(self.cached - guessed)
                guessed = 0
                yield token
                if left == 1:
                    return
                new = array("i", [token])
                most = min(left - 1, ROWS - 1, self._window - self.cached - 1) if self._rewinds else 0
                guess = drafts.guess(self._held.tokens + new, most) if most > 0 else new[:0]
                self._evaluate(new + guess, rows=1 + len(guess))
                guessed, row, alone = len(guess), -1 - len(guess), not guess
        finally:
            self._cut_to(max(0, self.cached - guessed))

    def keep(self) -> None:
        """Put the current sequence on disk, as far as it is not there yet."""
        self._save(self.cached)

    def forget(self) -> None:
        """Empty the cache; what is on disk stays."""
        for sequence in list(self._sequences):
            self._drop(sequence)

    # Where a prompt goes on from

    def _begin(self, tokens: "array[int]", most: int) -> tuple[int, int]:
        """Make a sequence the current one that holds the first tokens of the prompt, at most `most`. How many those
        are, and how many of them come from disk.
        """
        wanted = tokens[:most]
        source, length = self._sequences.best(wanted, self._usable)
        stored = self._store.find(wanted, parts=self._restores_parts) if self._store is not None else None
        restores = stored is not None and stored.length - length >= _WORTH_READING
        if restores and stored is not None:
            within = stored.starts_within(length)
            length = self._usable(source, within) if source is not None and within < length else length
        self._go_on(source, length)
        if not restores or stored is None or self._store is None:
            return length, 0
        for segment in stored.segments:
            if segment.start < self.cached:
                continue
            data = self._store.load(segment)
            if data is None or not self._restore(segment.tokens, data):
                break
        self._cut_to(min(self.cached, stored.length))
        return self.cached, max(0, self.cached - length)

    def _usable(self, source: int, length: int) -> int:
        """How many of the `length` tokens in common a prompt can go on from."""
        held = self._sequences[source]
        if self._exact:
            length = min(length, held.cold)
            length -= length % self._batch
        if length == len(held.tokens):
            return length
        return length if self._can_cut(source, length) else 0

    def _can_cut(self, sequence: int, length: int) -> bool:
        first, _ = self._decoder.held(sequence)
        if first >= 0:
            first = max(first, self._sequences[sequence].complete_from)
        return can_cut(length, first, self._decoder.window)

    def _go_on(self, source: int | None, length: int) -> None:
        """Make a sequence the current one that holds the first `length` tokens of `source`."""
        if self._exact and self._decoder.kind is Kind.HYBRID:
            self._drop_all_but(source, length)
        if source is None or not length:
            self._current = self._new()
            return
        held = self._sequences[source]
        besides = len(held.tokens) - length
        if not held.snapshot and (besides < _SMALL or self._sequences.free_cells == 0 or self._is_alone):
            self._current = source
            self._sequences.touch(source)
            self._cut_to(length)
            return
        self._sequences.touch(source)
        target = self._new(keep=source)
        self._decoder.share(source, target, length)
        self._sequences.share(source, target, length)
        self._current = target

    def _drop_all_but(self, source: int | None, length: int) -> None:
        """Leave what begins the first `length` tokens of `source`: the next ones get the cells of a cold run."""
        start = self._sequences[source].tokens[:length] if source is not None else array("i")
        for sequence in self._sequences:
            tokens = self._sequences[sequence].tokens
            if len(tokens) > length or tokens != start[: len(tokens)]:
                self._drop(sequence)

    @property
    def _is_alone(self) -> bool:
        """Whether there can be one sequence only."""
        return self._exact and self._rewinds

    def _new(self, keep: int | None = None) -> int:
        """An empty sequence, in place of another one if need be."""
        while (free := self._sequences.free_sequence) is None:
            victim = self._sequences.victim(self._cost, keep)
            assert victim is not None  # there is more than one place, or nothing is kept
            self._drop(victim)
        self._sequences.begin(free)
        return free

    # The current sequence

    @property
    def _held(self) -> Held:
        assert self._current is not None
        return self._sequences[self._current]

    @property
    def _rewinds(self) -> bool:
        return self._decoder.kind.rewinds

    @property
    def _restores_parts(self) -> bool:
        """Whether the first tokens of what is on disk are of use without the others: with a sliding window llama.cpp
        writes only what the last of them need.
        """
        return self._decoder.kind is Kind.ATTENTION and not self._exact

    def _ends(self, marks: Sequence[int], reused: int, length: int) -> list[int]:
        """Where a batch ends because a state is kept, beyond the `reused` tokens, and the end of the prompt.

        Exactly: only between batches of a cold run. A state that cannot be gone back to is kept ahead of the last token
        too, for another reply to the same prompt.
        """
        before = length - 1
        ends = {*marks}
        if not self._rewinds:
            ends.add(before - before % self._batch if self._exact else before)
        elif self._exact:
            ends.clear()
        return [*sorted(end for end in ends if reused < end < length), length]

    def _take_snapshot(self) -> None:
        assert self._current is not None
        target = self._new(keep=self._current)
        self._decoder.share(self._current, target, self.cached)
        self._sequences.share(self._current, target, self.cached)
        self._sequences[target].snapshot = True

    def _save(self, length: int) -> None:
        """Put the first `length` tokens of the current sequence on disk, as far as they are not there."""
        if self._store is None or self._current is None:
            return
        held = self._held
        length = min(length, held.cold) if self._exact else length
        if length < len(held.tokens) and not (self._rewinds and self._can_cut(self._current, length)):
            return
        tokens = held.tokens[:length]
        if self._rewinds:
            start = self._store.find(tokens, parts=False).length
        elif not self._store.has(tokens):
            start = 0
        else:
            return
        if length - start < _WORTH_WRITING:
            return
        self._store.keep(tokens, start, self._decoder.save(self._current, start, length))
        held.saved = max(held.saved, length)

    def _restore(self, tokens: "array[int]", data: bytes) -> bool:
        assert self._current is not None
        start = self.cached
        self._make_room(len(tokens))
        if not self._decoder.restore(self._current, data, start, start + len(tokens)):
            self._lose()
            return False
        self._sequences.extend(self._current, tokens)
        held = self._held
        held.saved = len(held.tokens)
        held.cold = len(held.tokens) if self._exact else 0
        if self._decoder.window:  # see _restores_parts
            held.complete_from = max(0, len(held.tokens) - self._decoder.window)
        return True

    def _cut_to(self, length: int) -> None:
        if length >= self.cached:
            return
        assert self._current is not None
        if not length or not self._decoder.cut(self._current, length):
            self._lose()
            return
        self._sequences.cut(self._current, length)

    def _lose(self) -> None:
        """Empty the current sequence."""
        assert self._current is not None
        self._drop(self._current)
        self._sequences.begin(self._current)

    def _evaluate_again(self) -> None:
        """The last token alone: beside others its logits differ in the last digits."""
        last = self._held.tokens[-1:]
        self._cut_to(self.cached - 1)
        self._evaluate(last)

    def _evaluate(self, tokens: "array[int]", rows: int = 1) -> None:
        self._make_room(len(tokens))
        held, start = self._held, self.cached
        assert self._current is not None
        begun = time.perf_counter()
        try:
            self._decoder.evaluate(self._current, tokens, start, rows)
        except BackendError:
            # Part of the batch may be in the cache. Nothing after a failure is worth a wrong continuation.
            self._lose()
            raise
        if len(tokens) == self._batch:
            self._token_s = (time.perf_counter() - begun) / self._batch
            if held.cold == start and not start % self._batch:
                held.cold += self._batch
        self._sequences.extend(self._current, tokens)

    # What is given up for it

    def _make_room(self, cells: int) -> None:
        """See to it that so many cells are free, before they are asked for."""
        while self._sequences.free_cells < cells:
            victim = self._sequences.victim(self._cost, self._current)
            if victim is None:
                raise BackendError(
                    ErrorKind.OVERFLOW,
                    f"{self.cached + cells:,} tokens do not fit a KV cache of {self._decoder.cells:,}.",
                )
            self._drop(victim)

    def _cost(self, held: Held, own: int) -> float:
        """Seconds to rebuild the last `own` tokens: later ones look at more of them; what is on disk is read."""
        last = len(held.tokens)
        saved = max(0, held.saved - (last - own))
        deep = 1 + (last - own / 2) / 8192
        return self._token_s * deep * (own - saved + _RESTORED * saved)

    def _drop(self, sequence: int) -> None:
        self._decoder.drop(sequence)
        self._sequences.drop(sequence)
