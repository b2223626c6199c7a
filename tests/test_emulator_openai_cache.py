"""OpenAI's caches as the emulator bills them, rule by rule: the other tests lean on them.

Rules: provider rules 2.1 as of 2026-12-01; openai SDK 3.57.0, `PromptCacheOptions` and `PromptCacheDiagnostics`.
"""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from emulator.models import ALL
from emulator.openai_cache import AutomaticCache, BreakpointCache
from emulator.openai_diagnostics import answered, diagnose
from emulator.openai_prefix import Element, chat_elements, responses_elements
from emulator.tokens import call_tokens, opaque_tokens, result_tokens, text_tokens, tool_tokens

MINUTE, HOUR = 60.0, 3600.0


def row(*sizes: int, marks: dict[int, str] | None = None, ends: tuple[int, ...] = (), salt: str = "") -> list[Element]:
    """A prefix of elements of these sizes; `marks` by number, `ends` are those that end a message of the user."""
    return [
        Element(f"{salt}{number}".encode(), size, (marks or {}).get(number), number in ends)
        for number, size in enumerate(sizes)
    ]


def send(cache: BreakpointCache, elements: list[Element], now: float = 0.0, **options: Any) -> tuple[int, ...]:
    """Bill a request and answer it: fresh, read, written for 30m, written for 12h."""
    found = cache.look_up(elements, key=options.pop("key", "k"), now=now, **options)
    found.begin()
    return (found.bill.fresh, found.bill.read, found.bill.write_short, found.bill.write_long)


def test_the_implicit_breakpoint_lies_on_the_latest_message_of_the_user() -> None:
    cache = BreakpointCache()
    assert send(cache, row(2000, 50, 100, ends=(0,))) == (150, 0, 2000, 0)
    assert send(cache, row(2000, 50, 100, 10, 5, ends=(0, 3))) == (5, 2000, 160, 0)


def test_what_is_not_marked_is_not_written_in_explicit_mode() -> None:
    cache = BreakpointCache()
    elements = row(2000, 500, ends=(0, 1))
    assert send(cache, elements, mode="explicit") == (2500, 0, 0, 0)
    assert send(cache, elements, mode="explicit") == (2500, 0, 0, 0)


def test_a_match_is_exact_at_a_breakpoint_and_never_falls_back_to_a_shorter_one() -> None:
    cache = BreakpointCache()
    send(cache, row(2000, 500, marks={1: "30m"}), mode="explicit")
    assert send(cache, row(2000, 500, 500, marks={0: "30m", 2: "30m"}), mode="explicit") == (0, 0, 3000, 0)


def test_a_prefix_below_the_minimum_is_neither_written_nor_read() -> None:
    cache = BreakpointCache()
    assert send(cache, row(1023, 5, ends=(0,))) == (1028, 0, 0, 0)
    assert send(cache, row(1023, 5, ends=(0,))) == (1028, 0, 0, 0)
    assert send(cache, row(1024, 5, ends=(0,))) == (5, 0, 1024, 0)
    assert send(cache, row(1024, 5, ends=(0,))) == (5, 1024, 0, 0)


@pytest.mark.parametrize(
    ("mode", "written"),
    [("implicit", (2, 3, 4, 5)), ("explicit", (1, 2, 3, 4))],
    ids=["implicit: one and the latest three", "explicit: the latest four"],
)
def test_four_writes_in_a_request(mode: str, written: tuple[int, ...]) -> None:
    cache = BreakpointCache()
    marks = dict.fromkeys(range(5), "30m")
    send(cache, row(*[2000] * 6, marks=marks, ends=(5,)), mode=mode)
    readable = []
    for at in range(6):
        found = cache.look_up(row(*[2000] * (at + 1), marks={at: "30m"}), key="k", now=0, mode="explicit")
        if found.bill.read:
            readable.append(at)
    assert tuple(readable) == written


