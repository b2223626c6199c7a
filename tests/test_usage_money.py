"""From a provider's usage to our counters to money, exactly, for the shapes of all APIs.

The numbers are field reports' (group F): what other agents counted twice, left out, or priced at nothing.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from compatible_support import endpoint
from hypothesis import given
from hypothesis import strategies as st

from backends import anthropic_reply, openai_reply
from backends.base import Usage
from backends.catalog import Catalog
from backends.compatible_endpoints import ANY_READ_FIELD, load_endpoints
from backends.compatible_reply import ReplyReader
from backends.compatible_usage import read_usage
from backends.prices import price

AT = datetime(2026, 12, 1, 12, tzinfo=UTC)  # off-peak for DeepSeek


def chat(name: str, told: dict[str, Any], **options: Any) -> Usage:
    """The counters of a chat server's usage, told in the last chunk."""
    place = endpoint(name.partition("/")[0], name.partition("/")[2])
    reader = ReplyReader(place, "d", seed="s", **options)
    list(reader.feed({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}))
    list(reader.feed({"choices": [], **(told if "usage" in told or "timings" in told else {"usage": told})}))
    list(reader.finish())
    return reader.usage


def messages(told: dict[str, Any], *, long_asked: bool = False) -> Usage:
    """The counters of Anthropic's usage."""
    reader = anthropic_reply.ReplyReader("d", long_asked=long_asked)
    list(reader.feed({"type": "message_start", "message": {"id": "m", "usage": {**told, "output_tokens": 1}}}))
    list(reader.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": told}))
    return reader.usage


def responses(told: dict[str, Any], *, long_asked: bool = False) -> Usage:
    """The counters of the Responses API's usage."""
    reader = openai_reply.ReplyReader("d", cache="markers", long_asked=long_asked)
    list(reader.feed({"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": told}}))
    return reader.usage


def usd(name: str, usage: Usage, catalog: Catalog | None = None) -> Decimal | None:
    return price((catalog or Catalog.load()).find(name), usage, AT).usd


def details(prompt: int, output: int, **cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": cached,
    }


def test_84_cached_tokens_are_billed_once() -> None:
    """Aider-AI/aider#5516: of 17,111 tokens 17,102 were cached, so 9 are fresh; in each API's own counting."""
    expected = Usage(fresh=9, cache_read=17_102, cache_write=0, cache_write_long=0, output=100)
    cached = {"cached_tokens": 17_102, "cache_write_tokens": 0}
    shapes = {
        "openrouter/anthropic/claude-sonnet-5": chat(
            "openrouter/anthropic/claude-sonnet-5", details(17_111, 100, **cached), marked=True
        ),
        "anthropic/claude-sonnet-5": messages(
            {
                "input_tokens": 9,
                "cache_read_input_tokens": 17_102,
                "cache_creation_input_tokens": 0,
                "output_tokens": 100,
            }
        ),
        "openai/gpt-6.1-terra": responses(
            {"input_tokens": 17_111, "input_tokens_details": cached, "output_tokens": 100, "total_tokens": 17_211}
        ),
    }
    assert {name: usage for name, usage in shapes.items() if usage != expected} == {}
    # 9 × 2 + 17,102 × 0.2 + 100 × 10 USD per million, where an agent that bills twice would say more than 0.038
    assert usd("openrouter/anthropic/claude-sonnet-5", expected) == Decimal("0.0044384")
    assert usd("anthropic/claude-sonnet-5", expected) == Decimal("0.0044384")
    assert usd("openai/gpt-6.1-terra", expected) == Decimal("0.0013641")


def test_85_what_is_written_is_sent_once() -> None:
    """Aider-AI/aider#2304, #2274: 108,000 written tokens are 108,000 sent ones."""
    usage = messages(
        {"input_tokens": 4, "cache_creation_input_tokens": 108_000, "cache_read_input_tokens": 0, "output_tokens": 100}
    )
    assert usage.input_total == 108_004
    assert usd("anthropic/claude-sonnet-5", usage) == Decimal("0.271008")
    same = chat(
        "openrouter/anthropic/claude-sonnet-5",
        details(108_004, 100, cached_tokens=0, cache_write_tokens=108_000),
        marked=True,
    )
    assert (same, usd("openrouter/anthropic/claude-sonnet-5", same)) == (usage, Decimal("0.271008"))


