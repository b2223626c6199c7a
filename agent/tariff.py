"""Prices per token, for decisions that weigh tokens against each other."""

from datetime import UTC, datetime
from decimal import Decimal

from agent.bill import Pricing
from backends.base import Usage
from context.cache_rules import CacheRules
from context.epoch import Tariff


def tariff_at(pricing: Pricing, rules: CacheRules, tokens: int, now: float) -> Tariff | None:
    """USD per token on requests of about `tokens` input tokens (prices may jump with the length), at `now` (seconds
    since the epoch). None: the price is not known, or nothing is charged.
    """
    at = datetime.fromtimestamp(now, UTC)
    tokens = max(tokens, 1)

    def each(usage: Usage, count: int) -> Decimal | None:
        usd = pricing(usage, at)[0]
        return None if usd is None else usd / count

    fresh = each(Usage(tokens, 0, 0, 0, 0, 0), tokens)
    read = each(Usage(0, tokens, 0, 0, 0, 0), tokens)
    write = each(Usage(0, 0, tokens, 0, 0, 0), tokens) if rules.kind == "markers" else fresh
    with_output = each(Usage(tokens, 0, 0, 0, 1, 0), 1)
    if fresh is None or read is None or write is None or with_output is None or not fresh:
        return None
    output = with_output - fresh * tokens
    return Tariff(read=float(read), write=float(write), output=float(output), fresh=float(fresh))
