"""For any sequence of turns, pauses and changes: every body is legal, extends the one before, and costs what was said.

The judge is the emulator's own reading of the providers' rules and bills, here without HTTP.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talk import MODELS, talk

from context.block import Layer
from context.breakpoints import ALL_SHORT

_turns = st.tuples(st.just("turn"), st.integers(1, 120), st.integers(0, 3), st.sampled_from([1, 1, 2, 25]))
_pauses = st.tuples(st.just("pause"), st.sampled_from([1, 200, 240, 299, 300, 301, 1700, 1900, 3500, 4000, 50_000]))
_changes = st.one_of(
    st.tuples(st.just("effort"), st.sampled_from([None, "low", "high"])),
    st.tuples(st.just("model"), st.integers(0, 1)),
    st.tuples(st.just("ttl"), st.sampled_from(["short", "long"])),
    st.tuples(st.sampled_from(["fork", "new"])),
)


@pytest.mark.parametrize("api", MODELS)
@settings(max_examples=250, deadline=None)
@given(
    words=st.sampled_from([1, 40, 130, 400]),  # of the head: below, around and above the models' minimum
    happened=st.lists(st.one_of(_turns, _pauses, _pauses, _changes), min_size=2, max_size=16),
)
def test_whatever_happens_bodies_are_legal_and_bills_are_foretold(api: str, words: int, happened: list[Any]) -> None:
    with talk(api, words) as desk:
        desk.turn(3, 1, 1)
        for what in happened:
            match what:
                case ("turn", words, loops, wide):
                    desk.turn(words, loops, wide)
                case ("pause", seconds):
                    desk.clock.advance(seconds)
                case ("effort", effort):
                    desk.effort = effort
                    desk.prepare()
                case ("model", index):
                    desk.model = MODELS[api][index]
                    desk.prepare()
                case ("ttl", ttl):
                    desk.ttl = {**ALL_SHORT, Layer.SYSTEM: ttl, Layer.PROJECT: ttl}
                    desk.prepare()
                case ("fork",):
                    desk.fork()
                case ("new",):
                    desk.open("another session")
