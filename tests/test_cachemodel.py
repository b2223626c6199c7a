"""The client's model of a provider's cache in tables: what a request finds there, what it costs, and why not less."""

from dataclasses import replace
from typing import Any

import pytest
from cachemodel_support import (
    HEAD,
    NOW,
    RULES,
    SCOPE,
    Cache,
    after,
    block,
    conversation,
    foretell,
    sent,
    tail,
)

from context.audit import audit
from context.block import Block, Layer, Opaque, Role, Text, ToolCall
from context.breakpoints import Marker
from context.cache_rules import CacheRules
from context.cachemodel import Entry, find_hit, points
from context.forecast import Cause
from context.prompt import Prompt
from context.sizes import Anchor, Sizes
from context.usage import Usage

# --- sizes


def test_what_another_model_has_thought_and_empty_texts_take_no_room() -> None:
    mixed = Block.make(
        Layer.HISTORY,
        Role.ASSISTANT,
        [Opaque("mine", b"x" * 40), Opaque("other", b"y" * 400), Text("  "), Text("word"), ToolCall("1", "read", "{}")],
    )
    only_foreign = Block.make(Layer.HISTORY, Role.ASSISTANT, [Opaque("other", b"y" * 400)])
    sizes = Sizes("mine")
    sizes.follow(Prompt.empty().extend([mixed, only_foreign]))
    without = Block.make(Layer.HISTORY, Role.ASSISTANT, [Text("word"), ToolCall("1", "read", "{}")])
    assert sizes.estimate(1) == without.tokens + 10
    assert sizes.positions(1) == 3
    assert (sizes.estimate(2), sizes.positions(2)) == (sizes.estimate(1), 3)


def test_sizes_go_on_from_what_was_billed_and_follow_a_fork() -> None:
    prompt = conversation(100, 100, 100)
    sizes = Sizes("any")
    sizes.follow(prompt)
    assert sizes.tokens(5, 1.5) == 3450
    assert sizes.tokens(5, 1.5, Anchor(4, 4000)) == 4150
    assert sizes.tokens(2, 1.5, Anchor(4, 4400)) == 4000, "and back from it in proportion"
    sizes.follow(prompt.at(3).append(block(7, name="another way")))
    assert sizes.estimate(4) == 2107


# --- what is found


@pytest.mark.parametrize(("behind", "found"), [(0, True), (19, True), (20, False)])
def test_the_lookback_counts_the_breakpoint_itself(behind: int, found: bool) -> None:
    """Field report 36: 20 positions, of which the breakpoint is one."""
    before = conversation(100)
    prompt = before.extend([block(1, parts=behind, name="new")]) if behind else before
    cache = Cache()
    cache.put(before, 2100)
    sizes = Sizes("any")
    sizes.follow(prompt)
    hit = find_hit(points(prompt, tail(prompt), RULES, None), sizes, SCOPE, RULES, cache, NOW)
    assert (hit is not None) is found


@pytest.mark.parametrize(("age", "found"), [(0, True), (299.9, True), (300, False), (9999, False)])
def test_an_entry_is_dead_at_the_end_of_its_time_to_live(age: float, found: bool) -> None:
    cache, prompt = Cache(), conversation(100)
    cache.put(prompt, 2100)
    assert (foretell(prompt, cache, now=NOW + age).hit is not None) is found


@pytest.mark.parametrize(
    ("change", "kept"), [({}, 2100), ({"effort": "low"}, 2000), ({"model": "other"}, 0), ({"endpoint": "other"}, 0)]
)
def test_another_effort_keeps_the_head_and_another_model_or_endpoint_nothing(change: dict[str, str], kept: int) -> None:
    cache, prompt = Cache(), conversation(100)
    cache.put(prompt, 2100)
    cache.put(prompt.at(2), 2000)
    made = foretell(prompt, cache, tail(prompt, 2), scope=replace(SCOPE, **change))
    assert made.usage.cache_read == kept


def test_without_a_lookback_only_the_marked_place_itself_is_found() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    rules = replace(RULES, lookback=None)
    assert foretell(prompt, cache, rules=rules).hit is None
    assert foretell(prompt, cache, tail(prompt, before.length), rules=rules).usage.cache_read == 2100