def test_eighty_breakpoints_back_are_considered_and_no_more() -> None:
    for behind, read in ((79, 2000), (80, 0)):
        cache = BreakpointCache()
        send(cache, row(2000, ends=(0,)))
        sizes = [2000] + [1] * behind
        assert send(cache, row(*sizes, ends=tuple(range(behind + 1))))[1] == read


def test_parts_without_breakpoints_do_not_count_for_the_lookback() -> None:
    cache = BreakpointCache()
    send(cache, row(2000, ends=(0,)))
    assert send(cache, row(2000, *[1] * 500, ends=(0, 500))) == (0, 2000, 500, 0)


def test_twelve_hours_up_to_the_last_long_breakpoint_and_thirty_minutes_behind_it() -> None:
    cache = BreakpointCache()
    elements = row(2000, 300, 40, 5, marks={0: "12h", 1: "12h"}, ends=(2,))
    assert send(cache, elements) == (5, 0, 40, 2300)
    assert send(cache, elements, now=31 * MINUTE) == (5, 2300, 40, 0)
    assert send(cache, elements, now=31 * MINUTE + 12 * HOUR) == (5, 0, 40, 2300)


def test_the_time_to_live_counts_from_the_start_and_a_hit_renews_it() -> None:
    cache = BreakpointCache()
    elements = row(2000, ends=(0,))
    assert send(cache, elements) == (0, 0, 2000, 0)
    assert send(cache, elements, now=30 * MINUTE - 1) == (0, 2000, 0, 0)
    assert send(cache, elements, now=60 * MINUTE - 2) == (0, 2000, 0, 0)
    assert send(cache, elements, now=90 * MINUTE - 2) == (0, 0, 2000, 0)


def test_a_hit_renews_the_marked_entries_before_it_and_no_others() -> None:
    cache = BreakpointCache()
    send(cache, row(2000, 500, 40, marks={0: "30m", 1: "30m"}, ends=(2,)))
    send(cache, row(2000, 500, 40, 7, marks={0: "30m"}, ends=(2, 3)), now=20 * MINUTE)
    late = 40 * MINUTE
    assert send(cache, row(2000, 9, marks={0: "30m"}), now=late)[1] == 2000
    assert send(cache, row(2000, 500, 9, marks={1: "30m"}), now=late)[1] == 0


def test_a_breakpoint_before_the_hit_without_an_entry_is_not_written() -> None:
    cache = BreakpointCache()
    send(cache, row(2000, 500, marks={1: "30m"}), mode="explicit")
    both = row(2000, 500, marks={0: "12h", 1: "30m"})
    assert send(cache, both, mode="explicit") == (0, 2500, 0, 0), "a token is read or written, never both"
    assert send(cache, row(2000, 9, marks={0: "12h"}), mode="explicit") == (9, 0, 0, 2000)


def test_nothing_is_written_by_a_request_that_never_begins_to_be_answered() -> None:
    cache = BreakpointCache()
    elements = row(2000, ends=(0,))
    waiting = cache.look_up(elements, key="k", now=0)
    assert send(cache, elements) == (0, 0, 2000, 0), "not usable before the first response has begun"
    del waiting
    cache.look_up(elements, key="k", now=20 * MINUTE)
    assert send(cache, elements, now=35 * MINUTE)[1] == 0, "a request that failed renews nothing"


def test_another_key_shares_nothing() -> None:
    cache = BreakpointCache()
    elements = row(2000, ends=(0,))
    send(cache, elements, key="a")
    assert send(cache, elements, key="b")[1] == 0
    assert send(cache, elements, key="a")[1] == 2000


def test_evictions_and_a_shorter_time_to_live_than_asked() -> None:
    cache = BreakpointCache()
    elements = row(2000, 500, marks={0: "12h"}, ends=(1,))
    assert send(cache, elements, granted={"12h": "30m"}) == (0, 0, 2500, 0)
    assert send(cache, elements, now=31 * MINUTE) == (0, 0, 500, 2000)
    assert send(cache, elements, now=32 * MINUTE, evict="deepest") == (0, 2000, 500, 0)
    assert send(cache, elements, now=33 * MINUTE, evict="all") == (0, 0, 500, 2000)


