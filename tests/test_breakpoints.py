"""The breakpoint planner: at most four markers, in the right places, with legal times to live."""

from hypothesis import given
from hypothesis import strategies as st

from context.block import Block, Layer, Role, Text
from context.breakpoints import Marker, plan_markers
from context.cache_rules import CacheRules
from context.prompt import Prompt


def block(layer: Layer, tokens: int = 2000) -> Block:
    return Block.make(layer, Role.USER, [Text("word" * tokens)])


def conversation(turns: int, tokens: int = 2000) -> Prompt:
    head = [block(Layer.SYSTEM, tokens), block(Layer.PROJECT, tokens)]
    return Prompt.empty().extend(head + [block(Layer.COMMAND, tokens)] * turns)


def test_layers_last_request_and_tail_are_marked() -> None:
    markers = plan_markers(conversation(5), CacheRules(), last_request=5)
    assert markers == (Marker(1, "short"), Marker(2, "short"), Marker(5, "short"), Marker(7, "short"))


def test_a_wide_turn_is_found_where_the_last_request_ended_not_by_lookback() -> None:
    """Field report 36: more than twenty new blocks in a turn fall out of the provider's lookback."""
    markers = plan_markers(conversation(60), CacheRules(), last_request=10)
    assert Marker(10, "short") in markers
    assert markers[-1] == Marker(62, "short")


def test_the_first_request_has_no_marker_for_an_earlier_one() -> None:
    assert [m.blocks for m in plan_markers(conversation(1), CacheRules(), last_request=None)] == [1, 2, 3]


def test_a_prefix_far_below_the_minimum_takes_no_slot() -> None:
    markers = plan_markers(conversation(1, tokens=500), CacheRules(min_tokens=1024), last_request=None)
    assert [m.blocks for m in markers] == [2, 3]


def test_a_model_without_markers_gets_none() -> None:
    assert plan_markers(conversation(3), CacheRules(max_markers=0), last_request=2) == ()


def test_when_slots_are_scarce_the_tail_is_kept() -> None:
    markers = plan_markers(conversation(5), CacheRules(max_markers=2), last_request=5)
    assert [m.blocks for m in markers] == [5, 7]


@given(
    turns=st.integers(0, 40),
    tokens=st.integers(0, 4000),
    last=st.none() | st.integers(0, 60),
    slots=st.integers(0, 6),
    ttl=st.fixed_dictionaries({layer: st.sampled_from(["short", "long"]) for layer in Layer}),
)
def test_any_plan_is_legal(turns: int, tokens: int, last: int | None, slots: int, ttl: dict[Layer, str]) -> None:
    """Field reports 33 and 34: markers over the limit or out of order are refused by the provider."""
    prompt = conversation(turns, tokens)
    markers = plan_markers(prompt, CacheRules(max_markers=slots), last, ttl)  # type: ignore[arg-type]
    assert len(markers) <= slots
    positions = [marker.blocks for marker in markers]
    assert positions == sorted(set(positions))
    assert all(0 < position <= prompt.length for position in positions)
    times = [marker.ttl for marker in markers]
    assert times == sorted(times), "long comes before short"
