"""Keeps the prompt cache warm while something else is waited for: a tool that runs, a provider's rate limit.

The session comes back from these for certain, so a ping pays whenever it costs less than writing the prefix again. A
ping is the last request once more with nothing to generate; it is identical up to the last cache marker, verified by
what the provider says it read, and recorded with its price.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal

from agent import events
from agent.bill import Bill
from agent.forecaster import Forecaster, Plan
from agent.parts import Parts
from agent.ping_record import Ping
from backends.base import BackendError, Request, Usage
from context.cachemodel import Entry

Activity = Literal["tool", "rate_limit"]

_MARGIN: Final = 0.1  # of the time to live that is left when a ping goes out: time for two more tries
_RETRY_S: Final = 5.0
_ATTEMPTS: Final = 3
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """`minutes`: how long one wait is covered. `session_usd`, `day_usd`: the most that pings may cost."""

    on: bool = True
    minutes: float = 60.0
    session_usd: Decimal = Decimal("0.50")
    day_usd: Decimal = Decimal(2)


class Keeper:
    """For one session on one backend."""

    def __init__(self, parts: Parts, forecaster: Forecaster, limits: KeepLimits) -> None:
        self._session = parts.session
        self._backend = parts.backend
        self._pricing = parts.pricing
        self._emit = parts.emit
        self._clock = parts.clock
        self._forecaster = forecaster
        self._limits = limits

    @asynccontextmanager
    async def during(self, activity: Activity, bill: Bill) -> AsyncIterator[None]:
        """Within this context the lease is renewed whenever that pays; leaving it cancels a ping in flight.

        What pings cost is added to `bill`. Raises LedgerError when they cannot be recorded.
        """
        task = asyncio.create_task(self._watch(activity, bill))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _watch(self, activity: Activity, bill: Bill) -> None:
        ends = self._clock.now() + self._limits.minutes * 60
        while self._limits.on:
            lease = self._forecaster.lease()
            if lease is None or lease.ttl is None:
                return
            due = lease.used + lease.ttl * (1 - _MARGIN)
            if due >= ends:
                return
            await self._clock.sleep(max(0.0, due - self._clock.now()))
            # A machine that was suspended wakes up late: a lease that is gone is not renewed but written anew.
            if not lease.alive(self._clock.now()) or not self._pays(lease, bill):
                return
            if not await self._renew(lease, activity, bill):
                return

    def _pays(self, lease: Entry, bill: Bill) -> bool:
        """Whether a ping costs less than it saves, and may be afforded. Unknown prices are no reason to spend."""
        ping = self._price(Usage(0, lease.tokens, 0, 0, 0, 0))
        loss = self._price(Usage(0, 0, lease.tokens, 0, 0, 0))
        if ping is None or loss is None or ping >= loss - ping or bill.exhausted:
            return False
        now, pings = self._clock.now(), self._session.ledger.pings
        return (
            pings.spent(0.0, self._session.id) + ping <= self._limits.session_usd
            and pings.spent(now - _DAY_S) + ping <= self._limits.day_usd
        )

    async def _renew(self, lease: Entry, activity: Activity, bill: Bill) -> bool:
        """Ping, at most three times and only while the lease lasts. Whether the prefix was read."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await self._clock.sleep(_RETRY_S)
            now = self._clock.now()
            if not lease.alive(now):
                return False
            plan = self._forecaster.renewal(now)
            if plan is None:
                return False
            try:
                usage = await self._backend.warm(self._request(plan))
            except BackendError as error:
                self._record(plan, now, activity, "failed", bill)
                if not error.retriable:
                    return False
                continue
            except asyncio.CancelledError:
                self._record(plan, now, activity, "cancelled", bill)
                raise
            if usage is None:
                return False
            self._record(plan, now, activity, "done", bill, usage)
            return bool(usage.cache_read)
        return False

    def _request(self, plan: Plan) -> Request:
        return Request(plan.prompt, plan.markers, effort=self._forecaster.effort, off=plan.off)

    def _record(
        self, plan: Plan, at: float, activity: Activity, status: str, bill: Bill, usage: Usage | None = None
    ) -> None:
        entries: tuple[Entry, ...] = ()
        cost = price = None
        if usage is not None:
            _, entries = self._forecaster.audit(plan, usage, None)
            cost, price = self._pricing(usage, datetime.fromtimestamp(at, UTC))
            bill.add_ping(cost)
        self._session.ledger.pings.add(
            Ping(
                *(self._session.id, at, self._backend.name, self._backend.endpoint),
                *(plan.prompt.digest, plan.prompt.length, activity, status),
                usage or Usage(),
                cost,
                price,
            ),
            entries,
        )
        lease = self._forecaster.lease()
        self._emit(
            events.CacheRenewed(
                activity, status, usage.cache_read if usage else None, cost, lease.expires if lease else None
            )
        )

    def _price(self, usage: Usage) -> Decimal | None:
        return self._pricing(usage, datetime.fromtimestamp(self._clock.now(), UTC))[0]
