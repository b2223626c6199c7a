"""Prices per token, for decisions that weigh tokens against each other."""

from datetime import UTC, datetime
from decimal import Decimal

from agent.bill import Pricing
from backends.base import Usage
from context.cache_rules import CacheRules
from context.economics import Prices


def prices_at(pricing: Pricing, rules: CacheRules, tokens: int, now: float) -> Prices | None:
    """USD per token on requests of about `tokens` input tokens (prices may jump with the length), at `now` (seconds
    since the epoch). None: a price is not known, or nothing is charged.
    """
    at, tokens = datetime.fromtimestamp(now, UTC), max(tokens, 1)

    def each(usage: Usage) -> Decimal | None:
        usd = pricing(usage, at)[0]
        return None if usd is None else usd / tokens

    fresh = each(Usage(tokens, 0, 0, 0, 0, 0))
    read = each(Usage(0, tokens, 0, 0, 0, 0))
    write = write_long = fresh
    if rules.kind == "markers":
        write = each(Usage(0, 0, tokens, 0, 0, 0))
        write_long = each(Usage(0, 0, tokens, tokens, 0, 0)) if rules.ttl_long is not None else write
    with_output = each(Usage(tokens, 0, 0, 0, tokens, 0))
    if fresh is None or read is None or write is None or write_long is None or with_output is None or not fresh:
        return None
    return Prices(float(fresh), float(read), float(write), float(write_long), float(with_output - fresh))
