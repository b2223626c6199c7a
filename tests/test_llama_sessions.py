"""Several sessions in one backend: a turn evaluates its new tokens only; memory and disk stay bounded for long."""

import gc
import os
import random
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from llama_support import Turn, local_backend, note_trial, plain, take_turn, user

from backends.llama.decoder import ContextOptions, NativeDecoder
from backends.llama.engine import Engine
from backends.llama.loaded import KvOptions
from backends.llama.needs import Demand
from backends.llama.tuning import Tuning
from backends.llama.weights import Kind
from context.prompt import Prompt

pytest_plugins = ["tiny_models"]

KINDS = list(Kind)
MEMORY = 800_000  # bytes: some 3,100 tokens of the tiny attention model
QUOTA = 600_000  # bytes
ABOUT = 500  # bytes of the note that says which model states are of
CONTEXT = 2_048
LONGEST = 1_400  # tokens of a session that goes on
TURNS, SETTLED = 500, 100
MOST_GROWTH = 20_000_000  # bytes
BOUND = 0.01  # of a logit, as a share of the logits' standard deviation; measured 2026-12-03: 0.001


class Counter:
    """Counts the tokens that llama.cpp is really given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens = 0
        evaluate = NativeDecoder.evaluate

        def counting(
            decoder: NativeDecoder, sequence: int, tokens: Sequence[int], position: int, rows: int = 1
        ) -> None:
            evaluate(decoder, sequence, tokens, position, rows)
            self.tokens += len(tokens)

        monkeypatch.setattr(NativeDecoder, "evaluate", counting)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name.lower() for kind in KINDS])
async def test_two_sessions_that_alternate_evaluate_only_their_new_tokens(
    tiny_models: dict[Kind, Path], kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    backend = local_backend(tiny_models[kind], tmp_path, cache=KvOptions(memory=8_000_000, lookup=False), context=4_096)
    await backend.prepare()
    prompts = [plain("Tell me about cats. " * 10), plain("What is a dog? " * 20)]
    before: list[Turn | None] = [None, None]
    for number in range(10):
        for session in (0, 1):
            counter.tokens = 0
            turn = await take_turn(backend, prompts[session], max_output=12)
            last = before[session]
            if last is not None:  # the last token of its reply is not evaluated yet
                assert turn.usage.cache_read == last.prefill[-1].total + (last.usage.output or 0) - 1
            assert turn.usage.fresh == turn.prefill[-1].total - (turn.usage.cache_read or 0)
            assert counter.tokens == (turn.usage.fresh or 0) + (turn.usage.output or 0) - 1
            before[session] = turn
            prompts[session] = prompts[session].extend([turn.reply, user(f"Session {session}, turn {number}: go on.")])
    await backend.aclose()


class Branches:
    """What a person does who tries many ways: mostly the next turn, every seventh time a fork from somewhere earlier,
    now and then back to another branch, and a new session when one has become too long.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ends: list[tuple[Prompt, int]] = []  # of branches, with their tokens
        self._earlier: list[Prompt] = []

    def next(self, number: int) -> Prompt:
        words = " ".join(self._chance.choices(("cat", "dog", "bird", "fish", "tree"), k=self._chance.randint(3, 25)))
        live = [prompt for prompt, length in self._ends if length < LONGEST]
        if not live:
            return plain(f"Session {number}: {words}")
        if number % 7 == 0:
            return self._chance.choice(self._earlier[-60:]).append(user(words))
        if number % 11 == 0:
            return self._chance.choice(live).append(user(words))
        return live[-1].append(user(words))

    def add(self, prompt: Prompt, turn: Turn) -> None:
        prompt = prompt.append(turn.reply)
        self._earlier.append(prompt)
        self._ends = [*self._ends[-12:], (prompt, turn.prefill[-1].total + (turn.usage.output or 0))]


async def test_500_turns_with_forks_stay_within_memory_and_disk(tiny_models: dict[Kind, Path], tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    cache = KvOptions(memory=MEMORY, folder=folder, quota=QUOTA)
    # Without flash attention, which rounds so much more (0.03 over such a session) that small mistakes would not show.
    note_trial(tiny_models[Kind.ATTENTION], tmp_path, Tuning(2, 2, flash_attention=False))
    backend = local_backend(tiny_models[Kind.ATTENTION], tmp_path, cache=cache, context=CONTEXT)
    loaded = await backend.loaded()
    assert loaded.store is not None
    assert Demand.of_weights(loaded.weights, "f16").total(loaded.decoder.cells, 1) <= MEMORY
    cold = NativeDecoder(loaded.weights, ContextOptions(CONTEXT, loaded.tuning))
    branches = Branches(random.Random(20261203))
    reused = fresh = settled = fullest = 0
    for number in range(1, TURNS + 1):
        prompt = branches.next(number)
        turn = await take_turn(backend, prompt, max_output=6)
        branches.add(prompt, turn)
        reused, fresh = reused + (turn.usage.cache_read or 0), fresh + (turn.usage.fresh or 0)
        await backend.work(lambda _: loaded.engine.keep())  # as at the end of a turn that answers
        loaded.store.flush()
        fullest = max(fullest, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
        if number % 25 == 0:
            tokens = loaded.prompts.request(prompt)
            warm = await backend.work(lambda _, t=tokens: logits_behind(loaded.engine, loaded.decoder, t))
            assert_right(warm, logits_behind(Engine(cold), cold, tokens))
            cold.drop(0)
        if number == SETTLED:
            settled = resident()
    grown = resident() - settled
    cold.close()
    await backend.aclose()
    assert grown < MOST_GROWTH
    assert QUOTA * 0.9 < fullest <= QUOTA + ABOUT
    assert reused > 5 * fresh


def logits_behind(engine: Engine, decoder: NativeDecoder, tokens: "array[int]") -> "npt.NDArray[np.float32]":
    engine.prefill(tokens)
    return decoder.logits().copy()


def assert_right(warm: "npt.NDArray[np.float32]", cold: "npt.NDArray[np.float32]") -> None:
    assert np.abs(warm - cold).max() <= BOUND * cold.std()


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
