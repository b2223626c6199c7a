"""Whose money a bill is: nothing of it gets lost or is counted twice."""

from collections.abc import Iterable
from decimal import Decimal
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.attribution import Carried, InputBill, by_part, split, split_tokens

money = st.decimals(min_value=0, max_value=1000, places=12)
counts = st.integers(min_value=0, max_value=300_000)
sizes = st.lists(st.integers(min_value=0, max_value=50_000), min_size=1, max_size=12)


def bill(tokens: tuple[int, int, int, int], per_token: tuple[str, str, str, str]) -> InputBill:
    one, two, three, four = (count * Decimal(price) for count, price in zip(tokens, per_token, strict=True))
    return InputBill(tokens, (one, two, three, four))


bills = st.tuples(counts, counts, counts, counts).map(
    lambda t: bill(t, ("0.0000005", "0.00001", "0.00000625", "0.000005"))
)


@given(money, st.lists(counts, min_size=1, max_size=8))
def test_shares_add_to_the_whole(total: Decimal, weights: list[int]) -> None:
    shares = split(total, weights)
    assert sum(shares) == total
    assert all(share >= 0 for share in shares)
    assert sum(split_tokens(int(total), weights)) == int(total)


def test_a_share_is_in_proportion() -> None:
    assert split(Decimal("0.3"), (1, 2)) == (Decimal("0.1"), Decimal("0.2"))
    assert split(Decimal(1), (1, 1, 1))[1] == Decimal("0.333333333333333")
    assert split_tokens(10, (1, 1, 1)) == (3, 3, 4)
    with pytest.raises(ValueError, match="nothing"):
        split(Decimal(1), ())


def paid(bills: Iterable[InputBill]) -> Decimal:
    return sum((usd for each in bills for usd in each.usd), Decimal(0))


@given(sizes, bills)
def test_the_parts_of_a_prompt_pay_all_of_its_input(parts: list[int], input_bill: InputBill) -> None:
    shares = by_part(parts, input_bill)
    for counter in range(4):
        assert sum(share.tokens[counter] for share in shares) == input_bill.tokens[counter]
        assert sum(share.usd[counter] for share in shares) == input_bill.usd[counter]
    assert all(min(share.usd) >= 0 and min(share.tokens) >= 0 for share in shares)


def test_each_part_pays_for_what_of_it_was_read_written_and_fresh() -> None:
    """1,000 tokens of SYSTEM and 1,000 of PROJECT were read; of 800 of HISTORY 500 were written, and 300 are fresh."""
    call = bill((2000, 0, 500, 300), ("0.1", "2", "1.25", "1"))
    system, project, history = by_part((1000, 1000, 800), call)
    assert system == project == bill((1000, 0, 0, 0), ("0.1", "0", "0", "0"))
    assert history == bill((0, 0, 500, 300), ("0", "0", "1.25", "1"))
    assert by_part((500, 500, 400), call) == (system, project, history), "estimates are scaled to the bill"
    assert by_part((2800,), call) == (call,)


@given(sizes, st.lists(bills, min_size=1, max_size=6))
def test_what_was_carried_adds_to_what_was_paid(tokens: list[int], calls: list[InputBill]) -> None:
    carried = Carried([0, *accumulate(tokens)])
    for call in calls:
        carried.add(len(tokens), call)
    blocks = carried.blocks()
    whole = paid(calls) if sum(tokens) else Decimal(0)
    assert abs(sum((block.usd for block in blocks), Decimal(0)) - whole) < Decimal("1e-12")
    assert [block.calls for block in blocks] == [len(calls)] * len(tokens)


@given(st.lists(st.integers(min_value=1, max_value=5000), min_size=2, max_size=8), st.data())
def test_a_block_is_carried_by_the_calls_that_sent_it(tokens: list[int], data: st.DataObject) -> None:
    sent = data.draw(st.lists(st.integers(min_value=1, max_value=len(tokens)), min_size=1, max_size=5))
    carried, expected = Carried([0, *accumulate(tokens)]), [Decimal(0)] * len(tokens)
    for blocks in sent:
        call = data.draw(bills)
        carried.add(blocks, call)
        for block, share in enumerate(by_part(tokens[:blocks], call)):
            expected[block] += paid([share])
    for block, carry in enumerate(carried.blocks()):
        assert carry.calls == sum(block < blocks for blocks in sent)
        assert abs(carry.usd - expected[block]) < Decimal("1e-9")
