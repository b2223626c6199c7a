"""What the cache has saved, in money."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from agent.bill import Pricing
from agent.ledger_rows import ANSWERED, CallRow
from agent.parts import Parts
from agent.reports.totals import total_of
from backends.base import Usage


def saved_usd(usage: Usage, cost_usd: Decimal | None, pricing: Pricing, at: datetime) -> Decimal | None:
    """What a call would have cost with all of its input fresh, less what it did cost; below 0 when it wrote more than
    it read. None: unknown.
    """
    total = usage.input_total
    if total is None or cost_usd is None:
        return None
    without = pricing(replace(usage, fresh=total, cache_read=0, cache_write=0, cache_write_long=0), at)[0]
    return None if without is None else without - cost_usd


async def so_far(parts: Parts) -> tuple[int | None, int | None, Decimal | None, Decimal | None]:
    """Input, cache read, cost and savings of the session's calls; its pings are in the cost."""
    session, ledger = parts.session, parts.session.ledger
    calls = ledger.calls(session.id)
    total = total_of(calls)
    cost = None if total.cost_usd is None else total.cost_usd + ledger.pings.spent(0.0, session.id)
    saved = await asyncio.to_thread(_saved, calls, parts)  # the first price takes half a second
    return total.input_total, total.cache_read, cost, saved


def _saved(calls: list[CallRow], parts: Parts) -> Decimal | None:
    """None where another model made some of the calls: its prices are not at hand."""
    saved = Decimal(0)
    for call in calls:
        if call.status not in ANSWERED:
            continue
        at = datetime.fromtimestamp(call.started, UTC)
        one = saved_usd(call.usage, call.cost_usd, parts.pricing, at) if call.model == parts.backend.name else None
        if one is None:
            return None
        saved += one
    return saved