def test_an_entry_without_a_clock_does_not_die() -> None:
    cache, prompt = Cache(), conversation(100)
    cache.put(prompt, 2100, ttl=None)
    assert foretell(prompt, cache, now=NOW + 1e9).usage.cache_read == 2100


def test_where_a_model_does_not_keep_the_head_another_effort_reads_nothing() -> None:
    cache, prompt = Cache(), conversation(100)
    rules = replace(RULES, effort_keeps_system=False)
    key = SCOPE.key(rules, head=True)
    cache.keep([Entry(key, prompt.at(2).digest, 2000, NOW, 300)])
    markers = tail(prompt, 2)
    assert foretell(prompt, cache, markers, rules=rules).usage.cache_read == 2000
    assert foretell(prompt, cache, markers, rules=rules, scope=replace(SCOPE, effort="low")).usage.cache_read == 0


def test_an_entry_below_the_minimum_is_not_found() -> None:
    """As the catalogue has it now: it may have been another one when the entry was written."""
    cache, prompt = Cache(), conversation(100)
    cache.put(prompt, 2100)
    assert foretell(prompt, cache, rules=replace(RULES, min_tokens=2100)).hit is not None
    assert foretell(prompt, cache, rules=replace(RULES, min_tokens=2101)).hit is None


def test_the_longest_living_prefix_is_found_by_whichever_breakpoint() -> None:
    cache, before = Cache(), conversation(100, 100)
    cache.put(before.at(3), 2100)
    cache.put(before.at(2), 2000)
    cache.put(before, 2200, ttl=1)
    prompt = before.append(block(50, parts=30, name="wide"))
    assert foretell(prompt, cache, tail(prompt, 1, 2, before.length)).usage.cache_read == 2100


# --- what it costs


@pytest.mark.parametrize(
    ("held", "markers", "usage"),
    [
        ((), (Marker(1, "short"), Marker(2, "short"), Marker(4, "short")), Usage(0, 0, 2300, 0)),
        ((), (Marker(2, "long"), Marker(4, "short")), Usage(0, 0, 2300, 2000)),
        ((1,), (Marker(1, "long"), Marker(2, "long"), Marker(4, "short")), Usage(0, 1500, 800, 500)),
        ((2,), (Marker(2, "long"), Marker(4, "short")), Usage(0, 2000, 300, 0)),
        ((), (Marker(2, "short"),), Usage(300, 0, 2000, 0)),
        ((), (), Usage(2300, 0, 0, 0)),
    ],
)
def test_each_token_is_billed_once(held: tuple[int, ...], markers: tuple[Marker, ...], usage: Usage) -> None:
    """Read to the longest hit, long to the last long breakpoint, short to the last one, the rest fresh."""
    prompt, cache = conversation(100, 200), Cache()
    for length in held:
        cache.put(prompt.at(length), {1: 1500, 2: 2000}[length])
    assert foretell(prompt, cache, markers).usage == usage


def test_what_was_billed_once_is_known_and_only_the_rest_is_estimated() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 4321)
    made = foretell(before.append(block(50, name="new")), cache, scale=2.0)
    assert (made.usage, made.total) == (Usage(0, 4321, 100, 0), 4421)


def test_a_local_model_has_no_bill() -> None:
    rules, prompt = CacheRules("none"), conversation(100)
    made = foretell(prompt, Cache(), (), rules=rules, scale=1.5)
    assert (made.usage, made.total, made.cause) == (Usage(), 3150, Cause.NONE)
    assert after(made, Usage(100, 2000, 0, 0), Cache(), prompt, rules).held == {}
    assert audit(made, Usage(2100, 0, 0, 0), rules).cause is Cause.NONE


def test_below_the_minimum_nothing_is_written() -> None:
    short = Prompt.empty().extend([block(999, Layer.SYSTEM)])
    assert foretell(short, Cache()).usage == Usage(999, 0, 0, 0)
    assert foretell(short.append(block(1)), Cache()).usage == Usage(0, 0, 1000, 0)


def test_an_automatic_cache_is_read_in_steps_and_written_for_nothing() -> None:
    rules = CacheRules("automatic", 0, 1024, None, 600, None, step=128)
    before = conversation(100)
    cache = Cache()
    key = SCOPE.key(rules, head=False)
    cache.held[key, before.digest] = Entry(key, before.digest, 2100, NOW, 600)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, (), rules=rules, last=sent(before))
    assert made.usage == Usage(2150 - 2048, 2048, 0, 0)


