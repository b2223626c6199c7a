"""After the bill, in tables: what the cache holds now, and what the bill means."""

from dataclasses import replace

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
from context.block import Layer
from context.breakpoints import Marker
from context.explain import layer_read
from context.forecast import Cause
from context.prompt import Prompt
from context.usage import Usage

# --- what the cache holds afterwards


def test_a_hit_renews_what_it_reads_and_the_marked_entries_before_it() -> None:
    """A session that is active for longer than a lease keeps SYSTEM and PROJECT warm for the next session."""
    cache, prompt, now = Cache(), conversation(100), NOW
    for turn in range(4):
        made = foretell(prompt, cache, tail(prompt, 1, 2, *((prompt.length - 1,) if turn else ())), now=now)
        after(made, made.usage, cache, prompt)
        now += 200
        prompt = prompt.append(block(50, name=f"turn {turn}"))
    another = Prompt.empty().extend([*HEAD, block(70, name="another session")])
    assert foretell(another, cache, tail(another, 1, 2), now=now).usage.cache_read == 2000


def test_entries_have_the_tokens_of_the_bill_and_the_time_to_live_that_was_granted() -> None:
    cache, prompt = Cache(), conversation(100, 200)
    markers = (Marker(2, "long"), Marker(4, "short"))
    made = foretell(prompt, cache, markers)
    after(made, Usage(0, 0, 4600, 4000), cache, prompt)
    entries = sorted(cache.held.values(), key=lambda entry: entry.tokens)
    assert [(entry.tokens, entry.ttl, entry.used) for entry in entries] == [
        (4000, 3600, made.now),
        (4600, 300, made.now),
    ]
    shortened = after(made, Usage(0, 0, 4600, 0), Cache(), prompt)
    assert {entry.ttl for entry in shortened.held.values()} == {300}


def test_new_entries_are_counted_on_from_the_one_that_was_read() -> None:
    """The bill is for all behind the hit; what lies between two breakpoints has its share of it."""
    cache, before = Cache(), conversation(100)
    cache.put(before, 4000)
    prompt = before.extend([block(30, name="one"), block(60, name="two"), block(10, name="unmarked")])
    made = foretell(prompt, cache, (Marker(3, "short"), Marker(4, "short"), Marker(5, "short")))
    after(made, Usage(fresh=20, cache_read=4000, cache_write=180, cache_write_long=0), cache, prompt)
    assert sorted(entry.tokens for entry in cache.held.values()) == [4000, 4060, 4180]


def test_an_entry_that_was_found_behind_a_breakpoint_is_renewed_too() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, now=NOW + 299)
    after(made, made.usage, cache, prompt)
    another = before.append(block(70, name="another way"))
    assert foretell(another, cache, now=NOW + 299 + 299).usage.cache_read == 2100
    assert foretell(another, cache, now=NOW + 299 + 300).usage.cache_read == 0


def test_sending_the_same_again_renews_all_of_it() -> None:
    cache, prompt = Cache(), conversation(100)
    markers = tail(prompt, 1, 2)
    made = foretell(prompt, cache, markers, now=NOW)
    after(made, made.usage, cache, prompt)
    ping = foretell(prompt, cache, markers, now=NOW + 240)
    assert ping.usage == Usage(0, 2100, 0, 0)
    after(ping, ping.usage, cache, prompt)
    assert {entry.used for entry in cache.held.values()} == {NOW + 240}
    assert sorted(entry.tokens for entry in cache.held.values()) == [1500, 2000, 2100]


def test_a_hit_neither_writes_before_itself_nor_changes_a_time_to_live() -> None:
    """An entry keeps the one that it was written with, whatever is asked for later, and a dead one stays dead."""
    cache, before = Cache(), conversation(60, 40)
    cache.put(before.at(1), 1500, used=NOW - 300)
    cache.put(before.at(2), 2000, ttl=3600)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, tail(prompt, 1, 2, 3, 4))
    after(made, made.usage, cache, prompt)
    alive = [entry for entry in cache.held.values() if entry.alive(made.now)]
    assert {entry.tokens: entry.ttl for entry in alive} == {2000: 3600, 2100: 300, 2150: 300}


def test_what_lived_longer_than_promised_lives_on_and_costs_nothing_its_life() -> None:
    """The provider read an entry whose lease had run out by our count; the shorter one that we expected is not lost."""
    cache, before = Cache(), conversation(100, 100)
    cache.put(before, 2200, used=NOW - 300)
    cache.put(before.at(3), 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, tail(prompt, 4))
    assert made.usage.cache_read == 2100
    after(made, Usage(0, 2200, 50, 0), cache, prompt)
    assert foretell(prompt, cache, tail(prompt, 4), now=NOW + 359).usage.cache_read == 2250
    another = before.at(3).append(block(9, name="another way"))
    assert foretell(another, cache, now=NOW + 299).usage.cache_read == 2100


def test_what_another_machine_wrote_is_read_and_remembered_with_the_rest() -> None:
    """Nothing is known of what was read; what the bill says was written behind it is."""
    cache, prompt = Cache(), conversation(100)
    made = foretell(prompt, cache, tail(prompt, 2))
    assert made.hit is None
    after(made, Usage(0, 2000, 100, 0), cache, prompt)
    assert foretell(prompt.append(block(9)), cache, now=made.now + 299).usage.cache_read == 2100


