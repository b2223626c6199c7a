"""The client's model of a provider's cache in tables: what a request finds, what it costs, what a bill means."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from context.audit import audit
from context.block import Block, Layer, Opaque, Role, Text, ToolCall
from context.breakpoints import Marker
from context.cache_rules import CacheRules
from context.cachemodel import Entry, Scope, find_hit, points
from context.explain import layer_read
from context.forecast import Cause, Forecast, Sent, forecast, settle
from context.prompt import Prompt
from context.sizes import Anchor, Sizes
from context.usage import Usage

RULES = CacheRules(min_tokens=1000)
SCOPE = Scope("api.example", "some/model", "high")
NOW = 1_000_000.0


def block(tokens: int, layer: Layer = Layer.HISTORY, parts: int = 1, name: str = "") -> Block:
    return Block(layer, Role.USER, tuple(Text(f"{name} {number}") for number in range(parts)), tokens)


HEAD = [block(1500, Layer.SYSTEM, name="system"), block(500, Layer.PROJECT, name="project")]


def conversation(*sizes: int, parts: int = 1) -> Prompt:
    """SYSTEM of 1,500 tokens, PROJECT of 500, then blocks of the given sizes."""
    return Prompt.empty().extend([*HEAD, *(block(size, parts=parts, name=f"{n}") for n, size in enumerate(sizes))])


@dataclass
class Cache:
    """What is known to be cached."""

    held: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def find(self, key: str, prefix: str) -> Entry | None:
        return self.held.get((key, prefix))

    def put(self, prompt: Prompt, tokens: int, *, used: float = NOW, ttl: float | None = 300, **scope: Any) -> None:
        head = prompt.length <= prompt.head(Layer.PROJECT).length
        key = replace(SCOPE, **scope).key(RULES, head=head)
        self.held[key, prompt.digest] = Entry(key, prompt.digest, tokens, used, ttl)

    def keep(self, entries: list[Entry]) -> None:
        self.held |= {(entry.key, entry.prefix): entry for entry in entries}


def tail(prompt: Prompt, *more: int) -> tuple[Marker, ...]:
    return tuple(Marker(length, "short") for length in (*more, prompt.length))


def foretell(prompt: Prompt, cache: Cache, markers: tuple[Marker, ...] | None = None, **options: Any) -> Forecast:
    given: dict[str, Any] = {"rules": RULES, "scope": SCOPE, "last": None, "now": NOW + 60, "scale": 1.0, **options}
    return forecast(prompt, tail(prompt) if markers is None else markers, sizes=Sizes("any"), entries=cache, **given)


def sent(prompt: Prompt, **scope: Any) -> Sent:
    return Sent(replace(SCOPE, **scope), prompt.length, prompt.digest)


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
    if cause is Cause.EXPIRED:
        assert made.since == NOW + 300


def test_what_could_have_been_read_is_the_last_request_and_not_the_head_that_is_left() -> None:
    cache, before = Cache(), conversation(100)
    cache.put(before.at(2), 2000, ttl=3600)
    cache.put(before, 2100)
    prompt = before.append(block(50, name="new"))
    made = foretell(prompt, cache, tail(prompt, 2, 3), last=sent(before), now=NOW + 301)
    assert (made.usage, made.cause, made.since) == (Usage(0, 2000, 150, 0), Cause.EXPIRED, NOW + 300)
    verdict = audit(made, made.usage, RULES)
    assert (verdict.cause, verdict.foreseen, verdict.missed) == (Cause.EXPIRED, True, 100)


# --- what the cache holds afterwards


def after(made: Forecast, usage: Usage, cache: Cache, prompt: Prompt, rules: CacheRules = RULES) -> Cache:
    sizes = Sizes("any")
    sizes.follow(prompt)
    cache.keep(settle(made, usage, sizes=sizes, scope=SCOPE, rules=rules, entries=cache))
    return cache


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
