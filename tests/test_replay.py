"""Policies replayed on made-up sessions: who knows the pauses pays least, and the bill of a plain case by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context.cache_rules import CacheRules
from context.economics import Prices
from context.habits import Habits
from context.pauses import AFTERS
from context.replay import CallShape, SessionShape, TurnShape, replay
from context.ttl import Keeping

MILLION = 1_000_000
NO_CAPS = Keeping(float("inf"), float("inf"))
RULES = CacheRules()


def prices(r: float) -> Prices:
    return Prices(fresh=1 / MILLION, read=r / MILLION, write=1.25 / MILLION, write_long=2 / MILLION, output=5 / MILLION)


@st.composite
def sessions(draw: st.DrawFn) -> SessionShape:
    head = draw(st.integers(1_000, 15_000))
    size, turns = head, []
    for _ in range(draw(st.integers(1, 6))):
        calls, at = [], 0.0
        for _ in range(draw(st.integers(1, 4))):
            size += draw(st.integers(1, 20_000))
            calls.append(CallShape(at, size, draw(st.integers(0, 2_000))))
            at += draw(st.sampled_from([2.0, 30.0, 299.0, 480.0, 4_000.0]))
        pause = draw(st.sampled_from([1.0, 40.0, 269.0, 271.0, 301.0, 900.0, 3_500.0, 3_700.0, 50_000.0]))
        turns.append(TurnShape(tuple(calls), at, pause, draw(st.sampled_from(AFTERS)), draw(st.integers(0, 23))))
    return SessionShape(head, tuple(turns))


@pytest.mark.parametrize("r", [0.1, 0.05, 0.025])
@settings(max_examples=150, deadline=None)
@given(session=sessions())
def test_no_policy_is_cheaper_than_who_knows_the_pauses(r: float, session: SessionShape) -> None:
    bound = replay(session, prices(r), RULES, "clairvoyant", Habits(), NO_CAPS).usd
    for policy in ("none", "fixed:1", "fixed:12", "always", "1h", "auto"):
        assert replay(session, prices(r), RULES, policy, Habits(), NO_CAPS).usd >= bound * (1 - 1e-9), policy


def two_calls(pause: float) -> SessionShape:
    """10,000 tokens, then 12,000, of which 10,000 were sent before."""
    first = TurnShape((CallShape(0.0, 10_000, 0),), 0.0, pause, "answer", 10)
    return SessionShape(5_000, (first, TurnShape((CallShape(0.0, 12_000, 0),), 0.0, None, "answer", 10)))


@pytest.mark.parametrize(
    ("policy", "pause", "usd", "pings"),
    [
        ("none", 60, 0.0125 + 0.001 + 0.0025, 0),  # written, read, the new written
        ("none", 400, 0.0125 + 0.015, 0),  # all written again
        ("fixed:1", 400, 0.0125 + 0.001 + 0.001 + 0.0025 + 0.0012, 2),  # kept by a ping; one more when nobody returns
        ("1h", 400, 0.020 + 0.001 + 0.004, 0),
        ("clairvoyant", 400, 0.0125 + 0.001 + 0.001 + 0.0025, 1),
        ("clairvoyant", 50_000, 0.0125 + 0.015, 0),
    ],
)
def test_a_pause_by_hand(policy: str, pause: float, usd: float, pings: int) -> None:
    done = replay(two_calls(pause), prices(0.1), RULES, policy, Habits(), NO_CAPS)
    assert done.usd == pytest.approx(usd)
    assert done.pings == pings


@pytest.mark.parametrize("policy", ["", "fixed", "fixed:", "fixed:x", "never", "none:1"])
def test_an_unknown_policy_is_refused(policy: str) -> None:
    with pytest.raises(ValueError, match="unknown policy"):
        replay(two_calls(1), prices(0.1), RULES, policy, Habits(), NO_CAPS)
