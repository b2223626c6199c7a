"""What a context takes in memory, for each kind of model: foreseen as it is, and kept within what is allowed."""

from array import array
from pathlib import Path

import pytest
from llama_support import local_backend, plain, take_turn

from backends.base import BackendError
from backends.llama.decoder import SNAPSHOTS, ContextOptions, NativeDecoder
from backends.llama.loaded import KvOptions, context_options
from backends.llama.needs import Demand
from backends.llama.tuning import Tuning
from backends.llama.weights import Kind, Weights

pytest_plugins = ["tiny_models"]

TUNING = Tuning(1, 1)
MOST_NOTES = 40  # bytes that llama.cpp notes of each token besides
MOST_HEAD = 200  # bytes of a saved sequence that are neither


def test_tokens_and_states_take_what_is_foreseen(weights: Weights) -> None:
    demand = Demand.of_weights(weights, "f16")
    decoder = NativeDecoder(weights, ContextOptions(512, TUNING))
    sizes = []
    for start in (0, 20):  # within the window, beyond which nothing is saved
        decoder.evaluate(0, array("i", range(20)), start)
        sizes.append(len(decoder.save(0, 0, start + 20)))
    decoder.close()
    foreseen = [demand.state + 20 * demand.token, demand.state + 40 * demand.token]
    for size, least, tokens in zip(sizes, foreseen, (20, 40), strict=True):
        assert least <= size <= least + MOST_NOTES * tokens + MOST_HEAD
    assert (demand.state > 0) is not weights.kind.rewinds


def test_kv_memory_holds_for_a_model_whose_first_layer_has_no_keys(loaded: dict[Kind, Weights]) -> None:
    hybrid = loaded[Kind.HYBRID]
    demand = Demand.of_weights(hybrid, "f16")
    states = demand.states(SNAPSHOTS)
    memory = states + int(3_000 * demand.token)
    options = context_options(KvOptions(memory=memory), hybrid, demand, 1_024, TUNING)
    assert options.cells == 2_816  # a multiple of 256
    assert demand.total(options.cells, options.sequences) <= memory
    with pytest.raises(BackendError, match="which holds 0 tokens"):
        context_options(KvOptions(memory=states), hybrid, demand, 1_024, TUNING)


async def test_a_hybrid_that_does_not_fit_is_refused_in_one_line(tiny_models: dict[Kind, Path], tmp_path: Path) -> None:
    needed = 2_560 * 64 * 2 + (SNAPSHOTS + 1) * 2 * (128 * 3 + 128 * 16) * 4  # keys and values of a layer, two states
    for free, fits in ((needed, True), (needed - 1, False)):
        backend = local_backend(tiny_models[Kind.HYBRID], tmp_path, available_memory=lambda free=free: free)
        if fits:
            await take_turn(backend, plain("Hello."), max_output=2)
        else:
            with pytest.raises(BackendError, match=r"of memory for its KV cache, and 0\.0 GB are free"):
                await take_turn(backend, plain("Hello."), max_output=2)
        await backend.aclose()