def test_87_prices_of_ones_own_count_cached_tokens_once_and_at_their_own_price(tmp_path: Path) -> None:
    """BerriAI/litellm#5443, #11364, #40016."""
    (tmp_path / "models.toml").write_text(
        "[gateway.big.price]\ninput = 1\noutput = 2\ncache_read = 0.1\ncache_write = 1.25\n"
    )
    endpoints = load_endpoints({"gateway": {"base_url": "https://gateway.example.org/v1"}}, "config.toml")
    catalog = Catalog.load(tmp_path / "models.toml", endpoints)
    told = details(10_000, 500, cached_tokens=7_000)
    usage = read_usage({"usage": {**told, "cache_creation_input_tokens": 1_000}}, endpoints["gateway"])
    assert usage == Usage(2_000, 7_000, 1_000, 0, 500)
    assert usd("gateway/big", usage, catalog) == Decimal("0.00495")  # 2,000 + 700 + 1,250 + 1,000 of a million


def test_89_gemini_is_billed_once() -> None:
    """earendil-works/pi#2148: 20,212 in, of which 16,298 cached, are $0.0056 and not $0.0137."""
    usage = chat("gemini/gemini-3-flash-preview", details(20_212, 930, cached_tokens=16_298))
    assert (usage.fresh, usage.cache_read) == (3_914, 16_298)
    cost = usd("gemini/gemini-3-flash-preview", usage)
    assert cost == Decimal("0.0055619")  # with all input as fresh and the cached tokens again: 0.0137109


def test_90_written_tokens_are_not_fresh_ones() -> None:
    """browser-use/browser-use#5305: of 2,000 with 500 read and 300 written, 1,200 are fresh."""
    told = details(2_000, 10, cached_tokens=500, cache_write_tokens=300)
    usage = chat("openrouter/anthropic/claude-sonnet-5", told, marked=True)
    assert usage == Usage(1_200, 500, 300, 0, 10)
    same = responses(
        {
            "input_tokens": 2_000,
            "input_tokens_details": {"cached_tokens": 500, "cache_write_tokens": 300},
            "output_tokens": 10,
        }
    )
    assert same == usage
    # 1,200 × 2 + 500 × 0.2 + 300 × 2.5 + 10 × 10 USD per million
    assert usd("openrouter/anthropic/claude-sonnet-5", usage) == Decimal("0.00335")


@pytest.mark.parametrize("missing", [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}])
def test_92_what_is_not_reported_is_unknown_and_so_is_the_price(missing: dict[str, Any]) -> None:
    """cline/cline#580, #935."""
    usage = chat(
        "openrouter/deepseek/deepseek-v4-pro",
        {"prompt_tokens": 5_000, "completion_tokens": 7, "total_tokens": 5_007, **missing},
    )
    assert usage == Usage(output=7)
    bill = price(Catalog.load().find("openrouter/deepseek/deepseek-v4-pro"), usage, AT)
    assert (bill.usd, bill.source) == (None, "unknown: the provider did not report all counters")


def test_94_an_unknown_cache_price_is_not_zero() -> None:
    """assafelovic/gpt-researcher#1986."""
    usage = chat("groq/qwen/qwen3-32b", details(5_000, 7, cached_tokens=4_000))
    bill = price(Catalog.load().find("groq/qwen/qwen3-32b"), usage, AT)
    assert bill.usd is None
    assert "no cache price" in bill.source


def test_a_server_of_ones_own_costs_nothing_even_when_it_does_not_report_its_cache() -> None:
    assert usd("lmstudio/qwen", chat("lmstudio/qwen", {"prompt_tokens": 5_000, "completion_tokens": 7})) == 0


def test_an_endpoint_of_ones_own_is_not_taken_for_free_because_it_is_near() -> None:
    """A proxy on this machine may well pass requests on to a provider that bills them."""
    endpoints = load_endpoints({"proxy": {"base_url": "http://127.0.0.1:4000/v1"}}, "config.toml")
    catalog = Catalog.load(endpoints=endpoints)
    assert usd("proxy/claude", Usage(1, 2, 3, 0, 4), catalog) is None


