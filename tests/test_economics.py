"""When a ping goes out: a table, and the expected saving of a plain case by hand."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context.economics import KeepDecision, Stakes, Why, keep
from context.pauses import Pause, Pauses

DAY = 86_400.0


def decided(**given: Any) -> KeepDecision:
    """100,000 tokens at 1 USD a million: a ping 0.01, a loss 0.115; five minutes, the first ping due."""
    usual: dict[str, Any] = {
        "stakes": Stakes(0.01, 0.115, 300, 30),
        "activity": "idle",
        "waited": 270.0,
        "after": "answer",
        "hour": 10,
        "pauses": Pauses.learned(),
        "policy": "auto",
        "limit_s": DAY,
        "budget_usd": 1.0,
    }
    return keep(**(usual | given))


@pytest.mark.parametrize(
    ("given", "ping", "why"),
    [
        ({}, True, Why.PAYS),
        ({"activity": "question"}, True, Why.PAYS),
        ({"activity": "tool"}, True, Why.CERTAIN),
        ({"activity": "tool", "waited": 7 * 3600.0}, True, Why.CERTAIN),
        ({"activity": "rate_limit", "stakes": Stakes(0.2, 0.115, 300, 30)}, False, Why.STOPPED),
        ({"waited": 10 * 3600.0}, False, Why.STOPPED),
        ({"waited": 10 * 3600.0, "policy": "always"}, True, Why.ALWAYS),
        ({"policy": "always", "limit_s": 269.0}, False, Why.TIME),
        ({"activity": "tool", "limit_s": 269.0}, False, Why.TIME),
        ({"activity": "tool", "budget_usd": 0.009}, False, Why.BUDGET),
        ({"policy": "off"}, False, Why.OFF),
    ],
)
def test_the_table(given: dict[str, Any], ping: bool, why: Why) -> None:
    decision = decided(**given)
    assert (decision.ping, decision.why) == (ping, why)


def test_who_always_comes_back_in_six_minutes_is_worth_one_ping_and_who_never_does_none() -> None:
    back = Pauses.learned([Pause(360.0, "answer", 10)] * 2_000)
    assert decided(pauses=back).saving_usd == pytest.approx(0.115, rel=0.05)
    gone = Pauses.learned([Pause(None, "answer", 10)] * 2_000)
    assert not decided(pauses=gone).ping


@settings(deadline=None)
@given(
    seen=st.lists(st.sampled_from([None, 1.0, 50.0, 400.0, 4_000.0, 40_000.0, 400_000.0]), max_size=40),
    times=st.lists(st.floats(0, 300_000), min_size=2, max_size=8),
    hour=st.integers(0, 23),
)
def test_people_stay_away_ever_less_often(seen: list[float | None], times: list[float], hour: int) -> None:
    pauses = Pauses.learned([Pause(seconds, "answer", 9) for seconds in seen])
    stays = [pauses.stays(seconds, "question", hour) for seconds in sorted(times)]
    assert all(0 < later <= earlier <= 1 for earlier, later in pairwise(stays))
    assert pauses.stays(float("inf"), "question", hour) <= stays[-1]
