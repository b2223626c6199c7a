"""KV reuse: what is kept, what is evaluated again, and what a stop or a failure leaves behind."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import BackendError, ErrorKind
from backends.llama.decoder import BATCH, NativeDecoder
from backends.llama.engine import Engine, StoppedError, can_cut, common_prefix
from backends.llama.weights import Weights

pytest_plugins = ["local_models"]

CONTEXT = 1024


class Memory:
    """A stand-in for a context: knows what is in its cache, and forgets like the kind of model it plays."""

    def __init__(self, *, window: int = 0, rewinds: bool = True, forgets: bool = False) -> None:
        self.context, self.window = CONTEXT, window
        self.tokens: list[int] = []
        self.evaluated: list[int] = []
        self.fails = False
        self._rewinds, self._forgets = rewinds, forgets

    def evaluate(self, tokens: Sequence[int], position: int) -> None:
        assert position == len(self.tokens)
        assert len(tokens) <= BATCH
        self.tokens.extend(tokens[: len(tokens) // 2] if self.fails else tokens)
        if self.fails:
            raise BackendError(ErrorKind.LOCAL, "no")
        self.evaluated.append(len(tokens))

    def held(self) -> tuple[int, int]:
        last = len(self.tokens) - 1
        first = last if not self._rewinds else max(0, last + 1 - self.window) if self._forgets else min(0, last)
        return first, last

    def cut(self, position: int) -> bool:
        if not self._rewinds:
            return False
        del self.tokens[position:]
        return True

    def clear(self) -> None:
        self.tokens.clear()


def tokens(count: int, start: int = 0) -> "array[int]":
    return array("i", range(start, start + count))


def test_what_is_appended_is_all_that_is_evaluated() -> None:
    memory = Memory()
    engine = Engine(memory)
    engine.prefill(tokens(300))
    assert memory.evaluated == [128, 128, 44]
    memory.evaluated.clear()
    assert engine.prefill(tokens(317)).evaluated == 17
    assert memory.evaluated == [17]


def test_the_same_prompt_again_costs_one_token() -> None:
    engine = Engine(Memory())
    engine.prefill(tokens(300))
    assert engine.prefill(tokens(300)).evaluated == 1


def test_a_change_in_the_middle_costs_what_is_behind_it() -> None:
    memory = Memory()
    engine = Engine(memory)
    engine.prefill(tokens(300))
    changed = tokens(100) + tokens(50, 9000)
    done = engine.prefill(changed)
    assert (done.reused, done.evaluated) == (100, 50)
    assert memory.tokens == changed.tolist()


@pytest.mark.parametrize(
    ("memory", "kept"),
    [
        (Memory(rewinds=False), 0),  # recurrent or hybrid: it can only go on
        (Memory(window=64, forgets=True), 0),  # what the window needs at 290 is gone, though the cut would succeed
        (Memory(window=64), 290),  # kept in full size
    ],
    ids=["recurrent", "window", "full window"],
)
def test_a_model_that_cannot_go_back_is_filled_anew(memory: Memory, kept: int) -> None:
    engine = Engine(memory)
    engine.prefill(tokens(300))
    changed = tokens(290) + tokens(20, 9000)
    assert engine.prefill(changed).reused == kept
    assert memory.tokens == changed.tolist()


def test_a_model_that_cannot_go_back_still_goes_on() -> None:
    engine = Engine(Memory(rewinds=False))
    engine.prefill(tokens(300))
    assert engine.prefill(tokens(310)).evaluated == 10


@pytest.mark.parametrize(
    ("position", "first", "window", "possible"),
    [
        (100, 0, 0, True),
        (100, 0, 512, True),
        (1200, 864, 512, False),  # measured with Gemma 3: llama.cpp says yes and computes something else
        (1400, 864, 512, True),
        (100, 299, 0, False),  # a recurrent state at token 299
        (0, -1, 0, False),
    ],
)
def test_when_a_cache_is_right_after_a_cut(position: int, first: int, window: int, possible: bool) -> None:
    assert can_cut(position, first, window) is possible


def test_a_stopped_prefill_goes_on_where_it_was() -> None:
    memory = Memory()
    engine = Engine(memory)
    seen: list[int] = []
    with pytest.raises(StoppedError):
        engine.prefill(tokens(500), seen.append, lambda: len(seen) == 3)
    assert seen == [0, 128, 256]
    done = engine.prefill(tokens(500))
    assert (done.reused, done.evaluated) == (256, 244)


def test_after_a_failure_nothing_is_believed_to_be_there() -> None:
    memory = Memory()
    engine = Engine(memory)
    engine.prefill(tokens(200))
    memory.fails = True
    with pytest.raises(BackendError):
        engine.prefill(tokens(300))
    memory.fails = False
    assert engine.prefill(tokens(300)).reused == 0
    assert memory.tokens == tokens(300).tolist()


def test_a_prompt_that_does_not_fit_changes_nothing() -> None:
    engine = Engine(Memory())
    engine.prefill(tokens(200))
    with pytest.raises(BackendError) as caught:
        engine.prefill(tokens(CONTEXT + 1))
    assert caught.value.kind is ErrorKind.OVERFLOW
    assert engine.cached == 200


def test_the_last_token_of_a_reply_is_evaluated_with_the_next_turn() -> None:
    memory = Memory()
    engine = Engine(memory)
    engine.prefill(tokens(10))
    drawn = list(islice(engine.generate(iter(range(50, 99)).__next__, limit=20), 3))
    assert drawn == [50, 51, 52]
    assert engine.cached == 12
    done = engine.prefill(tokens(10) + array("i", [*drawn, 7, 8]))
    assert (done.reused, done.evaluated) == (12, 3)


def test_a_reply_stops_at_its_limit_and_between_tokens() -> None:
    engine = Engine(Memory())
    engine.prefill(tokens(10))
    assert len(list(engine.generate(lambda: 1, limit=5))) == 5
    reply = engine.generate(lambda: 1, 50, lambda: engine.cached > 20)
    with pytest.raises(StoppedError):
        list(reply)
    assert engine.cached == 21


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_common_prefix(one: list[int], other: list[int]) -> None:
    length = common_prefix(array("i", one), array("i", other))
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_cache_always_holds_what_was_asked_for(steps: list[tuple[int, int]]) -> None:
    memory = Memory()
    engine = Engine(memory)
    prompt = tokens(40)
    for length, salt in steps:
        prompt = prompt[:length] + tokens(20, 100 * salt)
        done = engine.prefill(prompt)
        assert memory.tokens == prompt.tolist()
        assert done.reused + done.evaluated == len(prompt)


# The same on the real thing.


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Weights]:
    weights = Weights.load(smollm2_path)
    yield weights
    weights.close()


@pytest.fixture
def open_engine(smollm2: Weights) -> Iterator[Callable[[], tuple[Engine, NativeDecoder]]]:
    decoders: list[NativeDecoder] = []

    def make() -> tuple[Engine, NativeDecoder]:
        decoders.append(NativeDecoder(smollm2, CONTEXT, 2))
        return Engine(decoders[-1]), decoders[-1]

    yield make
    for decoder in decoders:
        decoder.close()


def text(weights: Weights, sentences: int) -> "array[int]":
    return weights.tokenize("".join(f"Sentence {number} is about a small cat. " for number in range(sentences)))


def test_a_cold_run_is_repeatable(smollm2: Weights, open_engine: Callable[[], tuple[Engine, NativeDecoder]]) -> None:
    prompt = text(smollm2, 15)
    runs = []
    for _ in range(2):
        engine, decoder = open_engine()
        engine.prefill(prompt)
        runs.append(list(engine.generate(lambda decoder=decoder: int(decoder.logits().argmax()), 20)))
    assert runs[0] == runs[1]


def test_a_cut_cache_continues_as_a_fresh_one(
    smollm2: Weights, open_engine: Callable[[], tuple[Engine, NativeDecoder]]
) -> None:
    first, other = text(smollm2, 20), text(smollm2, 12) + smollm2.tokenize("Now something else: " * 10)
    engine, decoder = open_engine()
    engine.prefill(first)
    reused = engine.prefill(other).reused
    assert reused >= len(text(smollm2, 12)) - 1
    warm = decoder.logits().copy()
    fresh_engine, fresh = open_engine()
    fresh_engine.prefill(other)
    cold = fresh.logits()
    # Not bit for bit: batches end elsewhere (docs/local-models.md). The distribution is the same.
    probabilities = [np.exp(values - np.logaddexp.reduce(values)) for values in (warm, cold)]
    assert np.abs(probabilities[0] - probabilities[1]).max() < 0.05
    assert engine.cached == len(other)
    assert decoder.held() == (0, len(other) - 1)


def test_reuse_at_a_batch_boundary_is_exact(
    smollm2: Weights, open_engine: Callable[[], tuple[Engine, NativeDecoder]]
) -> None:
    prompt = text(smollm2, 20)
    engine, decoder = open_engine()
    engine.prefill(prompt[:BATCH])
    engine.prefill(prompt)
    fresh_engine, fresh = open_engine()
    fresh_engine.prefill(prompt)
    assert np.array_equal(decoder.logits(), fresh.logits())
