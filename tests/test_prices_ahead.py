"""The sentence before a costly step."""

from decimal import Decimal

from agent.chat.prices import before_change, before_turn
from backends.base import Usage

COLD = Usage(200, 0, 47_800, 0, None, None)


def test_a_cold_turn_names_its_price() -> None:
    assert before_turn(COLD, Decimal("0.1834")) == (
        "The cache is cold: this turn writes 48,000 tokens again, about $0.18."
    )


def test_a_turn_that_is_partly_cold_says_what_is_left() -> None:
    assert before_turn(Usage(200, 5_000, 42_800, 0, None, None), Decimal("0.05")) == (
        "Only 5,000 tokens are still cached: this turn writes 43,000 tokens again, about $0.0500."
    )


def test_where_nothing_is_written_the_tokens_are_sent() -> None:
    assert before_turn(Usage(48_000, 0, 0, 0, None, None), None) == (
        "The cache is cold: this turn sends 48,000 tokens again, at an unknown price."
    )


def test_a_warm_turn_needs_no_word() -> None:
    assert before_turn(Usage(500, 47_500, 0, 0, None, None), Decimal("0.02")) is None


def test_what_cannot_be_foreseen_is_not_foretold() -> None:
    assert before_turn(Usage(), None) is None
    assert before_change("model", Usage(), None) is None


def test_another_model_or_effort_names_what_the_next_turn_writes() -> None:
    assert before_change("effort", COLD, Decimal("12.5")) == (
        "Another effort has another cache: the next turn writes 48,000 tokens again, about $12.50."
    )
    assert before_change("model", Usage(10, 0, 900, 0, None, None), Decimal("0.001")) is None