def test_what_was_dropped_and_written_anew_is_there() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, tail(prompt, 3))
    after(made, Usage(0, 0, 2150, 0), cache, prompt)
    assert foretell(before, cache, now=made.now + 299).usage.cache_read == 2100


@pytest.mark.parametrize(("read", "ttl"), [(2000, 300), (2004, 3600)])
def test_of_two_like_entries_the_nearer_one_was_read(read: int, ttl: float) -> None:
    """What lies behind it was written, with the time to live that was asked for now."""
    cache, prompt = Cache(), conversation(4, 50)
    cache.put(prompt.at(2), 2000)
    cache.put(prompt.at(3), 2004, ttl=3600)
    made = foretell(prompt, cache, tail(prompt, 2, 3))
    after(made, Usage(0, read, 2054 - read, 0), cache, prompt)
    entry = cache.find(SCOPE.key(RULES, head=False), prompt.at(3).digest)
    assert entry is not None
    assert entry.ttl == ttl


@pytest.mark.parametrize(("read", "alive"), [(2110, True), (2090, True), (2089, False)])
def test_a_count_that_is_half_a_per_cent_off_means_the_same_prefix(read: int, alive: bool) -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache)
    after(made, Usage(0, read, 2150 - read, 0), cache, prompt)
    assert cache.held[SCOPE.key(RULES, head=False), before.digest].alive(made.now) is alive


def test_a_call_without_markers_leaves_nothing() -> None:
    made = foretell(conversation(100), Cache(), ())
    assert after(made, Usage(2100, 0, 0, 0), Cache(), conversation(100)).held == {}


def test_what_the_provider_dropped_is_forgotten() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache)
    assert made.usage.cache_read == 2100
    after(made, Usage(0, 0, 2150, 0), cache, prompt)
    assert not cache.held[SCOPE.key(RULES, head=False), before.digest].alive(made.now)
    assert foretell(prompt, cache, now=made.now).usage.cache_read == 2150


def test_where_less_was_read_than_expected_the_rest_is_forgotten() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before.at(2), 2000)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, tail(prompt, 2))
    after(made, Usage(0, 2000, 150, 0), cache, prompt)
    another = before.append(block(9, name="another way"))
    assert foretell(another, cache, tail(another, 2), now=made.now).usage.cache_read == 2000


def test_what_the_bill_shows_to_be_below_the_minimum_was_not_written() -> None:
    cache, prompt = Cache(), conversation(100)
    after(foretell(prompt, cache, tail(prompt, 1, 2)), Usage(0, 0, 1050, 0), cache, prompt)
    assert sorted(entry.tokens for entry in cache.held.values()) == [1000, 1050]


def test_a_request_that_reads_and_writes_nothing_leaves_what_it_read() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache)
    after(made, Usage(50, 2100, 0, 0), cache, prompt)
    assert [(entry.tokens, entry.used) for entry in cache.held.values()] == [(2100, made.now)]


def test_without_a_reported_write_nothing_is_believed_to_be_written() -> None:
    made = foretell(conversation(100), Cache())
    assert after(made, Usage(2100, 0, 0, 0), Cache(), conversation(100)).held == {}


@pytest.mark.parametrize("told", [Usage(), Usage(None, 0, None), Usage(None, 0, 9, 0), Usage(7, None, 0, 0)])
def test_silence_leaves_the_forecast_standing(told: Usage) -> None:
    prompt = conversation(100)
    made = foretell(prompt, Cache())
    (entry,) = after(made, told, Cache(), prompt).held.values()
    assert entry.tokens == 2100


# --- the audit


@pytest.mark.parametrize(
    ("usage", "diagnosis", "cause", "foreseen", "missed"),
    [
        (Usage(0, 2100, 50, 0), None, Cause.NONE, True, 0),
        (Usage(0, 2090, 60, 0), None, Cause.NONE, True, 10),  # half a per cent: the same prefix
        (Usage(0, 2089, 61, 0), None, Cause.EVICTED, False, 11),
        (Usage(0, 2000, 150, 0), None, Cause.EVICTED, False, 100),
        (Usage(0, 0, 2150, 0), None, Cause.EVICTED, False, 2100),
        (Usage(0, 0, 2150, 0), "tools_changed", Cause.CHANGED, False, 2100),
        (Usage(0, 0, 2150, 0), "reasoning_effort_changed", Cause.EFFORT_CHANGED, False, 2100),
        (Usage(0, 0, 2150, 0), "hit", Cause.EVICTED, False, 2100),
        (Usage(50, None, None), None, Cause.NOT_REPORTED, True, None),
        (Usage(0, 900_000, 0, 0), None, Cause.IMPLAUSIBLE, False, None),
        (Usage(0, 10, 0, 0), None, Cause.IMPLAUSIBLE, False, None),
        (Usage(0, 2100, 50, 50), None, Cause.NONE, True, 0),
        (Usage(0, 2100, 50, 51), None, Cause.IMPLAUSIBLE, False, None),
    ],
)
def test_each_verdict(usage: Usage, diagnosis: str | None, cause: Cause, foreseen: bool, missed: int | None) -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    made = foretell(before.append(block(50, name="new")), cache, last=sent(before))
    verdict = audit(made, usage, replace(RULES, min_tokens=0), diagnosis)
    if cause is Cause.IMPLAUSIBLE and usage.cache_read == 10:
        made = replace(made, total=20_000)
        verdict = audit(made, usage, RULES, diagnosis)
    assert (verdict.cause, verdict.foreseen, verdict.missed) == (cause, foreseen, missed)