def test_marks_of_cache_control_look_back_over_twenty_positions() -> None:
    for behind, read in ((19, 2000), (20, 0)):
        cache = BreakpointCache()
        send(cache, row(2000, marks={0: "5m"}), mode="cache_control")
        elements = row(2000, *[1] * behind, marks={behind: "5m"})
        assert send(cache, elements, now=4 * MINUTE, mode="cache_control")[1] == read


def test_automatic_hits_come_in_steps_from_the_minimum_on() -> None:
    cache = AutomaticCache()
    for size, read in ((1023, 0), (1024, 1024), (1151, 1024), (1152, 1152)):
        salt = str(size)
        cache.look_up(row(size, salt=salt), key="k", now=0).begin()
        found = cache.look_up([*row(size, salt=salt), Element(b"new", 100)], key="k", now=599)
        assert (found.bill.read, found.bill.fresh, found.bill.write_short) == (read, size + 100 - read, 0)
        assert cache.look_up(row(size, salt=salt), key="k", now=600).bill.read == 0
        assert cache.look_up(row(size, salt=salt), key="other", now=0).bill.read == 0


def test_an_automatic_cache_finds_what_two_prompts_have_in_common() -> None:
    cache = AutomaticCache(step=64, minimum=64)
    cache.look_up(row(1000, 500), key="k", now=0).begin()
    changed = [*row(1000), Element(b"changed", 500)]
    assert cache.look_up(changed, key="k", now=1).bill.read == 960
    assert cache.look_up(row(1000, 500), key="k", now=1, evict="deepest").bill.read == 960


def test_a_price_cliff_raises_the_whole_request() -> None:
    model = ALL.find("gpt-6.2-sol")
    assert model is not None
    cache = BreakpointCache()
    for size, usd in ((272_000, Decimal("0.68")), (272_001, Decimal("1.360005"))):
        found = cache.look_up(row(size, ends=(0,), salt=str(size)), key="k", now=0)
        bill = replace(found.bill, model=model)
        assert bill.usd == usd
    assert bill.with_output(1_000_000).usd == Decimal("1.360005") + 15


# --- the size of a request ---


def total(elements: list[Element]) -> int:
    return sum(element.tokens for element in elements)


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ä" * 40}


def test_one_conversation_has_the_published_size_on_both_apis() -> None:
    """Frames of 4 for each message, each reply and each run of results; opaque parts by their bytes."""
    both = (
        tool_tokens("read", "Reads.", SCHEMA)
        + (4 + text_tokens("You help."))
        + (4 + text_tokens("Go on."))
        + (4 + text_tokens("I look."))
        + 2 * call_tokens("read", '{"path":"a"}')
        + 4
        + 2 * result_tokens("Nothing.")
    )
    calls = [{"call_id": f"c{n}", "name": "read", "arguments": '{"path":"a"}'} for n in range(2)]
    responses = {
        "model": "gpt-6.2-sol",
        "tools": [{"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA}],
        "input": [
            {"role": "developer", "content": [{"type": "input_text", "text": "You help."}]},
            {"role": "user", "content": "Go on."},
            REASONING,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            *({"type": "function_call", **call} for call in calls),
            *({"type": "function_call_output", "call_id": call["call_id"], "output": "Nothing."} for call in calls),
        ],
    }
    chat = {
        "tools": [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Go on."},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": call["call_id"],
                        "type": "function",
                        "function": {"name": call["name"], "arguments": call["arguments"]},
                    }
                    for call in calls
                ],
            },
            *({"role": "tool", "tool_call_id": call["call_id"], "content": "Nothing."} for call in calls),
        ],
    }
    assert total(chat_elements(chat)) == both
    assert total(responses_elements(responses, instructions_first=False)) == both + opaque_tokens(REASONING)


