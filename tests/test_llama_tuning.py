"""What a machine runs a model fastest with: measured, chosen, remembered."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llama import probe
from backends.llama.drafts import MOST, pays
from backends.llama.gguf import fingerprint
from backends.llama.measuring import measure
from backends.llama.tuning import BATCHES, Tuning, candidates, fastest
from backends.llama.weights import Kind, Weights

pytest_plugins = ["local_models", "tiny_models"]


@given(st.builds(Tuning, st.integers(1, 256), st.integers(1, 256), st.sampled_from(BATCHES), st.none() | st.booleans()))
def test_a_tuning_is_read_as_it_was_written(tuning: Tuning) -> None:
    assert Tuning.from_json(tuning.to_json()) == tuning


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"threads": 0, "batch_threads": 1, "batch": 128, "flash_attention": null, "draft_cost": null}',
        '{"threads": 1, "batch_threads": 1, "batch": 100000, "flash_attention": null, "draft_cost": null}',
        '{"threads": 1e999, "batch_threads": 1, "batch": 128, "flash_attention": null, "draft_cost": null}',
        '{"threads": 1000000, "batch_threads": 1, "batch": 128, "flash_attention": null, "draft_cost": null}',
        '{"threads": 1, "batch_threads": 1, "batch": 128, "flash_attention": null, "draft_cost": NaN}',
        '{"threads": 1, "batch_threads": 1, "batch": 128, "flash_attention": null, "draft_cost": -5}',
        "[" * 100_000,
        '{"threads": null, "batch_threads": 1, "batch": 128, "flash_attention": null, "draft_cost": null}',
    ],
)
def test_a_note_that_is_damaged_or_of_an_earlier_release_is_no_tuning(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Tuning.from_json(text)


@pytest.mark.parametrize(
    ("cores", "logical", "tried"),
    [(1, 1, [1]), (1, 2, [1, 2]), (2, 2, [2]), (8, 16, [8, 4, 16]), (2, 64, [2])],  # the last: a container's quota
)
def test_few_numbers_of_threads_are_tried(cores: int, logical: int, tried: list[int]) -> None:
    assert candidates(cores, logical) == tried


def test_what_differs_by_chance_does_not_change_the_choice() -> None:
    assert fastest({8: 1.04, 16: 1.0}) == 8
    assert fastest({8: 1.1, 16: 1.0}) == 16


def test_guesses_are_off_where_they_cost_what_they_can_save() -> None:
    assert pays(1.1)
    assert not pays(1 + MOST)  # each token is evaluated at the same price, guessed or not


def test_a_real_model_is_measured_and_the_result_can_be_run_with(smollm2_path: Path) -> None:
    tuning = measure(Weights.load(smollm2_path))
    assert tuning.flash_attention is not None
    assert 0.5 < (tuning.draft_cost or 0) < 20
    assert measure(Weights.load(smollm2_path), "q8_0").flash_attention  # there is no other way


def test_a_measurement_is_remembered_for_its_options_and_a_damaged_note_made_again(
    tiny_models: dict[Kind, Path], tmp_path: Path
) -> None:
    said: list[str] = []
    path = tiny_models[Kind.ATTENTION]
    name = fingerprint(path)

    def trial(gpu_layers: int | None = None) -> Tuning:
        return probe.require_trial(path, name, tmp_path, gpu_layers=gpu_layers, announce=said.append)

    first = trial()
    assert trial() == first
    assert len(said) == 1
    (note,) = tmp_path.iterdir()
    note.write_text(note.read_text()[:20])  # a full disk
    trial()
    assert len(said) == 2
    trial(0)
    assert len(said) == 3
