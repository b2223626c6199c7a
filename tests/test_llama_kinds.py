"""Reuse on the real llama.cpp with each kind of model: what comes after it is what a run without reuse computes.

By default to within BOUND; exactly, to the bit. The models are made here (`tiny_models`).
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from backends.llama.decoder import SNAPSHOTS, ContextOptions, NativeDecoder
from backends.llama.engine import Engine, Prefilled, StoppedError
from backends.llama.kv_store import KvStore, Model
from backends.llama.tuning import BATCH, Tuning
from backends.llama.weights import Kind, Weights

pytest_plugins = ["tiny_models"]

CELLS = 1024
WINDOW = 900  # tokens of one prompt with its reply
TUNING = Tuning(2, 2)

BOUND = 0.025
"""How far a logit after reuse may be from that of a cold run, as a share of the logits' standard deviation. Batches
that end elsewhere make 0 (recurrent) to 0.008 (attention) in one step, 0.015 at most in random sessions; twenty
other tokens at the head of a prompt of 600 make 0.1 (sliding window) to 1 (all measured 2026-12-03).
"""

Logits = npt.NDArray[np.float32]


class Counting(NativeDecoder):
    """Knows how many tokens llama.cpp was really given."""

    evaluated = 0

    def evaluate(self, sequence: int, tokens: Sequence[int], position: int, rows: int = 1) -> None:
        super().evaluate(sequence, tokens, position, rows)
        self.evaluated += len(tokens)


@dataclass
class Process:
    """An engine with all that it has, as one process holds it."""

    decoder: Counting
    engine: Engine
    store: KvStore | None

    def prefill(self, tokens: "array[int]", marks: Sequence[int] = ()) -> Prefilled:
        """It counts right, whatever else is tested."""
        before = self.decoder.evaluated
        done = self.engine.prefill(tokens, marks=marks)
        assert self.decoder.evaluated - before == done.evaluated
        assert done.reused + done.evaluated == len(tokens)
        assert 0 <= done.restored <= done.reused
        return done

    def likeliest(self, limit: int, seen: "list[Logits] | None" = None) -> "array[int]":
        """A greedy reply of so many tokens; `seen` gets the logits that each was taken from."""

        def sample(row: int) -> int:
            logits = self.decoder.logits(row)
            if seen is not None:
                seen.append(logits.copy())
            return int(logits.argmax())

        return array("i", self.engine.generate(sample, limit))

    def end(self) -> None:
        if self.store is not None:
            self.store.close()
        self.decoder.close()


def start(
    weights: Weights, folder: Path | None = None, *, cells: int = CELLS, window: int = WINDOW, exact: bool = False
) -> Process:
    """As `backend.py` does it: with as many sequences as the kind is given there."""
    options = ContextOptions(cells, TUNING) if weights.kind.rewinds else ContextOptions(cells, TUNING, SNAPSHOTS)
    decoder = Counting(weights, options)
    store = KvStore(folder, Model("tiny", {}), 1 << 30) if folder is not None else None
    return Process(decoder, Engine(decoder, window, store=store, exact=exact), store)


@contextmanager
def process(weights: Weights, folder: Path | None = None, *, exact: bool = False) -> Iterator[Process]:
    begun = start(weights, folder, exact=exact)
    try:
        yield begun
    finally:
        begun.end()


def cold_logits(weights: Weights, tokens: "array[int]") -> Logits:
    with process(weights) as begun:
        begun.prefill(tokens)
        return begun.decoder.logits().copy()


def assert_agrees(warm: Logits, cold: Logits) -> None:
    """Within the bound, and with the same likeliest token unless two are closer together than that."""
    bound = BOUND * float(cold.std())
    assert np.abs(warm - cold).max() <= bound
    second, first = np.partition(cold, -2)[-2:]
    assert warm.argmax() == cold.argmax() or first - second <= 2 * bound


def tokens(count: int, salt: int = 0) -> "array[int]":
    """Ordinary characters, others for each salt."""
    return array("i", np.random.default_rng(salt).integers(32, 127, count).tolist())


def test_the_kind_is_what_the_file_says(loaded: dict[Kind, Weights]) -> None:
    assert {kind: one.kind for kind, one in loaded.items()} == {kind: kind for kind in Kind}
    assert {kind for kind, one in loaded.items() if one.window} == {Kind.WINDOW}


def test_the_bound_tells_another_prompt_from_this_one(weights: Weights) -> None:
    """Else the tests below would show nothing."""
    prompt, other = tokens(600), tokens(20, 9) + tokens(600)[20:]
    cold = cold_logits(weights, prompt)
    assert np.abs(cold_logits(weights, other) - cold).max() > 3 * BOUND * cold.std()


# What is reused. HEAD and TURN are messages: states are kept at their ends.

HEAD, TURN = tokens(300, 1), tokens(90, 2)
MARKS = [len(HEAD), len(HEAD) + len(TURN)]
FIRST = HEAD + TURN + tokens(37, 3)
OTHER = tokens(40, 7)


@dataclass(frozen=True)
class Way:
    """A prompt behind FIRST and its reply; how many tokens a model that can go back evaluates, and one that cannot."""

    prompt: "Callable[[array[int]], array[int]]"
    rewinding: int
    snapshots: int


WAYS = {
    "next turn": Way(lambda reply: FIRST + reply + OTHER, 41, 41),  # the last token of a reply is not evaluated yet
    "fork": Way(lambda _: HEAD + TURN + OTHER, 40, 40),
    "back": Way(lambda _: FIRST, 1, 1),
    "shorter": Way(lambda _: HEAD + TURN, 1, 90),  # its own last token; a state goes back to the mark before
    "edited tail": Way(lambda _: FIRST[:-5] + OTHER, 40, 72),
    "edited head": Way(lambda _: OTHER + FIRST[40:], len(FIRST), len(FIRST)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_reuse_computes_what_a_cold_run_does(weights: Weights, way: Way) -> None:
    with process(weights) as begun:
        begun.prefill(FIRST, MARKS)
        prompt = way.prompt(begun.likeliest(30))
        done = begun.prefill(prompt, [mark for mark in MARKS if mark <= len(prompt)])
        assert done.evaluated == (way.rewinding if weights.kind.rewinds else way.snapshots)
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt))
        reply = begun.likeliest(20)  # a state that is wrong shows here at the latest
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt + reply[:-1]))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_new_process_computes_what_a_cold_run_does(weights: Weights, way: Way, tmp_path: Path) -> None:
    with process(weights, tmp_path) as begun:
        begun.prefill(FIRST, MARKS)
        prompt = way.prompt(begun.likeliest(30))
        begun.engine.keep()
    marks = [mark for mark in MARKS if mark <= len(prompt)]
    with process(weights, tmp_path) as begun:
        done = begun.prefill(prompt, marks)
        if weights.kind is Kind.ATTENTION:
            assert done.evaluated == way.rewinding
        else:  # what is on disk ends at messages; in memory there is a state just before the last token too
            assert done.evaluated == (37 if way is WAYS["back"] else way.snapshots)
        assert done.restored == done.reused
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt))
        again = begun.prefill(prompt + OTHER, marks)
        assert (again.evaluated, again.restored) == (40, 0)
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt + OTHER))


def test_both_ways_of_a_fork_go_on(weights: Weights) -> None:
    with process(weights) as begun:
        one, other = HEAD + tokens(80, 4), HEAD + tokens(100, 5)
        begun.prefill(one, [len(HEAD)])
        begun.prefill(other, [len(HEAD)])
        for turn in range(4):
            one, other = one + tokens(7, turn), other + tokens(9, turn)
            assert begun.prefill(one).evaluated == 7
            assert_agrees(begun.decoder.logits(), cold_logits(weights, one))
            assert begun.prefill(other).evaluated == 9
            assert_agrees(begun.decoder.logits(), cold_logits(weights, other))


def test_a_stopped_prefill_keeps_what_it_has(weights: Weights) -> None:
    prompt = tokens(600)
    with process(weights) as begun:
        seen: list[int] = []
        with pytest.raises(StoppedError):
            begun.engine.prefill(prompt, seen.append, lambda: len(seen) == 3)
        assert begun.decoder.evaluated == 2 * BATCH
        assert begun.prefill(prompt).evaluated == 600 - 2 * BATCH
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt))


def test_sessions_that_do_not_fit_together_take_turns(weights: Weights) -> None:
    """Each nearly as long as may be: one at a time is in the cache, and llama.cpp is never asked for more."""
    with process(weights) as begun:
        for turn in range(3):
            for salt in (1, 2):
                prompt = tokens(800, salt) + tokens(20 * turn, 3)
                begun.prefill(prompt)
                assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt))


# To the bit.

TURNS, REPLY = 10, 50  # 500 tokens


def ten_turns(weights: Weights, folder: Path | None, *, reuse: bool) -> tuple[list[int], list[Logits], int]:
    """A session in which everything happens that happens to sessions: its replies, the logits of each token, and how
    many tokens of prompts were reused. Without reuse each prompt meets an empty cache.
    """
    drawn: list[int] = []
    seen: list[Logits] = []
    reused = 0
    begun = start(weights, folder, exact=True)
    prompt = tokens(200, 1)
    for turn in range(TURNS):
        match turn:
            case 3:  # a fork from the middle
                prompt = prompt[:260] + tokens(60, 20)
            case 5:  # an edited tail
                prompt = prompt[:-30] + tokens(25, 21)
            case 7:  # another session in between
                begun.prefill(tokens(150, 22))
                prompt += tokens(31, 23)
            case 8:  # another process
                begun.engine.keep()
                begun.end()
                begun = start(weights, folder, exact=True)
                prompt += tokens(31, 24)
            case _:
                prompt += tokens(31, 30 + turn)
        if not reuse:
            begun.engine.forget()
        reused += begun.prefill(prompt, [mark for mark in (150, 256, 390, 512) if mark < len(prompt)]).reused
        reply = begun.likeliest(REPLY, seen)
        drawn += reply
        prompt += reply
    begun.end()
    return drawn, seen, reused


def test_exactly_means_to_the_bit(weights: Weights, tmp_path: Path) -> None:
    cold, cold_seen, none = ten_turns(weights, None, reuse=False)
    warm, warm_seen, reused = ten_turns(weights, tmp_path, reuse=True)
    assert len(cold) == TURNS * REPLY
    assert (none, warm) == (0, cold)
    assert reused > 1000
    assert all(map(np.array_equal, warm_seen, cold_seen))


# Whatever happens, in any order.


class Sessions(RuleBasedStateMachine):
    """Two sessions in a cache that has no room for both at their longest, with states on disk."""

    CELLS, WINDOW, LONGEST = 640, 512, 440

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        self.folder = TemporaryDirectory()
        self.prompts = [tokens(200, 1), tokens(200, 1)[:150] + tokens(80, 2)]
        self.process = self.begin()

    def begin(self) -> Process:
        return start(self.weights, Path(self.folder.name), cells=self.CELLS, window=self.WINDOW)

    session = st.integers(0, 1)
    salt = st.integers(50, 53)

    @rule(session=session, more=st.integers(1, 140), salt=salt, reply=st.integers(0, 40))
    def turn(self, session: int, more: int, salt: int, reply: int) -> None:
        before = self.prompts[session]
        prompt = before[: self.LONGEST - more] + tokens(more, salt)
        self.process.prefill(prompt, [len(prompt) - more])
        self.check(prompt)
        if reply:
            said = self.process.likeliest(reply)
            self.check(prompt + said[:-1])
            prompt = prompt + said
        self.process.engine.keep()
        self.prompts[session] = prompt

    @rule(session=session, more=st.integers(130, 300), salt=salt)
    def stopped(self, session: int, more: int, salt: int) -> None:
        prompt = self.prompts[session][: self.LONGEST - more] + tokens(more, salt)
        begun, asked = self.process, iter([False])
        before = begun.decoder.evaluated
        try:
            begun.engine.prefill(prompt, stop=lambda: next(asked, True))
        except StoppedError:
            assert begun.decoder.evaluated - before <= BATCH
        self.prompts[session] = prompt

    @rule(session=session)
    def fork(self, session: int) -> None:
        self.prompts[1 - session] = self.prompts[session][:]

    @rule(session=session, length=st.integers(1, LONGEST))
    def cut(self, session: int, length: int) -> None:
        self.prompts[session] = self.prompts[session][:length]

    @rule()
    def forget(self) -> None:
        self.process.engine.forget()

    @rule()
    def restart(self) -> None:
        self.process.end()
        self.process = self.begin()

    def check(self, evaluated: "array[int]") -> None:
        assert_agrees(self.process.decoder.logits(), cold_logits(self.weights, evaluated))

    def teardown(self) -> None:
        self.process.end()
        self.folder.cleanup()


def test_sessions_in_any_order(weights: Weights) -> None:
    run_state_machine_as_test(
        partial(Sessions, weights),
        settings=settings(max_examples=8, stateful_step_count=12, deadline=None, derandomize=True),
    )
