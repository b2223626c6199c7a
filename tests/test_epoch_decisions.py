"""When a new epoch and when a summary is worth it: numbers worked out by hand.

Prices as of a model at 1 USD per million tokens of input: written 1.25, output 5, read at the multiplier `r`.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.economics import Prices
from context.epoch import (
    CompactionDecision,
    EpochDecision,
    decide_compaction,
    decide_epoch,
    decide_idle_compaction,
    expected_calls_left,
)
from context.usage import Usage

MILLION = 1_000_000


def prices(r: float) -> Prices:
    return Prices(fresh=1 / MILLION, read=r / MILLION, write=1.25 / MILLION, write_long=2 / MILLION, output=5 / MILLION)


# A new epoch


def epoch(**given: Any) -> EpochDecision:
    """100,000 tokens that fold to 40,000: a quarter of the 60,000 gone, 15,000, is taken to be read once more."""
    return decide_epoch(**({"tokens": 100_000, "folded": 40_000, "warm": 0, "warm_head": 0} | given))


@pytest.mark.parametrize(
    ("r", "as_is", "anew"),
    [
        # 1.25 · 0.1 + 10 · r · 0.1 against 1.25 · 0.055 + 10 · r · 0.055
        (0.1, 0.125 + 0.1, 0.06875 + 0.055),
        (0.05, 0.125 + 0.05, 0.06875 + 0.0275),
        (0.025, 0.125 + 0.025, 0.06875 + 0.01375),
    ],
)
def test_cold_a_rewrite_costs_nothing_extra(r: float, as_is: float, anew: float) -> None:
    decision = epoch(calls_left=10, prices=prices(r))
    assert decision.start
    assert (decision.as_is_usd, decision.anew_usd) == (pytest.approx(as_is), pytest.approx(anew))


@pytest.mark.parametrize(
    ("r", "calls_left", "start"),
    [
        # Warm, 10,000 of the new head read too. As it is: r · 0.1 · (1 + calls).
        # Anew: r · 0.01 + 1.25 · 0.045 + calls · r · 0.055. Even at (0.05625 - r · 0.09) / (r · 0.045) calls.
        (0.1, 10, False),  # even at 10.5
        (0.1, 11, True),
        (0.05, 22, False),  # at 23
        (0.05, 24, True),
        (0.025, 47, False),  # at 48
        (0.025, 49, True),
    ],
)
def test_warm_a_rewrite_must_be_earned_by_the_calls_that_follow(r: float, calls_left: float, start: bool) -> None:
    decision = epoch(warm=100_000, warm_head=10_000, calls_left=calls_left, prices=prices(r))
    assert decision.start is start


@pytest.mark.parametrize("prices", [prices(0.1), None])
@pytest.mark.parametrize(("folded", "start"), [(90_000, True), (90_001, False), (100_000, False), (110_000, False)])
def test_less_than_a_tenth_is_not_worth_the_reasoning_that_is_lost(
    folded: int, start: bool, prices: Prices | None
) -> None:
    assert epoch(folded=folded, calls_left=100, prices=prices).start is start


@pytest.mark.parametrize(("warm", "start"), [(0, True), (44_000, True), (46_000, False), (100_000, False)])
def test_without_prices_what_has_to_be_processed_decides(warm: int, start: bool) -> None:
    # anew 40,000 + 15,000 tokens, as it is 100,000 - warm: even at 45,000
    decision = epoch(warm=warm, calls_left=10, prices=None)
    assert (decision.start, decision.as_is_usd, decision.anew_usd) == (start, None, None)


def test_a_prompt_without_tokens_begins_nothing() -> None:
    assert not decide_epoch(tokens=0, folded=0, warm=0, warm_head=0, calls_left=10, prices=None).start


# A summary: the window


def in_window(tokens: int, window: int, reply_reserve: int, prices: Prices | None = None) -> str | None:
    decision = decide_compaction(
        tokens=tokens,
        after=10_000,
        window=window,
        reply_reserve=reply_reserve,
        warm=True,
        calls_left=1,
        prices=prices,
    )
    assert decision.compact is (decision.why is not None)
    return decision.why


@pytest.mark.parametrize(
    ("tokens", "reply_reserve", "why"),
    [
        # 0.95 · 200,000 = 190,000 may be filled, 500 of it by the instruction
        (173_500, 16_000, None),
        (173_501, 16_000, "window"),
        (187_500, 1_000, None),  # a summary takes 2,000 however short replies are
        (187_501, 1_000, "window"),
        (250_000, 16_000, "window"),
    ],
)
def test_near_the_end_of_the_window_there_must_be_room_for_the_summary(
    tokens: int, reply_reserve: int, why: str | None
) -> None:
    assert in_window(tokens, 200_000, reply_reserve) == why
    assert in_window(tokens, 200_000, reply_reserve, prices(0.1)) == why


def test_field_report_75_cached_tokens_inside_the_input_are_not_counted_twice() -> None:
    usage = Usage(fresh=184_704 - 183_936, cache_read=183_936, cache_write=0, cache_write_long=0, output=1, reasoning=0)
    assert usage.input_total == 184_704
    assert in_window(usage.input_total, 400_000, 32_000) is None
    assert in_window(184_704 + 183_936, 400_000, 32_000) == "window"  # what the report's agent did


def test_field_report_76_tokens_written_to_the_cache_are_in_the_window() -> None:
    usage = Usage(fresh=3, cache_read=0, cache_write=60_000, cache_write_long=0, output=1, reasoning=0)
    assert usage.input_total == 60_003
    assert in_window(usage.input_total, 64_000, 4_000) == "window"
    assert in_window(3, 64_000, 4_000) is None  # what the report's agent saw


# A summary: its cost


def dear(**given: Any) -> CompactionDecision:
    """200,000 tokens that become 20,000: 180,000 gone, 45,000 of them read once more. The window is wide."""
    usual: dict[str, Any] = {"tokens": 200_000, "after": 20_000, "window": MILLION, "reply_reserve": 16_000}
    return decide_compaction(**(usual | {"warm": True} | given))


@pytest.mark.parametrize(
    ("r", "warm", "cost", "calls_left", "saving", "compact"),
    [
        # cost: r · 0.2 + 5 · 0.002 + 1.25 · 0.065; saved by each call: r · 0.135; twice the cost must be saved
        (0.1, True, 0.11125, 16, 0.216, False),  # 0.2225 at 16.5 calls
        (0.1, True, 0.11125, 17, 0.2295, True),
        (0.05, True, 0.10125, 29, 0.19575, False),  # 0.2025 at 30
        (0.05, True, 0.10125, 31, 0.20925, True),
        (0.025, True, 0.09625, 57, 0.192375, False),  # 0.1925 at 57.04
        (0.025, True, 0.09625, 58, 0.19575, True),
        # cold: 0.2 + 0.01 + 0.08125; the next request need not write 0.135 at 1.25 either
        (0.1, False, 0.29125, 30, 0.57375, False),  # 0.5825 at 30.6
        (0.1, False, 0.29125, 31, 0.58725, True),
    ],
)
def test_carrying_the_history_must_cost_twice_what_a_summary_does(
    r: float, warm: bool, cost: float, calls_left: float, saving: float, compact: bool
) -> None:
    decision = dear(warm=warm, calls_left=calls_left, prices=prices(r))
    assert decision.cost_usd == pytest.approx(cost)
    assert decision.saving_usd == pytest.approx(saving)
    assert (decision.compact, decision.why) == (compact, "cost" if compact else None)


@pytest.mark.parametrize(
    ("given", "compact"),
    [
        ({}, True),
        ({"tokens": 100_000}, True),
        ({"tokens": 99_999}, False),  # what a summary forgets is felt
        ({"tokens": 99_999, "floor": 50_000}, True),
        ({"after": 200_000}, False),  # it would not shrink
        ({"after": 210_000}, False),
        ({"prices": None}, False),  # unknown prices decide nothing
    ],
)
def test_only_a_large_prompt_of_known_price_that_shrinks(given: dict[str, Any], compact: bool) -> None:
    assert dear(**({"calls_left": 1_000, "prices": prices(0.1)} | given)).compact is compact


sizes = st.integers(0, MILLION)
rates = st.sampled_from([0.1, 0.05, 0.025])


@given(sizes, sizes, rates, st.booleans(), st.floats(0, 1_000), st.floats(0, 1_000))
def test_more_calls_to_come_never_speak_against_it(
    tokens: int, after: int, r: float, warm: bool, calls: float, more: float
) -> None:
    few = dear(tokens=tokens, after=after, warm=warm, calls_left=calls, prices=prices(r))
    many = dear(tokens=tokens, after=after, warm=warm, calls_left=calls + more, prices=prices(r))
    assert many.compact >= few.compact


# A summary before a large session goes cold


@pytest.mark.parametrize(
    ("r", "cost", "p_return", "compact"),
    [
        # cost: r · 0.2 + 5 · 0.002; saved: p · 1.25 · 0.135 = p · 0.16875
        (0.1, 0.03, 0.17, False),  # even at 0.178
        (0.1, 0.03, 0.18, True),
        (0.05, 0.02, 0.11, False),  # at 0.119
        (0.05, 0.02, 0.12, True),
        (0.025, 0.015, 0.08, False),  # at 0.089
        (0.025, 0.015, 0.09, True),
    ],
)
def test_before_it_goes_cold_a_summary_is_cheap_but_someone_must_come_back(
    r: float, cost: float, p_return: float, compact: bool
) -> None:
    decision = decide_idle_compaction(tokens=200_000, folded=200_000, after=20_000, p_return=p_return, prices=prices(r))
    assert decision.cost_usd == pytest.approx(cost)
    assert decision.saving_usd == pytest.approx(p_return * 0.16875)
    assert (decision.compact, decision.why) == (compact, "idle" if compact else None)


@pytest.mark.parametrize(
    "given",
    [
        {"tokens": 99_999},
        {"after": 200_000},
        {"folded": 20_000},  # on return folding does as much, for nothing
        {"prices": None},
        {"p_return": 0.0},
        {"floor": 200_001},
    ],
)
def test_a_small_session_or_one_that_would_not_shrink_is_left_as_it_is(given: dict[str, Any]) -> None:
    usual = {"tokens": 200_000, "folded": 200_000, "after": 20_000, "p_return": 1.0, "prices": prices(0.1)}
    assert not decide_idle_compaction(**(usual | given)).compact


# How much is still to come


@pytest.mark.parametrize(
    ("turns", "calls_per_turn", "left"),
    [(0, 0.0, 3), (1, 6.0, 6), (4, 6.0, 24), (4, 1.0, 12), (10, 6.0, 60), (50, 6.0, 60)],
)
def test_as_many_turns_again_within_bounds(turns: int, calls_per_turn: float, left: float) -> None:
    assert expected_calls_left(turns, calls_per_turn) == left