def test_markers_and_shorthand_do_not_change_the_compared_bytes() -> None:
    plain = {"input": [{"role": "user", "content": "x"}]}
    part = {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    marked = {"input": [{"type": "message", "role": "user", "content": [part]}]}
    (one,), (two,) = (responses_elements(body, instructions_first=False) for body in (plain, marked))
    assert one.data == two.data
    assert (one.mark, two.mark) == (None, "12h")


def test_a_breakpoint_inherits_the_ttl_of_the_request_and_assistant_output_carries_none() -> None:
    marker = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    body = {
        "prompt_cache_options": {"ttl": "12h"},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x", **marker}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "x", **marker}]},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x", **marker}]},
        ],
    }
    elements = responses_elements(body, instructions_first=False)
    assert [element.mark for element in elements] == ["12h", None, "12h"]
    assert [element.boundary for element in elements] == [True, False, False]


def test_an_implicit_breakpoint_lies_at_the_end_of_a_message_not_inside_it() -> None:
    parts = [{"type": "input_text", "text": text} for text in ("One.", "Two.")]
    responses = {"input": [{"role": "developer", "content": parts}, {"role": "user", "content": parts}]}
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": text} for text in ("One.", "Two.")]}]}
    elements = responses_elements(responses, instructions_first=False)
    assert [element.boundary for element in elements] == [False, True, False, True]
    assert [element.boundary for element in chat_elements(chat)] == [False, True]


def test_instructions_stand_behind_the_input_from_gpt_6_2_on_and_are_never_cached_there() -> None:
    body = {"instructions": "Be brief.", "input": "x"}
    first = responses_elements(body, instructions_first=True)
    last = responses_elements(body, instructions_first=False)
    assert [element.cached for element in first] == [True, True]
    assert [element.cached for element in last] == [True, False]
    assert total(first) == total(last)


# --- diagnostics ---

BASE: dict[str, Any] = {
    "model": "gpt-6.2-sol",
    "prompt_cache_key": "k",
    "reasoning": {"effort": "high"},
    "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}],
    "input": [{"role": "developer", "content": "word " * 1200}, {"role": "user", "content": "Go on."}],
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "gpt-6.1-sol"}, "model_changed"),
        ({"prompt_cache_key": "other"}, "prompt_cache_key_changed"),
        ({"tools": []}, "tools_changed"),
        ({"text": {"format": {"type": "json_object"}}}, "text_format_changed"),
        ({"reasoning": {"effort": "low"}}, "reasoning_effort_changed"),
        ({"text": {"verbosity": "low"}}, "verbosity_changed"),
        ({"input": [{"role": "developer", "content": "other"}]}, "input_changed"),
        ({"input": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}]}, "context_compacted"),
        ({"service_tier": "fast"}, "service_tier_changed"),
    ],
)
def test_each_reason_for_a_miss_is_named(change: dict[str, Any], reason: str) -> None:
    earlier, now = (
        answered(body, responses_elements(body, instructions_first=False), 1200) for body in (BASE, {**BASE, **change})
    )
    told = diagnose(now, earlier, 0)
    assert (told["type"], told["reason"], told["comparison_reusable_tokens"]) == ("cache_miss", reason, 1200)
    assert 0 < told["cache_missed_tokens"] <= total(list(now.elements))


def test_hit_not_found_and_cannot_tell() -> None:
    mine = answered(BASE, responses_elements(BASE, instructions_first=False), 1200)
    assert diagnose(mine, mine, 1200) == {"type": "cache_hit"}
    assert diagnose(mine, None, 0) == {"type": "comparison_response_not_found"}
    assert diagnose(mine, mine, 0) == {"type": "unavailable"}, "expired or evicted: nothing diverged"
