"""The emulated prompt cache of Anthropic, rule by rule: the client's forecast is held against it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from emulator import Bill, Reply
from emulator.anthropic_cache import PromptCache, positions, size
from emulator.models import ALL, Model
from emulator.tokens import compact, text_tokens

HOUR, SHORT = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
WORDS = "word " * 60
TINY = replace(ALL.rows["claude-sonnet-5-5"], minimum=1)
Body = dict[str, Any]


def ask(cache: PromptCache, body: Body, at: float = 0, model: Model = TINY, **faults: Any) -> Bill:
    """One request that starts at `at` and whose response begins."""
    account = cache.account(body, model, at, Reply(**faults))
    account.begin()
    return account.bill


def conversation(count: int, marked: Mapping[int, dict[str, str]] = {}) -> Body:
    """A body of one user message of `count` texts; `marked` gives the marker of some, numbered from 1."""
    parts: list[Body] = [{"type": "text", "text": f"{number} {WORDS}"} for number in range(1, count + 1)]
    for number, control in marked.items():
        parts[number - 1]["cache_control"] = control
    return {"model": "claude-sonnet-5-5", "max_tokens": 5, "messages": [{"role": "user", "content": parts}]}


def upto(count: int) -> int:
    """The size of the first `count` texts of a conversation."""
    return size(conversation(count))


# Sizes


def test_sizes_follow_the_published_tokenizer() -> None:
    tool = {"name": "read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}
    thinking = {"type": "thinking", "thinking": "Hm, é.", "signature": "abc"}
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {"b": "é", "a": [1, 2]}}
    body: Body = {
        "tools": [{**tool, "cache_control": HOUR}],
        "system": [{"type": "text", "text": "You are careful."}, {"type": "text", "text": "Files: a, b"}],
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "I look."}, use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "text of a"}]},
        ],
    }
    expected = [
        text_tokens('read\nRead a file.\n{"type":"object","properties":{}}') + 4,
        text_tokens("You are careful.") + 4,
        text_tokens("Files: a, b") + 4,
        4 + text_tokens("go"),
        4 + len(compact(thinking).encode()) // 4,
        text_tokens("I look."),
        text_tokens('read\n{"b":"é","a":[1,2]}') + 4,
        4 + text_tokens("text of a") + 4,
    ]
    sums = [place.size for place in positions(body, TINY)]
    assert sums == [sum(expected[: number + 1]) for number in range(len(expected))]
    assert size(body) == sum(expected)


# Reads: the lookback of 20 positions


@pytest.mark.parametrize(
    ("later", "hit"),
    [
        (conversation(34, {34: SHORT}), True),
        (conversation(35, {35: SHORT}), False),  # the documentation's example: 20 behind, counting the marker itself
        (conversation(35, {15: SHORT, 35: SHORT}), True),
        (conversation(60, {34: SHORT, 60: SHORT}), True),  # it goes on from the next marker
        (conversation(60, {35: SHORT, 60: SHORT}), False),
        (conversation(15, {15: SHORT}), True),
        (conversation(15, {14: SHORT}), False),  # nothing is looked for behind a marker
        (conversation(20), False),
    ],
)
def test_an_entry_is_found_at_most_twenty_positions_back(later: Body, hit: bool) -> None:
    """Field report 36."""
    cache = PromptCache()
    ask(cache, conversation(15, {15: SHORT}))
    assert ask(cache, later).read == (upto(15) if hit else 0)


def test_every_kind_of_block_counts_as_a_position() -> None:
    cache = PromptCache()
    asked: Body = {"role": "user", "content": [{"type": "text", "text": WORDS, "cache_control": SHORT}]}
    base = {**conversation(1), "messages": [asked]}
    written = ask(cache, base).write_short
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "read", "input": {}} for n in range(6)]
    results: list[Body] = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": WORDS} for n in range(6)]
    results[-1]["cache_control"] = SHORT
    bare = {"role": "user", "content": [{"type": "text", "text": WORDS}]}

    def turn(thoughts: int) -> Body:
        thinking = [{"type": "thinking", "thinking": str(n), "signature": "s"} for n in range(thoughts)]
        assistant = {"role": "assistant", "content": [*thinking, *uses]}
        return {**base, "messages": [bare, assistant, {"role": "user", "content": results}]}

    assert ask(cache, turn(8)).read == 0, "1 + 8 + 6 + 6 positions: the entry is the 21st"
    assert ask(cache, turn(7)).read == written, "1 + 7 + 6 + 6 positions: the entry is the 20th"


# Writes and their price: A, B and C


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # nothing cached: fresh, read, short, long, as numbers of texts
        ({}, {}, (6, 0, 0, 0)),
        ({}, {6: SHORT}, (0, 0, 6, 0)),
        ({}, {4: SHORT}, (2, 0, 4, 0)),
        ({}, {2: HOUR, 5: SHORT}, (1, 0, 3, 2)),
        ({}, {2: HOUR, 4: HOUR}, (2, 0, 0, 4)),
        ({}, {1: HOUR, 2: HOUR, 4: SHORT, 6: SHORT}, (0, 0, 4, 2)),
        # A is behind all long markers: B is A
        ({3: SHORT}, {2: HOUR, 5: SHORT}, (1, 3, 2, 0)),
        # A lies before the long marker: B is written long, the rest short
        ({1: HOUR}, {3: HOUR, 6: SHORT}, (0, 1, 3, 2)),
        ({1: SHORT}, {3: HOUR, 5: HOUR}, (1, 1, 0, 4)),
        # all of it is there
        ({6: SHORT}, {6: SHORT}, (0, 6, 0, 0)),
        ({2: HOUR, 6: SHORT}, {2: HOUR, 6: SHORT}, (0, 6, 0, 0)),
        # the first request wrote at its markers only
        ({6: SHORT}, {5: SHORT}, (1, 0, 5, 0)),
    ],
)
def test_reads_and_writes_are_billed_by_a_b_and_c(
    first: dict[int, Any], second: dict[int, Any], expected: tuple[int, int, int, int]
) -> None:
    """A: furthest hit; B: last 1h marker behind it; C: last marker. Read A, write B − A for 1h and C − B for 5m."""
    cache = PromptCache()
    ask(cache, conversation(6, first))
    bill = ask(cache, conversation(6, second))
    fresh, read, short, long = expected
    assert bill.read == upto(read)
    assert bill.write_long == upto(read + long) - upto(read)
    assert bill.write_short == upto(read + long + short) - upto(read + long)
    assert bill.fresh == upto(6) - upto(6 - fresh)
    assert bill.input_total == upto(6)


def test_a_marker_before_the_hit_writes_nothing() -> None:
    cache = PromptCache()
    ask(cache, conversation(6, {6: SHORT}))
    ask(cache, conversation(6, {3: SHORT, 6: SHORT}))
    assert ask(cache, conversation(3, {3: SHORT})).read == 0


@pytest.mark.parametrize(("below", "cached"), [(0, True), (1, False)])
def test_a_prefix_below_the_minimum_is_silently_not_cached(below: int, cached: bool) -> None:
    """Exactly the minimum is enough. A long prefix is written although a marker lies at a short one."""
    model = replace(TINY, minimum=upto(3) + below)
    cache = PromptCache()
    bill = ask(cache, conversation(3, {3: SHORT}), model=model)
    assert (bill.write_short > 0) is cached
    assert bill.input_total == upto(3)
    assert (ask(cache, conversation(3, {3: SHORT}), model=model).read > 0) is cached
    both = ask(PromptCache(), conversation(5, {3: HOUR, 5: SHORT}), model=model)
    assert (both.write_long > 0) is cached
    assert both.write_long + both.write_short == upto(5)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5", 512),
        ("claude-sonnet-5", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-5", 4096),
        ("claude-haiku-4-5", 4096),
    ],
)
def test_minimum_prefixes(model: str, minimum: int) -> None:
    assert ALL.rows[model].minimum == minimum


# Time


def test_a_pause_of_six_minutes_costs_the_prefix_and_one_of_four_does_not() -> None:
    """Field report 29."""
    body, cache = conversation(6, {6: SHORT}), PromptCache()
    ask(cache, body, at=0)
    assert ask(cache, body, at=240).read == upto(6)
    assert ask(cache, body, at=240 + 360).write_short == upto(6)


def test_a_ping_before_the_end_keeps_the_entry_alive() -> None:
    """Field report 59: with a ping at 240 s there is a hit at 482 s; without, there is none."""
    body = conversation(6, {6: SHORT})
    for pinged in (True, False):
        cache = PromptCache()
        ask(cache, body, at=0)
        if pinged:
            ask(cache, body, at=240)
        assert (ask(cache, body, at=482).read > 0) is pinged


@pytest.mark.parametrize(("control", "ttl"), [(SHORT, 300), (HOUR, 3600)])
def test_the_time_to_live_counts_from_the_start_of_the_request(control: dict[str, str], ttl: float) -> None:
    body = conversation(6, {6: control})
    for late, hit in ((-0.1, True), (0, False)):
        cache = PromptCache()
        account = cache.account(body, TINY, 1000, Reply())
        account.begin()  # however long it took until the response began
        assert (cache.account(body, TINY, 1000 + ttl + late, Reply()).bill.read > 0) is hit


def test_a_hit_refreshes_what_is_marked_and_nothing_else() -> None:
    cache = PromptCache()
    ask(cache, conversation(6, {2: SHORT, 4: SHORT, 6: SHORT}), at=0)
    ask(cache, conversation(6, {2: SHORT, 6: SHORT}), at=200)
    assert ask(cache, conversation(2, {2: SHORT}), at=400).read == upto(2)
    assert ask(cache, conversation(4, {4: SHORT}), at=400).read == upto(2), "the entry at 4 was not marked: it is dead"
    assert ask(cache, conversation(6, {6: SHORT}), at=400).read == upto(6)


def test_an_entry_keeps_its_own_ttl_whatever_the_marker_asks_for() -> None:
    cache = PromptCache()
    ask(cache, conversation(6, {6: SHORT}), at=0)
    assert ask(cache, conversation(6, {6: HOUR}), at=100).read == upto(6)
    assert ask(cache, conversation(6, {6: HOUR}), at=401).write_long == upto(6)
    assert ask(cache, conversation(6, {6: SHORT}), at=3000).read == upto(6)


def test_an_entry_is_usable_once_the_first_response_has_begun() -> None:
    body, cache = conversation(6, {6: SHORT}), PromptCache()
    first, second = (cache.account(body, TINY, 0, Reply()) for _ in range(2))
    assert (first.bill.write_short, second.bill.write_short) == (upto(6), upto(6)), "both pay"
    first.begin()
    assert cache.account(body, TINY, 0, Reply()).bill.read == upto(6)
    second.begin()


def test_two_that_write_the_same_entry_at_once_leave_it_to_the_later_start() -> None:
    body, cache = conversation(6, {6: SHORT}), PromptCache()
    accounts = [cache.account(body, TINY, at, Reply()) for at in (0, 100)]
    for account in accounts:
        account.begin()
    assert ask(cache, body, at=399).read == upto(6)


def test_a_request_whose_response_never_begins_leaves_nothing_and_refreshes_nothing() -> None:
    body, cache = conversation(6, {6: SHORT}), PromptCache()
    cache.account(body, TINY, 0, Reply())
    assert ask(cache, body, at=1).read == 0
    cache.account(body, TINY, 200, Reply())
    assert ask(cache, body, at=302).read == 0


# What invalidates


def full(**changes: Any) -> Body:
    """A request with markers at the end of tools, system and messages."""
    return {
        "model": "claude-sonnet-5-5",
        "tools": [{"name": "read", "description": WORDS, "input_schema": {}, "cache_control": SHORT}],
        "system": [{"type": "text", "text": WORDS, "cache_control": SHORT}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": WORDS, "cache_control": SHORT}]}],
        **changes,
    }


TOOLS_END, SYSTEM_END, ALL_END = (place.size for place in positions(full(), TINY))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


@pytest.mark.parametrize(
    ("change", "survives"),
    [
        ({}, ALL_END),
        ({"max_tokens": 0}, ALL_END),
        ({"metadata": {"user_id": "u"}}, ALL_END),
        ({"model": "claude-opus-5-5"}, 0),
        ({"tools": [{"name": "read", "description": WORDS + "!", "input_schema": {}, "cache_control": SHORT}]}, 0),
        ({"tools": [{"description": WORDS, "name": "read", "input_schema": {}, "cache_control": SHORT}]}, 0),  # order
        ({"system": [{"type": "text", "text": WORDS + "!", "cache_control": SHORT}]}, TOOLS_END),
        ({"speed": "fast"}, TOOLS_END),
        ({"speed": "standard"}, ALL_END),
        ({"tool_choice": {"type": "none"}}, SYSTEM_END),
        ({"tool_choice": {"type": "auto"}}, ALL_END),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, SYSTEM_END),
        ({"output_config": {"effort": "low"}}, SYSTEM_END),
        ({"output_config": {"effort": "high"}}, ALL_END),  # the documented default of this model
        ({"thinking": {"type": "between_tools"}}, SYSTEM_END),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, ALL_END),
    ],
)
def test_what_a_change_leaves_of_the_cache(change: Body, survives: int) -> None:
    """The documentation's table of invalidations: tools, system, messages."""
    cache = PromptCache()
    ask(cache, full())
    assert ask(cache, full(**change)).read == survives


