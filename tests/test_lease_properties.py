"""For any interleaving of turns, tools, pings, failures and clock jumps: the client's leases are the provider's.

The client holds its leases in the ledger, the provider's are those of the emulator, which reads the rules on its own.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talk import MODELS, Talk, talk

from context.block import Layer
from context.cache_rules import Ttl

_fates = st.sampled_from(["done", "done", "done", "cut", "refused"])
_seconds = st.sampled_from([1, 30, 200, 269, 270, 299, 300, 301, 1700, 1790, 1799, 1800, 1900, 3500, 3600, 50_000])
_events = st.one_of(
    st.tuples(st.just("turn"), st.integers(1, 120), st.integers(0, 3), st.sampled_from([1, 2, 25])),
    st.tuples(st.just("tool"), _seconds, st.booleans()),  # a turn with a tool that takes so long, and pings meanwhile
    st.tuples(st.just("pause"), _seconds),
    st.tuples(st.just("pause"), _seconds),
    st.tuples(st.just("ping"), _fates),
    st.tuples(st.just("ping"), _fates),
    st.tuples(st.just("failed"), _fates),
    st.tuples(st.just("effort"), st.sampled_from([None, "low", "high"])),
    st.tuples(st.just("model"), st.integers(0, 1)),
    st.tuples(st.just("ttl"), st.sampled_from(["short", "long"]), st.booleans()),
    st.tuples(st.sampled_from(["fork", "new", "reopen"])),
)


def happen(desk: Talk, what: Any) -> None:
    match what:
        case ("turn", words, loops, wide):
            desk.turn(words, loops, wide)
        case ("tool", seconds, pinged):
            desk.turn(5, 1, 1, lambda: wait(desk, seconds, pinged))
        case ("pause", seconds):
            desk.clock.advance(seconds)
        case ("ping", fate):
            desk.ping(fate)
        case ("failed", fate):
            desk.turn(5, 1, 1, first=fate)
        case ("effort", effort):
            desk.effort = effort
            desk.prepare()
        case ("model", index):
            desk.model = MODELS[desk.api][index]
            desk.prepare()
        case ("ttl", head, everything):
            ttl: dict[Layer, Ttl] = dict.fromkeys(Layer, "short")
            desk.ttl = ttl | dict.fromkeys(list(Layer) if everything else [Layer.SYSTEM, Layer.PROJECT], head)
            desk.prepare()
        case ("fork",):
            desk.fork()
        case ("reopen",):
            desk.reopen()
        case ("new",):
            desk.open("another session")


def wait(desk: Talk, seconds: float, pinged: bool) -> None:
    """Let the time pass; with pings half a minute before each end of the lease."""
    end = desk.clock.now() + seconds
    while pinged and (lease := desk.forecaster.lease()) and (due := (lease.expires or end) - 30) < end:
        desk.clock.advance(max(0.0, due - desk.clock.now()))
        if not desk.ping():
            break
    desk.clock.advance(max(0.0, end - desk.clock.now()))


@pytest.mark.parametrize("api", MODELS)
@settings(max_examples=200, deadline=None)
@given(words=st.sampled_from([40, 130, 400]), happened=st.lists(_events, min_size=2, max_size=14))
def test_the_leases_of_the_client_are_those_of_the_provider(api: str, words: int, happened: list[Any]) -> None:
    with talk(api, words) as desk:
        desk.turn(3, 1, 1)
        for what in happened:
            happen(desk, what)
            held = desk.held()
            assert held["client"] == held["provider"], what


@pytest.mark.parametrize("api", MODELS)
@settings(max_examples=100, deadline=None)
@given(
    words=st.sampled_from([40, 400]),
    happened=st.lists(st.one_of(_events, st.tuples(st.just("failed"), st.just("lost"))), min_size=2, max_size=14),
)
def test_where_a_bill_never_arrived_the_client_expects_no_more_than_there_is(
    api: str, words: int, happened: list[Any]
) -> None:
    """A request that was begun and not answered may have renewed a lease; the client does not count on it."""
    with talk(api, words) as desk:
        desk.turn(3, 1, 1)
        for what in happened:
            happen(desk, what)
            held = desk.held()
            for tokens, expires in held["client"]:
                assert any(tokens == length and expires <= end for length, end in held["provider"]), what
