"""What a budget allows, in tables and properties."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.budget import Budget, Level, Spend

USD = st.none() | st.decimals(0, 3, places=4)
SPENDS = st.lists(st.builds(Spend, st.sampled_from("abc"), st.floats(0, 1e6), USD, st.booleans()), max_size=30)


def spends(*usd: str | None, session: str = "a") -> list[Spend]:
    return [Spend(session, at, None if each is None else Decimal(each)) for at, each in enumerate(usd)]


@pytest.mark.parametrize(
    ("spent", "level", "left"),
    [
        ((), Level.OK, "1"),
        (("0.79",), Level.OK, "0.21"),
        (("0.4", "0.4"), Level.WARN, "0.2"),
        (("0.9999",), Level.WARN, "0.0001"),
        (("0.5", "0.5"), Level.STOP, "0"),
        (("1.7",), Level.STOP, "0"),
        (("0.1", None), Level.STOP, "0"),  # nobody knows what is left
    ],
)
def test_levels(spent: tuple[str | None, ...], level: Level, left: str) -> None:
    budget = Budget.of("day", Decimal(1), spends(*spent))
    assert (budget.level, budget.left) == (level, Decimal(left))


def test_a_call_without_a_bill_counts_as_what_it_was_expected_to_cost_and_is_told_apart() -> None:
    under_way = Spend("b", 1, Decimal("0.5"), billed=False)
    budget = Budget.of("day", Decimal(1), [*spends("0.25"), under_way])
    assert (budget.spent, budget.unbilled, budget.left) == (Decimal("0.75"), Decimal("0.5"), Decimal("0.25"))


@pytest.mark.parametrize(("expected", "exceeds"), [(None, False), ("0.2", False), ("0.2001", True)])
def test_a_call_may_be_expected_to_cost_more_than_is_left(expected: str | None, exceeds: bool) -> None:
    budget = Budget.of("session", Decimal(1), spends("0.8"))
    assert budget.exceeded_by(None if expected is None else Decimal(expected)) is exceeds


@given(SPENDS, st.decimals("0.0001", 20, places=4))
def test_what_is_spent_is_never_less_than_what_is_known_and_what_is_left_never_more(
    made: list[Spend], limit: Decimal
) -> None:
    budget = Budget.of("day", limit, made)
    known = sum((spend.usd for spend in made if spend.usd is not None), Decimal(0))
    assert budget.spent == known
    assert Decimal(0) <= budget.left <= limit
    assert (budget.level is Level.STOP) == (known >= limit or any(spend.usd is None for spend in made))
    assert not budget.exceeded_by(budget.left)
    assert Budget.of("day", limit, reversed(made)) == budget
