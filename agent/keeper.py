"""Keeps the prompt cache warm while something is waited for: a tool, a rate limit, an answer, the next command.

When to ping is decided by expected cost in `context.economics`. A ping is the last request once more with nothing to
generate; it is identical up to the last cache marker, verified by what the provider says it read, and recorded with
its price. A turn that arrives cancels a ping in flight.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from agent import events
from agent.bill import Bill
from agent.forecaster import Forecaster, Plan
from agent.gate import Answer, Asker
from agent.parts import Parts
from agent.permissions import Ask
from agent.ping_record import Ping
from backends.base import BackendError, Request, Usage
from context.cachemodel import Entry
from context.economics import Activity, KeepDecision, Policy, Stakes, keep, margin_of
from context.pauses import After, Pauses

_RETRY_S: Final = 5.0
_ATTEMPTS: Final = 3
_DAY_S: Final = 86_400.0
_LOOK_S: Final = 20.0  # between two looks at the clock: less than the margin of the shortest lease, so that a machine
# that was suspended for a moment wakes up in time


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """`policy`: auto (by expected cost), always (as long as the limits allow) or off. `minutes`: how long one wait is
    covered. `session_usd`, `day_usd`: the most that pings may cost.
    """

    policy: Policy = "auto"
    minutes: float = 120.0
    session_usd: Decimal = Decimal(2)
    day_usd: Decimal = Decimal(5)


@dataclass(frozen=True, slots=True)
class _Wait:
    """What is waited for, since when (seconds since the epoch), and whose bill pays the pings."""

    activity: Activity
    after: After
    began: float
    bill: Bill


Farewell = Callable[[float], Awaitable[None]]
"""What is done before a lease is let go: given the probability that the person comes back later."""


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
        self._budgets = parts.budgets
        self._waits: list[_Wait] = []  # the last one is what is waited for now
        self._watcher: asyncio.Task[None] | None = None
        self.before_cold: Farewell | None = None

    @property
    def is_local(self) -> bool:
        """Whether the model runs here: what it has read costs nothing and has no end."""
        return self._backend.endpoint == "local"

    @asynccontextmanager
    async def during(self, activity: Activity, bill: Bill, after: After = "answer") -> AsyncIterator[None]:
        """Within this context the lease is renewed whenever that pays; leaving it cancels a ping in flight.

        Contexts nest: a question that a tool asks is what is waited for until it is answered. `after`: what an idle
        wait follows. What pings cost is added to `bill`. Raises LedgerError when they cannot be recorded.
        """
        await self._stop()
        self._waits.append(_Wait(activity, after, self._clock.now(), bill))
        self._start()
        try:
            yield
        finally:
            self._waits.pop()
            try:
                await self._stop()
            finally:
                self._start()

    def asking(self, asker: Asker) -> Asker:
        """`asker`, with the cache kept warm while its question is open."""

        async def ask(question: Ask) -> Answer:
            bill = self._waits[-1].bill if self._waits else Bill()
            pauses, session = self._session.ledger.pauses, self._session.id
            pauses.begin(session, self._clock.now(), "question")
            try:
                async with self.during("question", bill, "question"):
                    return await asker(question)
            finally:  # who interrupts has come back as well
                pauses.end(session, self._clock.now())

        return ask

    async def prewarm(self, bill: Bill) -> None:
        """Write SYSTEM and PROJECT before the first turn needs them. Nothing is sent when they are warm already.

        A local model evaluates all that the session has, as far as that is nowhere; the turn tells what it fails at.
        """
        now = self._clock.now()
        if self.is_local:
            with suppress(BackendError):
                await self._backend.warm(self._request(self._forecaster.plan(now)))
            return
        plan = self._forecaster.head(now)
        price = self._price(replace(plan.forecast.usage, output=0))
        if not plan.forecast.usage.cache_write or price is None or price > self._budget(bill):
            return
        try:
            usage = await self._backend.warm(self._request(plan))
        except BackendError:
            self._record(plan, now, "prewarm", "failed", bill)
            return
        except asyncio.CancelledError:
            self._record(plan, now, "prewarm", "cancelled", bill)
            raise
        if usage is not None:
            self._record(plan, now, "prewarm", "done", bill, usage)

    def _start(self) -> None:
        if self._waits and self._limits.policy != "off":
            self._watcher = asyncio.create_task(self._watch(self._waits[-1]))

    async def _stop(self) -> None:
        task, self._watcher = self._watcher, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _watch(self, wait: _Wait) -> None:
        while True:
            lease = self._forecaster.lease()
            if lease is None or lease.ttl is None:
                return
            due = lease.used + lease.ttl - margin_of(lease.ttl)
            while (left := due - self._clock.now()) > 0:
                await self._clock.sleep(min(left, _LOOK_S))
            # A machine that was suspended wakes up late: a lease that is gone is not renewed but written anew.
            if not lease.alive(self._clock.now()):
                self._tell_end(wait, "suspended", lease)
                return
            decision = self._decide(wait, lease)
            if decision is None or not decision.ping:
                self._tell_end(wait, decision.why.value if decision else "unknown_price", lease)
                if decision is not None and self.before_cold is not None and wait.activity == "idle":
                    await self.before_cold(self._returns_later(wait))
                return
            if not await self._renew(lease, wait, decision):
                self._tell_end(wait, "not_renewed", lease)
                return

    def _decide(self, wait: _Wait, lease: Entry) -> KeepDecision | None:
        """Whether to ping now. None when a price is not known: that is no reason to spend."""
        ping = self._price(Usage(0, lease.tokens, 0, 0, 0, 0))
        loss = self._price(Usage(0, 0, lease.tokens, 0, 0, 0))
        if ping is None or loss is None or lease.ttl is None:
            return None
        now = self._clock.now()
        return keep(
            Stakes(float(ping), float(loss - ping), lease.ttl, margin_of(lease.ttl)),
            activity=wait.activity,
            waited=now - wait.began,
            after=wait.after,
            hour=_hour(wait.began),
            pauses=self._pauses(now),
            policy=self._limits.policy,
            limit_s=self._limits.minutes * 60,
            budget_usd=float(self._budget(wait.bill)),
        )

    def _pauses(self, now: float) -> Pauses:
        return Pauses.learned(self._session.ledger.pauses.seen(now))

    def _returns_later(self, wait: _Wait) -> float:
        now = self._clock.now()
        return self._pauses(now).returns(now - wait.began, float("inf"), wait.after, _hour(wait.began))

    def _budget(self, bill: Bill) -> Decimal:
        """USD that pings may still cost."""
        now, pings = self._clock.now(), self._session.ledger.pings
        left = [
            self._limits.session_usd - pings.spent(0.0, self._session.id),
            self._limits.day_usd - pings.spent(now - _DAY_S),
        ]
        if bill.limit_usd is not None:
            left.append(Decimal(0) if bill.exhausted else bill.limit_usd - bill.known_usd)
        if (allowed := self._budgets.left) is not None:
            left.append(allowed)
        return max(Decimal(0), min(left))

    async def _renew(self, lease: Entry, wait: _Wait, decision: KeepDecision) -> bool:
        """Ping, at most three times and only while the lease lasts. Whether the prefix was read."""
        saving = Decimal(str(round(decision.saving_usd, 6)))
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
                self._record(plan, now, wait.activity, "failed", wait.bill)
                if not error.retriable:
                    return False
                continue
            except asyncio.CancelledError:
                self._record(plan, now, wait.activity, "cancelled", wait.bill)
                raise
            if usage is None:
                return False
            self._record(plan, now, wait.activity, "done", wait.bill, usage, saving)
            return bool(usage.cache_read)
        return False

    def _request(self, plan: Plan) -> Request:
        return Request(plan.prompt, plan.markers, effort=self._forecaster.effort, off=plan.off)

    def _record(
        self,
        plan: Plan,
        at: float,
        activity: str,
        status: str,
        bill: Bill,
        usage: Usage | None = None,
        saving: Decimal | None = None,
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
                saving,
            ),
            entries,
        )
        lease = self._forecaster.lease() or max(entries, key=lambda entry: entry.tokens, default=None)
        self._emit(
            events.CacheRenewed(
                *(activity, status, usage.cache_read if usage else None, cost),
                *((lease.expires, lease.tokens) if lease else (None, None)),
            )
        )
        self._budgets.look()

    def _tell_end(self, wait: _Wait, why: str, lease: Entry) -> None:
        self._emit(events.KeepaliveStopped(wait.activity, why, lease.tokens, lease.expires))

    def _price(self, usage: Usage) -> Decimal | None:
        return self._pricing(usage, datetime.fromtimestamp(self._clock.now(), UTC))[0]


def _hour(seconds: float) -> int:
    """The local hour."""
    return datetime.fromtimestamp(seconds).astimezone().hour