def test_a_provider_that_disagrees_with_a_foreseen_cause_is_told() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    made = foretell(before.append(block(50, name="new")), cache, last=sent(before), now=NOW + 400)
    verdict = audit(made, Usage(0, 0, 2150, 0), RULES, "tools_changed")
    assert (verdict.cause, verdict.foreseen, verdict.disputed) == (Cause.EXPIRED, True, True)
    assert (verdict.missed, verdict.since) == (2100, NOW + 300)
    changed = replace(made, cause=Cause.CHANGED)
    assert not audit(changed, Usage(0, 0, 2150, 0), RULES, "tools_changed").disputed
    assert not audit(made, Usage(0, 0, 2150, 0), RULES, "hit").disputed


@pytest.mark.parametrize(
    ("ttl", "cause", "since"),
    [(65, Cause.EXPIRED, NOW + 65), (65.5, Cause.EVICTED, None), (None, Cause.EVICTED, None)],
)
def test_a_lease_that_ran_out_on_the_way_is_expired_and_not_evicted(
    ttl: float | None, cause: Cause, since: float | None
) -> None:
    """Five seconds for the way and for two clocks that differ."""
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100, ttl=ttl)
    made = foretell(before.append(block(50, name="new")), cache, last=sent(before))
    verdict = audit(made, Usage(0, 0, 2150, 0), RULES)
    assert (verdict.cause, verdict.foreseen, verdict.since) == (cause, False, since)


@pytest.mark.parametrize(
    ("total", "cause"), [(10_000, Cause.NONE), (10_001, Cause.IMPLAUSIBLE), (667, Cause.NONE), (666, Cause.IMPLAUSIBLE)]
)
def test_counters_that_no_tokenizer_explains_are_implausible(total: int, cause: Cause) -> None:
    """Three times the forecast, and a thousand tokens that the provider may put in front by itself."""
    made = replace(foretell(conversation(), Cache()), cause=Cause.NONE)
    assert audit(replace(made, total=3000), Usage(total, 0, 0, 0), RULES).cause is cause


def test_a_bill_without_a_total_is_judged_by_what_was_read() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    made = foretell(before.append(block(50, name="new")), cache, last=sent(before))
    assert audit(made, Usage(None, 2100, None), RULES).cause is Cause.NONE
    assert audit(made, Usage(None, 0, None), RULES).cause is Cause.EVICTED


def test_a_time_to_live_that_was_not_granted_is_named_where_it_was_asked_for() -> None:
    """Field report 28."""
    made = foretell(conversation(100), Cache(), (Marker(2, "long"), Marker(3, "short")))
    verdict = audit(made, Usage(0, 0, 2100, 0), RULES)
    assert (verdict.cause, verdict.foreseen) == (Cause.TTL_SHORTENED, False)
    assert audit(made, Usage(0, 0, 2100, 2000), RULES).cause is Cause.FIRST
    assert audit(made, Usage(2100, 0, 0, 0), RULES).cause is Cause.FIRST, "nothing was written at all"
    assert audit(made, Usage(0, 0, 2100, None), RULES).cause is Cause.FIRST, "not split: unknown, and no accusation"


def test_a_cache_that_lasts_longer_than_promised_is_no_miss() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before, 2100)
    made = foretell(before.append(block(50, name="new")), cache, last=sent(before), now=NOW + 400)
    verdict = audit(made, Usage(0, 2100, 50, 0), RULES)
    assert (verdict.cause, verdict.foreseen, verdict.missed) == (Cause.NONE, False, 0)


# --- in words


@pytest.mark.parametrize(
    ("usage", "layer"),
    [
        (Usage(0, 1500, 800, 0), Layer.SYSTEM),
        (Usage(0, 3000, 1600, 0), Layer.SYSTEM),  # the model's tokens are smaller than the estimate's
        (Usage(0, 1540, 760, 0), Layer.SYSTEM),
        (Usage(0, 1555, 745, 0), None),
        (Usage(100, 2000, 200, 0), Layer.PROJECT),
        (Usage(0, 1750, 550, 0), None),
        (Usage(0, 2300, 0, 0), None),
        (Usage(0, 0, 2300, 0), None),
        (Usage(0, 1500, None), None),
        (Usage(2300, None, 0), None),
    ],
)
def test_the_layer_at_whose_end_reading_stopped(usage: Usage, layer: Layer | None) -> None:
    """Field report 49: by the layers' shares of the bill."""
    assert layer_read(conversation(100, 200), usage, "any") is layer
