"""KV reuse: what is kept, what is evaluated again, and what a stop or a failure leaves behind."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import BackendError, ErrorKind
from backends.llama.decoder import ContextOptions, NativeDecoder
from backends.llama.drafts import Drafts
from backends.llama.engine import Engine, StoppedError, can_cut
from backends.llama.kv_store import KvStore, Model
from backends.llama.sequences import common_prefix
from backends.llama.tuning import BATCH, Tuning
from backends.llama.weights import Kind, Weights

pytest_plugins = ["local_models"]

CONTEXT = 1024


class Memory:
    """A stand-in for a context: knows what each sequence holds, and forgets like the kind of model it plays."""

    def __init__(
        self,
        kind: Kind = Kind.ATTENTION,
        *,
        window: int = 0,
        forgets: bool = False,
        cells: int = CONTEXT,
        most: int = 4,
    ) -> None:
        self.kind, self.window, self.cells, self.sequences = kind, window, cells, most
        self.batch = BATCH
        self.last = 0  # the sequence that was evaluated last
        self.all: dict[int, list[tuple[int, object]]] = {}  # of each sequence, its tokens and the cell of each
        self.evaluated: list[int] = []
        self.fails = False
        self._forgets = forgets

    @property
    def tokens(self) -> list[int]:
        return [token for token, _ in self.all[self.last]]

    @property
    def used(self) -> int:
        return len({id(cell) for held in self.all.values() for _, cell in held})

    def evaluate(self, sequence: int, tokens: Sequence[int], position: int, rows: int = 1) -> None:
        held = self.all.setdefault(sequence, [])
        self.last = sequence
        assert position == len(held)
        assert rows <= len(tokens) <= BATCH
        held.extend((token, object()) for token in (tokens[: len(tokens) // 2] if self.fails else tokens))
        if self.fails:
            raise BackendError(ErrorKind.LOCAL, "no")
        assert not self.kind.rewinds or self.used <= self.cells, "more than there is room for"
        self.evaluated.append(len(tokens))

    def held(self, sequence: int) -> tuple[int, int]:
        last = len(self.all.get(sequence, [])) - 1
        if not self.kind.rewinds:
            return last, last
        return max(0, last + 1 - self.window) if self._forgets else min(0, last), last

    def cut(self, sequence: int, position: int) -> bool:
        if not self.kind.rewinds:
            return False
        del self.all[sequence][position:]
        return True

    def share(self, source: int, target: int, length: int) -> None:
        assert not self.all.get(target)
        assert self.kind.rewinds or length == len(self.all[source])
        self.all[target] = self.all[source][:length]

    def drop(self, sequence: int) -> None:
        self.all[sequence] = []

    def save(self, sequence: int, start: int, end: int) -> bytes:
        return array("i", [token for token, _ in self.all[sequence][start:end]]).tobytes()

    def restore(self, sequence: int, data: bytes, start: int, end: int) -> bool:
        tokens = array("i")
        tokens.frombytes(data)
        held = self.all.setdefault(sequence, [])
        assert len(held) == start
        held.extend((token, object()) for token in tokens)
        assert not self.kind.rewinds or self.used <= self.cells
        return len(held) == end


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
        (Memory(Kind.RECURRENT), 0),  # it can only go on
        (
            Memory(Kind.WINDOW, window=64, forgets=True),
            0,
        ),  # what the window needs at 290 is gone, though the cut would succeed
        (Memory(Kind.WINDOW, window=64), 290),  # kept in full size
    ],
    ids=["recurrent", "window", "full window"],
)
def test_a_model_that_cannot_go_back_is_filled_anew(memory: Memory, kept: int) -> None:
    """Field reports 95 and 103."""
    engine = Engine(memory)
    engine.prefill(tokens(300))
    changed = tokens(290) + tokens(20, 9000)
    assert engine.prefill(changed).reused == kept
    assert memory.tokens == changed.tolist()


def test_a_model_that_cannot_go_back_still_goes_on() -> None:
    engine = Engine(Memory(Kind.RECURRENT))
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
    coming = iter(range(50, 99))
    drawn = list(islice(engine.generate(lambda _: next(coming), limit=20), 3))
    assert drawn == [50, 51, 52]
    assert engine.cached == 12
    done = engine.prefill(tokens(10) + array("i", [*drawn, 7, 8]))
    assert (done.reused, done.evaluated) == (12, 3)


def test_a_reply_stops_at_its_limit_and_between_tokens() -> None:
    engine = Engine(Memory())
    engine.prefill(tokens(10))
    assert len(list(engine.generate(lambda _: 1, limit=5))) == 5
    reply = engine.generate(lambda _: 1, 50, lambda: engine.cached > 20)
    with pytest.raises(StoppedError):
        list(reply)
    assert engine.cached == 21


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_common_prefix(one: list[int], other: list[int]) -> None:
    length = common_prefix(array("i", one), array("i", other))
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


KINDS = st.sampled_from([Kind.ATTENTION, Kind.RECURRENT])


@settings(deadline=None)
@given(
    KINDS,
    st.booleans(),
    st.integers(2, 4),
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=12),
    st.booleans(),
)
def test_the_cache_always_holds_what_was_asked_for(
    kind: Kind, exact: bool, most: int, steps: list[tuple[int, int, int]], stored: bool
) -> None:
    """Prompts that go on from any place of the one before, replies behind them, in little room, with states on disk."""
    memory = Memory(kind, cells=700, most=most)
    with TemporaryDirectory() as folder:
        store = KvStore(Path(folder), Model("m", {}), 1 << 20) if stored else None
        engine = Engine(memory, 600, store=store, exact=exact)
        prompt = tokens(300)
        for length, salt, reply in steps:
            prompt = prompt[: min(length, len(prompt), 440)] + tokens(130, 1000 * salt)
            marks = [mark for mark in (100, 260) if mark < len(prompt)]
            done = engine.prefill(prompt, marks=marks)
            assert memory.tokens == prompt.tolist()
            assert done.reused + done.evaluated == len(prompt)
            assert 0 <= done.restored <= done.reused
            assert not exact or not done.reused % BATCH
            for token in engine.generate(lambda _, salt=salt: salt, reply):
                prompt.append(token)
            assert memory.tokens == prompt[: len(memory.tokens)].tolist()
            engine.keep()
            if store is not None:
                store.flush()
        if store is not None:
            store.close()


def test_a_fork_evaluates_its_own_tokens_and_the_other_way_stays() -> None:
    memory = Memory()
    engine = Engine(memory)
    one, other = tokens(200) + tokens(100, 5000), tokens(200) + tokens(120, 9000)
    assert engine.prefill(one).evaluated == 300
    assert engine.prefill(other).evaluated == 120
    for _ in range(10):
        one, other = one + tokens(7, 100), other + tokens(9, 100)
        assert engine.prefill(one).evaluated == 7
        assert engine.prefill(other).evaluated == 9
    assert memory.used == 200 + 100 + 70 + 120 + 90, "what both have is there once"


def test_what_costs_least_to_rebuild_goes_first() -> None:
    memory = Memory(cells=700)
    engine = Engine(memory, 600)
    long, short = tokens(300), tokens(100, 5000)
    engine.prefill(long)
    engine.prefill(short)
    engine.prefill(tokens(350, 9000))
    assert engine.prefill(long + tokens(1, 1)).reused == 300, "it was older, and three times as dear"
    assert engine.prefill(short + tokens(1, 1)).reused == 0


def test_a_recurrent_model_goes_back_to_where_others_may_go_another_way() -> None:
    """Field report 95: a state is kept where messages end."""
    memory = Memory(Kind.RECURRENT, most=8)
    engine = Engine(memory)
    head = tokens(200)
    engine.prefill(head + tokens(50, 5000), marks=[120, 200])
    list(engine.generate(lambda _: 1, 5))
    assert engine.prefill(head + tokens(50, 9000), marks=[120, 200]).reused == 200
    assert engine.prefill(head[:120] + tokens(50, 7000), marks=[120]).reused == 120
    assert engine.prefill(head + tokens(50, 5000), marks=[120, 200]).reused == 249, "the same prompt again"


def test_another_process_goes_on_from_disk(tmp_path: Path) -> None:
    def process() -> tuple[Engine, KvStore]:
        store = KvStore(tmp_path, Model("m", {}), 1 << 20)
        return Engine(Memory(), store=store), store

    engine, store = process()
    head = tokens(300)
    engine.prefill(head + tokens(90, 5000), marks=[100, 300])
    engine.keep()
    store.close()
    engine, store = process()
    done = engine.prefill(head + tokens(90, 5000) + tokens(5, 1))
    assert (done.reused, done.restored, done.evaluated) == (390, 390, 5)
    done = engine.prefill(head + tokens(90, 7000))
    assert (done.reused, done.restored, done.evaluated) == (300, 0, 90)
    store.close()
    engine, store = process()
    done = engine.prefill(tokens(250) + tokens(90, 7000))
    assert (done.reused, done.restored, done.evaluated) == (250, 250, 90), "the first part of a segment is of use too"
    store.close()


@pytest.mark.parametrize("right", [0, 2, 4])
def test_guesses_that_are_not_drawn_are_taken_back(right: int) -> None:
    memory = Memory()
    engine = Engine(memory)
    engine.prefill(tokens(10))

    class Guessing(Drafts):
        def sure(self, row: int) -> bool:
            return True

        hits = 0

        def guess(self, text: "array[int]", most: int) -> "array[int]":
            assert text[-1] == 50 or len(text) > 11
            return array("i", range(51, 51 + right)) + array("i", [1, 1])[: most - right]

        def hit(self) -> None:
            self.hits += 1

    drafts = Guessing()
    rows: list[int] = []
    coming = iter(range(50, 99))

    def sample(row: int) -> int:
        rows.append(row)
        return next(coming)

    drawn = list(islice(engine.generate(sample, 20, drafts=drafts), 1 + right + 1))
    assert drawn == list(range(50, 52 + right))
    assert drafts.hits == right
    assert rows == [-1, *range(-3 - right, -2)]
    assert memory.tokens == [*range(10), *drawn[:-1]]


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
        decoders.append(NativeDecoder(smollm2, ContextOptions(CONTEXT, Tuning(2, 2))))
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
        runs.append(list(engine.generate(lambda row, decoder=decoder: int(decoder.logits(row).argmax()), 20)))
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