def test_an_automatic_cache_is_remembered_at_the_ends_of_the_layers_too() -> None:
    """Another session, at another effort, reads the head; one that is shorter than the last request loses nothing."""
    rules = CacheRules("automatic", 0, 1024, None, 600, None, step=128)
    cache, prompt = Cache(), conversation(100, 100)
    made = foretell(prompt, cache, (), rules=rules)
    after(made, Usage(2200, 0, 0, 0), cache, prompt, rules)
    another = Prompt.empty().extend([*HEAD, block(700, name="another session")])
    scope = replace(SCOPE, effort="low")
    assert foretell(another, cache, (), rules=rules, scope=scope).usage.cache_read == 2000 - 2000 % 128
    longer = sent(prompt.append(block(9)))
    assert foretell(prompt, cache, (), rules=rules, last=longer).usage.cache_read == 2200 - 2200 % 128


# --- why not more


def causes() -> list[tuple[str, dict[str, Any], Cause]]:
    before = conversation(100)
    prompt = before.append(block(50, name="new"))
    far = before.append(block(50, parts=40, name="wide"))
    other = Prompt.empty().extend([block(1501, Layer.SYSTEM, name="another"), *list(before)[1:]])
    at_last = tail(prompt, before.length)
    return [
        ("all is read", {"prompt": prompt, "last": sent(before), "markers": at_last}, Cause.NONE),
        ("the same again", {"prompt": before, "last": sent(before)}, Cause.NONE),
        ("nothing was sent", {"prompt": prompt, "cache": Cache()}, Cause.FIRST),
        ("another session's head is read", {"prompt": prompt}, Cause.NONE),
        ("a prompt that was cut back", {"prompt": before, "last": sent(prompt)}, Cause.CHANGED),
        ("too late", {"prompt": prompt, "last": sent(before), "markers": at_last, "now": NOW + 301}, Cause.EXPIRED),
        ("another prefix", {"prompt": prompt, "last": sent(other)}, Cause.CHANGED),
        ("another model", {"prompt": prompt, "last": sent(before, model="b"), "cache": Cache()}, Cause.MODEL_CHANGED),
        (
            "another effort",
            {"prompt": prompt, "last": sent(before, effort="low"), "cache": Cache()},
            Cause.EFFORT_CHANGED,
        ),
        (
            "another host",
            {"prompt": prompt, "last": sent(before, endpoint="b"), "cache": Cache()},
            Cause.ENDPOINT_CHANGED,
        ),
        ("too far back", {"prompt": far, "last": sent(before)}, Cause.LOOKBACK),
        ("no marker", {"prompt": prompt, "last": sent(before), "markers": ()}, Cause.NO_MARKERS),
        ("not known", {"prompt": prompt, "last": sent(before), "cache": Cache()}, Cause.UNKNOWN),
        (
            "just long enough",
            {"prompt": prompt, "last": sent(before), "cache": Cache(), "rules": replace(RULES, min_tokens=2100)},
            Cause.UNKNOWN,
        ),
        (
            "too short",
            {"prompt": prompt, "last": sent(before), "cache": Cache(), "rules": replace(RULES, min_tokens=2101)},
            Cause.BELOW_MINIMUM,
        ),
    ]


@pytest.mark.parametrize(("options", "cause"), [row[1:] for row in causes()], ids=[row[0] for row in causes()])
def test_every_expected_miss_has_its_cause(options: dict[str, Any], cause: Cause) -> None:
    cache = Cache()
    cache.put(conversation(100), 2100)
    given = {"cache": cache, **options}
    made = foretell(given.pop("prompt"), given.pop("cache"), given.pop("markers", None), **given)
    assert made.cause is cause
    assert made.since == (NOW + 300 if cause is Cause.EXPIRED else None)


def test_what_could_have_been_read_is_the_last_request_and_not_the_head_that_is_left() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before.at(2), 2000, ttl=3600)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, tail(prompt, 2, 3), last=sent(before), now=NOW + 301)
    assert (made.usage, made.cause, made.since) == (Usage(0, 2000, 150, 0), Cause.EXPIRED, NOW + 300)
    verdict = audit(made, made.usage, RULES)
    assert (verdict.cause, verdict.foreseen, verdict.missed) == (Cause.EXPIRED, True, 100)