def test_an_image_anywhere_loses_the_messages_but_not_the_system() -> None:
    cache = PromptCache()
    ask(cache, full())
    with_image = full()
    with_image["messages"] = [*with_image["messages"], {"role": "user", "content": [IMAGE]}]
    assert ask(cache, with_image).read == SYSTEM_END


def test_an_effort_that_keeps_nothing_is_a_matter_of_the_model() -> None:
    model, cache = replace(TINY, effort_keeps_head=False), PromptCache()
    ask(cache, full(), model=model)
    assert ask(cache, full(output_config={"effort": "low"}), model=model).read == 0


def test_back_to_the_first_effort_finds_its_entries_again() -> None:
    cache = PromptCache()
    ask(cache, full())
    ask(cache, full(output_config={"effort": "low"}))
    assert ask(cache, full()).read == ALL_END


# Automatic caching


def test_a_top_level_marker_stands_at_the_last_block_that_can_carry_one() -> None:
    cache = PromptCache()
    first = {**conversation(3), "cache_control": SHORT}
    assert ask(cache, first).write_short == upto(3)
    bill = ask(cache, {**conversation(5), "cache_control": SHORT})
    assert (bill.read, bill.write_short, bill.fresh) == (upto(3), upto(5) - upto(3), 0)


# Faults


FAULTS: list[tuple[str, Callable[[PromptCache], Bill], int]] = [
    ("all", lambda cache: ask(cache, conversation(6, {2: SHORT, 6: SHORT}), evict="all"), 0),
    ("deepest", lambda cache: ask(cache, conversation(6, {2: SHORT, 6: SHORT}), evict="deepest"), 2),
]


@pytest.mark.parametrize(("name", "again", "left"), FAULTS)
def test_evictions(name: str, again: Callable[[PromptCache], Bill], left: int) -> None:
    cache = PromptCache()
    ask(cache, conversation(6, {2: SHORT, 6: SHORT}))
    assert again(cache).read == upto(left)


def test_an_hour_that_was_not_granted_is_billed_and_kept_as_five_minutes() -> None:
    """Field report 28."""
    cache = PromptCache()
    bill = ask(cache, conversation(6, {2: HOUR, 6: SHORT}), at=0, short_ttl=True)
    assert (bill.write_long, bill.write_short) == (0, upto(6))
    assert ask(cache, conversation(2, {2: HOUR}), at=301).read == 0
