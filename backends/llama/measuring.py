"""Measures what a machine runs a model fastest with, in the child process of the trial run (`probe`).

Once for each build, machine and model. A few seconds where a token takes a few milliseconds; where it takes longer,
less is measured.
"""

import os
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, Self, TypeVar

from backends.llama.cores import usable_cores
from backends.llama.decoder import ContextOptions, NativeDecoder
from backends.llama.drafts import MOST
from backends.llama.tuning import BATCHES, Tuning, candidates, fastest
from backends.llama.weights import Weights

_Option = TypeVar("_Option")
_Subject = TypeVar("_Subject")
_BATCH_S: Final = 0.5  # a prefill can be stopped between two batches only
_TRIED: Final = 64  # tokens evaluated to compare numbers of threads
_STEPS: Final = 5  # tokens decoded one by one
_FILL_S: Final = 1.5  # of prefill before decoding is measured: attention shows only where there is something to look at
_FILL: Final = (128, 768)  # tokens, at least and at most
_TURN: Final = (500, 150)  # tokens read and written in a turn of a coding agent


def measure(weights: Weights, kv_type: str = "f16", clock: Callable[[], float] = time.perf_counter) -> Tuning:
    """Raises BackendError (LOCAL) when llama.cpp fails.

    What is compared is run by turns, and the quickest run of each counts: another program may be busy meanwhile.
    """
    tuning = Tuning.unmeasured()
    with _Bench(weights, tuning, kv_type, clock) as bench:
        reading, writing = _compare_threads(bench)
    tuning = replace(tuning, threads=fastest(writing), batch_threads=fastest(reading))
    token_s = min(reading.values()) / _TRIED
    with ExitStack() as stack:
        flashes = (True, False) if kv_type == "f16" else (True,)
        benches = {
            flash: stack.enter_context(_Bench(weights, replace(tuning, flash_attention=flash), kv_type, clock))
            for flash in flashes
        }
        turns, costs = _compare_turns(benches, depth=min(max(int(_FILL_S / token_s), _FILL[0]), _FILL[1]))
    flash = min(turns, key=lambda option: turns[option])
    tuning = replace(tuning, flash_attention=flash, draft_cost=round(costs[flash], 2))
    sizes = [size for size in BATCHES if size * token_s <= _BATCH_S]
    if len(sizes) < 2:
        return tuning
    with ExitStack() as stack:
        batches = {
            size: stack.enter_context(_Bench(weights, replace(tuning, batch=size), kv_type, clock)) for size in sizes
        }
        return replace(tuning, batch=fastest(_quickest(batches, lambda bench: bench.read(sizes[-1]), 2)))


def _compare_threads(bench: "_Bench") -> tuple[dict[int, float], dict[int, float]]:
    """Seconds for reading and for writing, for each number of threads."""
    numbers = candidates(usable_cores(), os.cpu_count() or 1)
    bench.read(_TRIED)  # the weights come from disk at the first time

    def run(threads: int, task: Callable[[], float]) -> float:
        bench.set_threads(threads)
        return task()

    options = {number: number for number in numbers}
    reading = _quickest(options, lambda number: run(number, lambda: bench.read(_TRIED)), 2)
    writing = _quickest(options, lambda number: run(number, bench.write), _STEPS)
    return reading, writing


def _compare_turns(benches: Mapping[bool, "_Bench"], depth: int) -> tuple[dict[bool, float], dict[bool, float]]:
    """Seconds for a turn of a coding agent, and what a token with guesses costs over one without."""
    reading = _quickest(benches, lambda bench: bench.read(depth), 1)
    writing = _quickest(benches, lambda bench: bench.write(), _STEPS)
    guessing = _quickest(benches, lambda bench: bench.write(1 + MOST), _STEPS)
    read, written = _TURN
    turns = {option: read * reading[option] / depth + written * writing[option] for option in benches}
    return turns, {option: guessing[option] / writing[option] for option in benches}


def _quickest(
    options: Mapping[_Option, _Subject], task: Callable[[_Subject], float], rounds: int
) -> dict[_Option, float]:
    runs = [{option: task(subject) for option, subject in options.items()} for _ in range(rounds)]
    return {option: min(run[option] for run in runs) for option in options}


class _Bench:
    """A context to measure with."""

    def __init__(self, weights: Weights, tuning: Tuning, kv_type: str, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        cells = _FILL[1] + 64
        self._batch: Final = tuning.batch
        self._decoder: Final = NativeDecoder(weights, ContextOptions(cells, tuning, 1, kv_type=kv_type))
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoder.close()

    def set_threads(self, threads: int) -> None:
        self._decoder.set_threads(threads, threads)

    def read(self, count: int) -> float:
        """Seconds for `count` tokens from the start, in batches."""
        self._decoder.drop(0)
        self._position = 0
        return self._time([min(self._batch, count - start) for start in range(0, count, self._batch)])

    def write(self, at_once: int = 1) -> float:
        """Seconds for one step of so many tokens behind what is there."""
        return self._time([at_once], rows=at_once)

    def _time(self, batches: Iterable[int], rows: int = 1) -> float:
        begun = self._clock()
        for count in batches:
            self._decoder.evaluate(0, array("i", [1] * count), self._position, rows)
            self._position += count
        self._decoder.logits()  # a GPU has only been asked until then
        return self._clock() - begun
