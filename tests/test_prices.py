"""What a call costs. The numbers are those of the providers' price pages (provider rules 4.3, 2026-12-01)."""

import warnings
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import Usage
from backends.catalog import Catalog
from backends.prices import price

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
CATALOG = Catalog.load()


def usd(name: str, usage: Usage, at: datetime = AT) -> Decimal | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # genai-prices only warns about counters that it does not know
        return price(CATALOG.find(name), usage, at).usd


def bill(fresh: int = 0, read: int = 0, short: int = 0, long: int = 0, output: int = 0) -> Usage:
    return Usage(fresh=fresh, cache_read=read, cache_write=short + long, cache_write_long=long, output=output)


M = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        ("claude-haiku-5-5", bill(fresh=90_000, output=1000), "0.0095"),
        ("claude-haiku-5-5", bill(fresh=200_000, output=1000), "0.1025"),  # the cliff is for the whole request
        ("claude-haiku-5-5", bill(fresh=50_000, read=60_000), "0.028"),  # and counts cached tokens
        ("claude-sonnet-5-5", bill(fresh=M), "2"),
        ("claude-sonnet-5-5", bill(read=M), "0.10"),
        ("claude-sonnet-5-5", bill(short=M), "2.5"),
        ("claude-sonnet-5-5", bill(long=M), "4"),
        ("claude-sonnet-5-5", bill(output=M), "10"),
        ("claude-opus-5-5", bill(fresh=1000, read=100_000, short=2000, long=3000, output=500), "0.068"),
        ("claude-fable-5-2", bill(read=M), "0.20"),
        ("claude-haiku-4-5-20251001", bill(long=M), "2"),
    ],
)
def test_prices_of_the_price_page(model: str, usage: Usage, expected: str) -> None:
    assert usd(f"anthropic/{model}", usage) == Decimal(expected)


def test_cache_creation_is_counted_once() -> None:
    """Field report 90: 2,000 tokens in, of which 500 read and 300 written, leave 1,200 at the full price."""
    usage = bill(fresh=1200, read=500, short=300)
    assert usage.input_total == 2000
    assert usd("anthropic/claude-sonnet-5-5", usage) == Decimal("0.0032")


def test_the_price_of_the_day_is_used() -> None:
    """Opus 4.6 charged double over 200,000 input tokens until its long context became generally available."""
    usage = bill(fresh=300_000)
    assert usd("anthropic/claude-opus-4-6", usage, datetime(2026, 2, 20, tzinfo=UTC)) == Decimal(3)
    assert usd("anthropic/claude-opus-4-6", usage) == Decimal("1.5")


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(fresh=1, output=1),
        Usage(fresh=1, cache_read=0, cache_write=0),
        Usage(fresh=1, cache_read=0, cache_write=5, output=1),  # nobody said at which TTL
    ],
)
def test_an_unknown_counter_makes_an_unknown_price(usage: Usage) -> None:
    found = price(CATALOG.find("anthropic/claude-sonnet-5-5"), usage, AT)
    assert found.usd is None
    assert "counters" in found.source


def test_an_unknown_model_has_an_unknown_price() -> None:
    found = price(CATALOG.find("anthropic/claude-sonnet-9"), bill(fresh=5, output=5), AT)
    assert found.usd is None
    assert "claude-sonnet-9" in found.source


def test_a_local_model_costs_no_money_even_when_nothing_was_counted() -> None:
    assert usd("local/qwen2.5-coder-1.5b", Usage()) == 0


def with_prices(directory: Path, text: str) -> Catalog:
    path = directory / "models.toml"
    path.write_text(text)
    return Catalog.load(path)


def test_the_users_price_goes_over_the_published_one_and_is_dated_and_named(tmp_path: Path) -> None:
    """Field report 87: cached tokens under a custom price table."""
    catalog = with_prices(
        tmp_path,
        "[anthropic.claude-sonnet-5-5.price]\ninput = 1\noutput = 5\ncache_read = 0.5\ncache_write = 1.5\n"
        "cache_write_long = 3\n",
    )
    usage = bill(fresh=M, read=M, short=M, long=M, output=M)
    found = price(catalog.find("anthropic/claude-sonnet-5-5"), usage, AT)
    assert found.usd == Decimal("11")
    assert (found.date, found.source) == (AT.date(), str(tmp_path / "models.toml"))


def test_a_price_table_without_cache_prices_uses_the_models_multiples_or_is_unknown(tmp_path: Path) -> None:
    """Field report 94: an unknown cache price is no price, not zero."""
    row = ".price]\ninput = 1\noutput = 5\n"
    catalog = with_prices(tmp_path, f"[anthropic.claude-sonnet-5-5{row}[acme.rocket]\n{ACME}[acme.rocket{row}")
    known, unknown = catalog.find("anthropic/claude-sonnet-5-5"), catalog.find("acme/rocket")
    assert price(known, bill(read=M), AT).usd == Decimal("0.05")
    assert price(unknown, bill(fresh=M), AT).usd == Decimal(1)
    assert price(unknown, bill(long=M), AT).usd is None


ACME = """\
context = 1000
max_output = 100
min_cache_tokens = 0
max_markers = 0
read = 0.1
write = 1
token_scale = 1
thinking = "none"
"""


def test_a_price_cliff_of_the_users_file(tmp_path: Path) -> None:
    catalog = with_prices(
        tmp_path,
        "[anthropic.claude-x.price]\ninput = 1\noutput = 2\n"
        "[[anthropic.claude-x.price.above]]\ntokens = 1000\ninput = 10\noutput = 20\n",
    )
    model = catalog.find("anthropic/claude-x")
    assert price(model, bill(fresh=1000, output=M), AT).usd == Decimal("2.001")
    assert price(model, bill(fresh=1001, output=M), AT).usd == Decimal("20.01001")


@given(*[st.integers(0, 50_000)] * 5)
def test_prices_add_up(fresh: int, read: int, short: int, long: int, output: int) -> None:
    """Where there is no cliff, the bill is the sum of its counters' bills."""
    whole = usd("anthropic/claude-opus-5", bill(fresh, read, short, long, output))
    parts = [bill(fresh=fresh), bill(read=read), bill(short=short), bill(long=long), bill(output=output)]
    assert whole == sum(usd("anthropic/claude-opus-5", part) or Decimal(0) for part in parts)
