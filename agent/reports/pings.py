"""What the pings of a session have cost, and what they have saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

from agent.bill import Pricing
from agent.ledger_rows import CallRow
from agent.ping_record import Ping
from backends.base import Usage
from context.economics import MARGIN_S


@dataclass(frozen=True, slots=True)
class PingTotals:
    """`saved_usd`: what the calls that found the prefix warm would have paid more; None: a price is not known."""

    count: int
    usd: Decimal
    saved_usd: Decimal | None


def ping_totals(pings: Sequence[Ping], calls: Sequence[CallRow], pricing: Pricing) -> PingTotals:
    """Of the pings and calls of one session, each in order.

    A call was saved that read what pings had read since the call before it, whose own lease had ended by then.
    """
    saved: Decimal | None = Decimal(0)
    for before, call in pairwise([call for call in calls if call.usage.input_total]):
        between = [ping for ping in pings if before.started < ping.at < call.started and ping.usage.cache_read]
        tokens = between[0].usage.cache_read or 0 if between else 0
        if not between or (call.usage.cache_read or 0) < tokens or call.started <= between[0].at + MARGIN_S:
            continue
        at = datetime.fromtimestamp(call.started, UTC)
        written, read = pricing(Usage(0, 0, tokens, 0, 0, 0), at)[0], pricing(Usage(0, tokens, 0, 0, 0, 0), at)[0]
        saved = None if saved is None or written is None or read is None else saved + written - read
    return PingTotals(len(pings), sum((ping.cost_usd or Decimal(0) for ping in pings), Decimal(0)), saved)
