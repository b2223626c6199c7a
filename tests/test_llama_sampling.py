"""Drawing tokens from logits, on a real vocabulary with logits made up here."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llama_support import TOOLS

from backends.base import BackendError, ErrorKind
from backends.llama.sampling import Sampler, Sampling, Step
from backends.llama.tool_grammar import reply_grammar
from backends.llama.weights import Weights

pytest_plugins = ["local_models"]

Logits = np.ndarray[tuple[int], np.dtype[np.float32]]


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Weights]:
    weights = Weights.load(smollm2_path)
    yield weights
    weights.close()


def logits(weights: Weights, **wanted: float) -> Logits:
    """Flat logits with those of some one-token words raised."""
    values: Logits = np.linspace(0, 0.01, weights.size, dtype=np.float32)
    for word, value in wanted.items():
        (token,) = weights.tokenize(word)
        values[token] = value
    return values


def draw(weights: Weights, sampling: Sampling, values: Logits, count: int) -> list[str]:
    with Sampler(weights, sampling) as sampler:
        return [weights.piece(sampler.sample(values)).decode(errors="replace") for _ in range(count)]


def test_temperature_0_takes_the_likeliest_token(smollm2: Weights) -> None:
    assert draw(smollm2, Sampling(), logits(smollm2, read=5, edit=4.9), 3) == ["read"] * 3


def test_equal_seeds_draw_equal_tokens_and_others_differ(smollm2: Weights) -> None:
    values = logits(smollm2, read=5, edit=5, the=5, a=5)
    hot = Sampling(temperature=1.0, seed=3)
    first = draw(smollm2, hot, values, 40)
    assert draw(smollm2, hot, values, 40) == first
    assert draw(smollm2, Sampling(temperature=1.0, seed=4), values, 40) != first
    assert set(first) == {"read", "edit", "the", "a"}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0, top_k=2, top_p=1, min_p=0),
        Sampling(temperature=1.0, top_k=0, top_p=0.9, min_p=0),
        Sampling(temperature=1.0, top_k=0, top_p=1, min_p=0.5),
    ],
    ids=["top-k", "top-p", "min-p"],
)
def test_each_filter_leaves_the_likely_ones(smollm2: Weights, sampling: Sampling) -> None:
    assert set(draw(smollm2, sampling, logits(smollm2, read=20, edit=20, the=17), 60)) == {"read", "edit"}


def test_a_penalty_makes_a_repeated_token_less_likely(smollm2: Weights) -> None:
    values = logits(smollm2, read=5, edit=4)
    assert draw(smollm2, Sampling(repeat=2.0), values, 2) == ["read", "edit"]


def test_logits_that_are_no_numbers_are_an_error(smollm2: Weights) -> None:
    values = np.full(smollm2.size, np.nan, dtype=np.float32)
    with pytest.raises(BackendError, match="damaged") as caught:
        draw(smollm2, Sampling(), values, 1)
    assert caught.value.kind is ErrorKind.LOCAL


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_likeliest_fitting_token_wins_when_the_drawn_one_does_not_fit(smollm2: Weights, temperature: float) -> None:
    values = logits(smollm2, the=30, read=20, edit=10)
    with Sampler(smollm2, Sampling(temperature=temperature), reply_grammar(TOOLS)) as sampler:
        sampler.accept_given(smollm2.tokenize('{"tool":"').tolist())
        assert smollm2.piece(sampler.sample(values)) == b"read"
        assert sampler.masked == 1


def test_a_token_that_fits_is_found_however_unlikely_it_is(smollm2: Weights) -> None:
    values = logits(smollm2)
    with Sampler(smollm2, Sampling(), reply_grammar(TOOLS)) as sampler:
        sampler.accept_given(smollm2.tokenize('{"tool":"').tolist())
        fitting = [token for token in range(smollm2.size) if sampler.fits(token)]
        values[fitting] = -50.0
        values[fitting[3]] = -40.0
        assert sampler.sample(values) == fitting[3]


def test_a_control_token_is_not_drawn_though_its_text_would_fit(smollm2: Weights) -> None:
    values = logits(smollm2, the=5)
    (control,) = smollm2.tokenize("<|im_start|>", special=True)
    values[control] = 30
    with Sampler(smollm2, Sampling(), reply_grammar(TOOLS)) as sampler:
        sampler.accept_given(smollm2.tokenize('{"tool":"answer","args":{"text":"').tolist())
        assert smollm2.piece(sampler.sample(values)) == b"the"


def test_without_a_grammar_the_model_may_end_its_reply(smollm2: Weights) -> None:
    values = logits(smollm2, the=5)
    (ends,) = smollm2.tokenize("<|im_end|>", special=True)
    values[ends] = 30
    with Sampler(smollm2, Sampling()) as sampler:
        assert sampler.sample(values) == ends


def test_a_grammar_that_is_none_is_an_error(smollm2: Weights) -> None:
    with pytest.raises(BackendError, match="grammar"):
        Sampler(smollm2, Sampling(), "root ::= (")


def test_dry_makes_a_token_less_likely_that_would_repeat_a_phrase(smollm2: Weights) -> None:
    values = logits(smollm2, the=6, read=5)
    phrase = ["read", "edit", "the", "read", "edit"]

    def next_token(sampling: Sampling) -> str:
        with Sampler(smollm2, sampling) as sampler:
            for word in phrase:
                sampler.accept(smollm2.tokenize(word)[0])
            return smollm2.piece(sampler.choose(values)).decode()

    assert next_token(Sampling()) == "the"
    dry = Sampling(dry_multiplier=3.0, dry_allowed=2)
    assert next_token(dry) == "read"
    assert next_token(replace(dry, dry_allowed=3)) == "the", "two tokens in a row are allowed"
    assert next_token(replace(dry, dry_window=2)) == "the", "what it would repeat is not looked at any more"
    assert next_token(replace(dry, dry_breakers=("edit",))) == "the", "no repetition reaches over a breaker"


def test_what_dry_takes_grows_with_the_length_of_the_repetition(smollm2: Weights) -> None:
    words = ["read", "edit", "the", "a", "to"]
    steps: list[Step] = []
    taken = []
    for length in range(2, 5):
        dry = Sampling(dry_multiplier=0.5, dry_base=2.0, dry_allowed=2, dry_breakers=())
        values = logits(smollm2)
        with Sampler(smollm2, dry, watch=steps.append) as sampler:
            for word in [*words[: length + 1], *words[:length]]:
                sampler.accept(smollm2.tokenize(word)[0])
            (repeated,) = smollm2.tokenize(words[length])
            steps.clear()
            sampler.choose(values)
        after = next(step for step in steps if step.name == "DRY")
        taken.append(float(values[repeated] - after.logits[after.ids == repeated][0]))
    assert taken == pytest.approx([0.5, 1.0, 2.0], abs=1e-5)


def test_xtc_drops_the_top_choices_but_the_least_likely_of_them(smollm2: Weights) -> None:
    values = logits(smollm2, read=20, edit=19.5, the=19, a=10)
    always = Sampling(temperature=1.0, xtc_probability=1.0, xtc_threshold=0.1)
    assert set(draw(smollm2, always, values, 20)) == {"the"}
    assert "read" in draw(smollm2, replace(always, xtc_probability=0.5), values, 60)
    assert "read" in draw(smollm2, replace(always, xtc_threshold=0.6), values, 60), "only one is above the threshold"


def test_temperature_0_keeps_to_penalties_and_dry_and_passes_over_the_draws(smollm2: Weights) -> None:
    values = logits(smollm2, read=5, edit=4, the=3)
    filters = Sampling(top_k=1, top_p=0.1, min_p=0.9, xtc_probability=1.0, xtc_threshold=0.01)
    assert draw(smollm2, filters, values, 3) == ["read"] * 3
    assert draw(smollm2, replace(filters, presence=1.5), values, 2) == ["read", "edit"]
    greedy = replace(filters, dry_multiplier=5.0, dry_allowed=1)
    assert draw(smollm2, greedy, values, 3) == ["read", "read", "edit"], (
        "the third would be a repetition of 'read read'"
    )


def test_steps_come_in_the_documented_order(smollm2: Weights) -> None:
    names: list[str] = []
    everything = Sampling(temperature=0.8, presence=0.1, dry_multiplier=0.8, xtc_probability=0.5)
    with Sampler(smollm2, everything, watch=lambda step: names.append(step.name)) as sampler:
        sampler.sample(logits(smollm2, read=5))
    order = "logits penalties DRY top-k top-p min-p XTC temperature draw"
    assert names == order.split()


def test_watching_changes_no_draw(smollm2: Weights) -> None:
    values = logits(smollm2, read=5, edit=5, the=5, a=5)
    hot = Sampling(temperature=1.0, seed=3, xtc_probability=0.3, repeat=1.1)
    with Sampler(smollm2, hot, watch=lambda _: None) as sampler:
        watched = [smollm2.piece(sampler.sample(values)).decode() for _ in range(40)]
    assert watched == draw(smollm2, hot, values, 40)