@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        (
            "deepseek/deepseek-flash",
            {
                "prompt_tokens": 10_000,
                "completion_tokens": 50,
                "prompt_cache_hit_tokens": 9_984,
                "prompt_cache_miss_tokens": 16,
            },
            Usage(16, 9_984, 0, 0, 50),
        ),
        (
            "deepseek/deepseek-flash",
            {"prompt_cache_hit_tokens": 9_984, "prompt_cache_miss_tokens": 16, "completion_tokens": 50},
            Usage(16, 9_984, 0, 0, 50),
        ),
        (
            "moonshot/kimi",
            {"prompt_tokens": 600, "completion_tokens": 5, "cached_tokens": 512},
            Usage(88, 512, 0, 0, 5),
        ),
        (
            "moonshot/kimi",
            details(600, 5, cached_tokens=256, cache_write_tokens=300),
            Usage(44, 256, 300, 0, 5),
        ),
        (
            "qwen/qwen4-max",
            details(3_000, 5, cached_tokens=1_024, cache_creation_input_tokens=1_900),
            Usage(76, 1_024, 1_900, 0, 5),
        ),
        (
            "llama-server/m",
            {
                "usage": {"prompt_tokens": 237, "completion_tokens": 35, "total_tokens": 272},
                "timings": {"cache_n": 236, "prompt_n": 1, "predicted_n": 35},
            },
            Usage(1, 236, 0, 0, 35),
        ),
        ("llama-server/m", {"timings": {"cache_n": 236, "prompt_n": 1, "predicted_n": 35}}, Usage(1, 236, 0, 0, 35)),
        # Reasoning that the server counts besides the output, or as part of it: the total tells.
        (
            "xai/grok-4.7",
            {
                **details(100, 20, cached_tokens=0),
                "total_tokens": 150,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            Usage(100, 0, 0, 0, 50, 30),
        ),
        (
            "xai/grok-4.7",
            {**details(100, 50, cached_tokens=0), "completion_tokens_details": {"reasoning_tokens": 30}},
            Usage(100, 0, 0, 0, 50, 30),
        ),
        (
            "gemini/gemini-3.8-flash",
            {**details(100, 20, cached_tokens=0), "total_tokens": 170},
            Usage(100, 0, 0, 0, 70, 50),
        ),
        ("groq/m", {**details(100, 20, cached_tokens=0), "total_tokens": 170}, Usage(100, 0, 0, 0, 20)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_servers_own_form(name: str, told: dict[str, Any], expected: Usage) -> None:
    assert chat(name, told) == expected


@pytest.mark.parametrize("place", ["in the choice", "in every chunk", "Groq's own"])
def test_the_usage_is_found_wherever_it_is(place: str) -> None:
    told = details(100, 20, cached_tokens=64)
    first: dict[str, Any] = {"choices": [{"delta": {"content": "a"}}]}
    last: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    match place:
        case "in the choice":
            last["choices"][0]["usage"] = told
        case "in every chunk":
            first["usage"], last["usage"] = details(100, 1, cached_tokens=64), told
        case _:
            last["x_groq"] = {"usage": told}
    reader = ReplyReader(endpoint("groq"), "d", seed="s")
    for each in (first, last):
        list(reader.feed(each))
    assert reader.usage == Usage(36, 64, 0, 0, 20)


def test_writes_at_the_long_time_to_live_are_told_apart_or_unknown() -> None:
    told = details(3_000, 5, cached_tokens=0, cache_write_tokens=2_000)
    options = {"marked": True, "long_asked": True}
    name = "openrouter/anthropic/claude-sonnet-5"
    assert chat(name, told, **options).cache_write_long is None
    assert usd(name, chat(name, told, **options)) is None
    told["cache_creation"] = {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 1_500}
    assert chat(name, told, **options).cache_write_long == 1_500


def test_writes_that_are_not_told_are_unknown_where_markers_asked_for_them() -> None:
    told = details(3_000, 5, cached_tokens=1_000)
    assert chat("openrouter/anthropic/claude-sonnet-5", told, marked=True) == Usage(None, 1_000, None, None, 5)


COUNTS = st.none() | st.integers(-1, 200_000) | st.booleans() | st.sampled_from(["7", 1.5])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": COUNTS,
            "completion_tokens": COUNTS,
            "total_tokens": COUNTS,
            "cached_tokens": COUNTS,
            "prompt_cache_hit_tokens": COUNTS,
            "prompt_tokens_details": st.none()
            | st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens"]), COUNTS),
            "completion_tokens_details": st.none() | st.dictionaries(st.just("reasoning_tokens"), COUNTS),
        },
    ),
    st.booleans(),
)
def test_whatever_is_told_the_counters_never_overlap_and_are_never_made_up(told: dict[str, Any], marked: bool) -> None:
    place = endpoint("openrouter", "x", read_fields=list(ANY_READ_FIELD))
    usage = read_usage({"usage": told}, place, marked=marked)
    counters = [usage.fresh, usage.cache_read, usage.cache_write, usage.cache_write_long, usage.output, usage.reasoning]
    assert all(count is None or (type(count) is int and count >= 0) for count in counters)
    if usage.input_total is not None:
        assert usage.input_total == told["prompt_tokens"]
    if usage.cache_read is not None:
        assert f": {usage.cache_read}" in json.dumps(told)
    bill = price(Catalog.load().find("deepseek/deepseek-flash"), usage, AT)
    if None in counters[:3] or usage.output is None:
        assert bill.usd is None
