"""What a call costs, in USD and in Decimal throughout. What is unknown stays None (rule R4).

Order of authority: the user's models.toml, ours, then genai-prices (imported when a cloud call is first priced).
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from backends.base import Usage
from backends.catalog import ModelInfo, PriceTable

_MILLION: Final = Decimal(1_000_000)
_SATURDAY: Final = 5
_TIER_KEYS: Final = ("service_tier", "speed", "processing")


@dataclass(frozen=True, slots=True)
class Price:
    """`usd` is None when the price or a counter is unknown.

    `date` is the day whose prices were applied (UTC); `source` names the table, or says why there is no price.
    """

    usd: Decimal | None
    date: date
    source: str


def price(model: ModelInfo, usage: Usage, at: datetime) -> Price:
    """The price of one call on `model` that began `at` (with a time zone)."""
    day = at.date()
    if model.provider == "local":
        return Price(Decimal(0), day, "local model")
    if model.prices == "free":
        return Price(Decimal(0), day, "a server of one's own")
    counts = _Counts.of(usage)
    if counts is None:
        return Price(None, day, "unknown: the provider did not report all counters")
    if model.price is not None:
        return _on_tier(Price(_from_table(model, model.price, counts), day, model.source), model, usage.tier)
    if model.prices == "unknown":
        return Price(None, day, f"unknown: no file states what {model.name} costs")
    return _from_genai_prices(model, counts, at, usage.tier)


def _on_tier(standard: Price, model: ModelInfo, tier: str | None) -> Price:
    """The price of a call that was served in another way than the standard one."""
    if tier is None or standard.usd is None:
        return standard
    multiple = model.tiers.get(tier)
    if multiple is None:
        return replace(standard, usd=None, source=f"unknown: no file states what {model.name} costs as {tier}")
    return replace(standard, usd=standard.usd * multiple, source=f"{standard.source}, {tier}")


def _when_priced(model: ModelInfo, at: datetime) -> datetime:
    """`at`, or an hour of the same day that has its prices: genai-prices 0.2.3 knows hours and no days of the week."""
    utc = at.astimezone(UTC)
    is_weekend = utc.weekday() >= _SATURDAY
    return utc.replace(hour=model.weekend_hour) if is_weekend and model.weekend_hour is not None else at


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counters of a call, all of them known."""

    fresh: int
    read: int
    write_short: int
    write_long: int
    output: int

    @classmethod
    def of(cls, usage: Usage) -> "_Counts | None":
        fresh, read, write, output = usage.fresh, usage.cache_read, usage.cache_write, usage.output
        long = 0 if write == 0 else usage.cache_write_long
        if fresh is None or read is None or write is None or output is None or long is None:
            return None
        return cls(fresh, read, write - long, long, output)

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.write_short + self.write_long


def _from_table(model: ModelInfo, table: PriceTable, counts: _Counts) -> Decimal | None:
    row = table.for_input(counts.input)

    def cached(stated: Decimal | None, multiple: Decimal | None) -> Decimal | None:
        """The stated price, else the model's multiple of the input price; None without either."""
        return row.input * multiple if stated is None and multiple is not None else stated

    bill = (
        (counts.fresh, row.input),
        (counts.read, cached(row.cache_read, model.read)),
        (counts.write_short, cached(row.cache_write, model.write)),
        (counts.write_long, cached(row.cache_write_long, model.write_long)),
        (counts.output, row.output),
    )
    total = Decimal(0)
    for tokens, per_million in bill:
        if tokens and per_million is None:
            return None
        total += tokens * (per_million or Decimal(0)) / _MILLION
    return total


def _from_genai_prices(model: ModelInfo, counts: _Counts, at: datetime, tier: str | None) -> Price:
    import genai_prices  # about 0.12 s, so only when a cloud call is priced

    source = f"genai-prices {genai_prices.__version__}"
    usage = genai_prices.Usage(
        input_tokens=counts.input,
        cache_read_tokens=counts.read,
        cache_write_tokens=counts.write_short + counts.write_long,
        cache_write_1h_tokens=counts.write_long,
        output_tokens=counts.output,
    )
    try:
        bill = genai_prices.calc_price(
            usage,
            model.id,
            provider_id=model.prices or model.provider,
            genai_request_timestamp=_when_priced(model, at),
            price_context=_context(tier),
        )
    except LookupError:
        return Price(None, at.date(), f"unknown: {source} does not list {model.id}")
    stated = bill.model_price
    lacking = (
        (counts.read and stated.cache_read_mtok is None)
        or (counts.write_short and stated.cache_write_mtok is None)
        or (counts.write_long and stated.cache_write_1h_mtok is None)
    )
    if lacking:  # it would count these tokens at the input price, which no provider charges
        return Price(None, at.date(), f"unknown: {source} has no cache price for {model.id}")
    found = Price(bill.total_price, at.date(), source)
    if tier is not None and _has_variant(bill.model, tier):
        return replace(found, source=f"{source}, {tier}")
    return _on_tier(found, model, tier)


def _context(tier: str | None) -> dict[str, str]:
    """What genai-prices calls a tier (0.2.3: `service_tier`, and `speed` and `processing` of Anthropic)."""
    return {} if tier is None else dict.fromkeys(_TIER_KEYS, tier)


def _has_variant(model: Any, tier: str) -> bool:
    variants = model.price_variants or ()
    return any(set(variant.when) <= set(_TIER_KEYS) and set(variant.when.values()) == {tier} for variant in variants)
