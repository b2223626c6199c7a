"""Calls that were not served in the standard way, and hours that are no peak, at the prices that hold for them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from compatible_support import endpoint
from conftest import RunAgent
from desk import Desk
from emulator import Call, Emulator, ManualClock, Reply

from backends import anthropic_reply, openai_reply
from backends.base import Usage
from backends.catalog import Catalog, CatalogError
from backends.compatible_reply import ReplyReader
from backends.prices import price

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
M = 1_000_000
CATALOG = Catalog.load()


def usd(model: str, usage: Usage, at: datetime = NOON, catalog: Catalog = CATALOG) -> Decimal | None:
    return price(catalog.find(model), usage, at).usd


def served(tier: str | None, fresh: int = 0, read: int = 0, short: int = 0, output: int = 0) -> Usage:
    return Usage(fresh, read, short, 0, output, 0, tier)


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        ("anthropic/claude-sonnet-5-5", served("batch", fresh=M), "1"),
        ("anthropic/claude-haiku-5-5", served("batch", fresh=200_000), "0.05"),  # the cliff's price, halved
        ("anthropic/claude-opus-4-8", served("fast", output=M), "50"),
        ("openai/gpt-6.2-sol", served("flex", fresh=M, output=0), "2"),  # above the cliff; no row in genai-prices 0.2.3
        ("openai/gpt-6.2-sol", served("priority", read=100_000), "0.02"),
        ("openai/gpt-5.6-sol", served("priority", fresh=100_000), "0.8"),
    ],
)
def test_a_tier_has_its_own_prices(model: str, usage: Usage, expected: str) -> None:
    assert usd(model, usage) == Decimal(expected)
    assert usd(model, replace(usage, tier=None)) != Decimal(expected)


def test_a_tier_that_nobody_prices_is_unknown_and_named_until_its_person_states_it(tmp_path: Path) -> None:
    usage = served("priority", fresh=M)
    found = price(CATALOG.find("anthropic/claude-sonnet-5-5"), usage, NOON)
    assert found.usd is None
    assert "anthropic/claude-sonnet-5-5 costs as priority" in found.source
    mine = tmp_path / "models.toml"
    mine.write_text("[anthropic.claude-sonnet-5-5.tiers]\npriority = 1\n")
    assert usd("anthropic/claude-sonnet-5-5", usage, catalog=Catalog.load(mine)) == Decimal(2)
    mine.write_text("[anthropic.claude-sonnet-5-5]\ntiers = { priority = 'dear' }\n")
    with pytest.raises(CatalogError, match="priority must be a number"):
        Catalog.load(mine)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (datetime(2026, 12, 4, 2, tzinfo=UTC), "1.32"),  # Friday, in the peak
        (datetime(2026, 12, 4, 12, tzinfo=UTC), "0.66"),
        (datetime(2026, 12, 5, 2, tzinfo=UTC), "0.66"),  # Saturday
        (datetime(2026, 12, 6, 23, tzinfo=UTC), "0.66"),
        (datetime(2026, 12, 7, 2, tzinfo=UTC), "1.32"),
        (datetime.fromisoformat("2026-12-07T05:00+08:00"), "0.66"),  # Monday in Beijing, Sunday where the price is made
    ],
)
def test_deepseek_has_no_peak_at_weekends(at: datetime, expected: str) -> None:
    assert usd("deepseek/deepseek-v4-pro", served(None, fresh=M), at) == Decimal(expected)


def told_by_messages(usage: dict[str, Any]) -> str | None:
    reader = anthropic_reply.ReplyReader("d", long_asked=False)
    list(reader.feed({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1, **usage}}}))
    return reader.usage.tier


def told_by_responses(tier: Any) -> str | None:
    reader = openai_reply.ReplyReader("d", cache="markers", long_asked=False)
    told = {"id": "r", "status": "completed", "usage": {"input_tokens": 1}, "service_tier": tier}
    list(reader.feed({"type": "response.completed", "response": told}))
    return reader.usage.tier


def told_by_chat(tier: Any) -> str | None:
    reader = ReplyReader(endpoint("groq", "m"), "d", seed="s")
    list(reader.feed({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "service_tier": tier}))
    list(reader.feed({"choices": [], "usage": {"prompt_tokens": 1}}))
    return reader.usage.tier


@pytest.mark.parametrize("word", ["default", "standard", "auto", "on_demand", None, "", 7, []])
def test_the_standard_way_is_no_tier(word: Any) -> None:
    assert told_by_messages({"service_tier": word, "speed": word}) is None
    assert told_by_responses(word) is None
    assert told_by_chat(word) is None


def test_every_api_tells_its_tier() -> None:
    assert told_by_messages({"service_tier": "batch", "speed": "standard"}) == "batch"
    assert told_by_messages({"service_tier": "standard", "speed": "fast"}) == "fast"
    assert told_by_responses("flex") == "flex"
    assert told_by_chat("flex") == "flex"


@pytest.fixture
def server() -> Iterator[Emulator]:
    read = Reply.of(Call("read", {"path": "price.py"}), final_usage={"speed": "fast"})
    with Emulator(
        [read, Reply.of("Seen.", final_usage={"speed": "fast"}), Reply.of("Yes.")], clock=ManualClock()
    ) as one:
        yield one


def test_a_session_in_fast_mode_adds_up_everywhere(
    repository: Path, environment: dict[str, str], server: Emulator, run_agent: RunAgent
) -> None:
    """Calls of two tiers in one session: each at its own price, in the report and in what-if."""
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, environment, server, server.clock)
    model = "anthropic/claude-opus-4-8"
    desk.run("look", again=False, model=model)
    desk.run("again", model=model)
    calls = desk.calls()
    assert [call.usage.tier for call in calls] == ["fast", "fast", None]
    for call in calls:
        at = datetime.fromtimestamp(call.started, UTC)
        assert call.cost_usd == usd(model, call.usage, at)
        assert (", fast, " in (call.price or "")) == (call.usage.tier == "fast")
    paid = sum((call.cost_usd or Decimal(0) for call in calls), Decimal(0))
    told = json.loads(run_agent("cost", "--json").stdout)
    assert sum((Decimal(layer["cost_usd"]) for layer in told["layers"].values()), Decimal(0)) == paid
    what_if = json.loads(run_agent("cost", "--what-if", "--json").stdout)
    same = [Decimal(row["usd"]) for row in what_if["rows"] if row["as_it_was"]]
    assert set(same) == {paid}
    uncached = next(row for row in what_if["rows"] if row["name"] == "no-cache")
    inputs = [
        replace(c.usage, fresh=c.usage.input_total, cache_read=0, cache_write=0, cache_write_long=0) for c in calls
    ]
    assert Decimal(uncached["usd"]) == sum((usd(model, one) or Decimal(0) for one in inputs), Decimal(0))
