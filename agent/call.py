"""One call to the model: forecast, stream, retries, bill, audit, and the ledger's record of all of it."""

from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from agent import events
from agent.bill import Bill
from agent.clock import Clock
from agent.counting import Counter
from agent.forecaster import Forecaster
from agent.keeper import Keeper
from agent.ledger_rows import ANSWERED, CallOutcome, ForecastRow
from agent.parts import Parts
from agent.repetition_guard import RepetitionGuard
from agent.retry import wait_before_retry
from agent.savings import saved_usd
from agent.speed import decode_tps
from backends import base
from backends.base import (
    BackendError,
    Diagnosis,
    ErrorKind,
    ReplyFinished,
    Request,
    StopReason,
    Usage,
    Veto,
)
from context.block import Block, Text
from context.forecast import Cause
from context.layers.history import reply_block
from context.prompt import Prompt

_LONGEST_ASIDE: Final = 16_000  # output tokens of a request beside the conversation, its reasoning included
# How a local model is asked again after it went round in circles. A greedy one would go the same way.
_OTHER_TEMPERATURE: Final = 0.7
_OTHER_PENALTY: Final = 1.1
_WRITING_STEP: Final = 200  # characters between two signs of life of a tool call that is being written


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished call. `block` is None when the reply holds nothing that could be sent back.

    `stop` REPEATED: we cut it, because it went round in circles.
    """

    block: Block | None
    stop: StopReason
    detail: str | None


class Caller:
    """Makes the calls of one session on one backend. `guard`: cut a reply that goes round in circles."""

    def __init__(
        self,
        parts: Parts,
        forecaster: Forecaster,
        counter: Counter,
        keeper: Keeper,
        veto: Veto | None = None,
        *,
        guard: bool = True,
    ) -> None:
        self._session = parts.session
        self._backend = parts.backend
        self._pricing = parts.pricing
        self._emit = parts.emit
        self._clock = parts.clock
        self._random = parts.random
        self._policy = parts.policy
        self._forecaster = forecaster
        self._counter = counter
        self._keeper = keeper
        self._budgets = parts.budgets
        self._veto = veto
        self._guards = guard
        self._counted = Prompt.empty()  # its blocks' tokens are known
        self._unrecorded: list[Block] = []  # counted, and not yet noted in the ledger

    async def call(self, bill: Bill, *, otherwise: bool = False) -> Reply:
        """Send the session's prompt and append the reply; every attempt is added to `bill`.

        `otherwise`: the last reply went round in circles, and a local model shall draw its tokens otherwise. Raises
        BackendError when no retry can help; what was streamed until then is kept as a draft. Raises BudgetError when a
        budget is spent: then nothing was sent.
        """
        return await self._call(bill, None, otherwise)

    async def ask_aside(self, question: Block, bill: Bill, blocks: int) -> Reply:
        """Send the first `blocks` of the session's prompt with `question` behind them, and append neither that nor the
        reply.

        The request reads what the conversation has in the cache. Raises BackendError when no retry can help, and
        BudgetError.
        """
        return await self._call(bill, (question, blocks), otherwise=False)

    async def size(self, prompt: Prompt | None = None) -> int:
        """The model's own tokens of `prompt` (None: the session's), as far as they are known before it is sent."""
        prompt = self._session.prompt if prompt is None else prompt
        await self._count(prompt)
        return self._forecaster.size(prompt)

    async def _call(self, bill: Bill, aside: tuple[Block, int] | None, otherwise: bool) -> Reply:
        attempt = 1
        while True:
            try:
                return await self._attempt(bill, aside, otherwise)
            except BackendError as error:
                if error.option is not None and self._forecaster.refuse(error.option, self._clock.now()):
                    self._emit(events.CacheOptionRefused(self._number, self._backend.endpoint, error.option.value))
                    continue  # the same call without it; whatever else is wrong will show then
                wait = wait_before_retry(error, attempt, self._random())
                if wait is None or bill.exhausted:
                    raise
                self._emit(events.ReplyRestarted(self._number, str(error), wait))
                attempt += 1
                async with self._keeper.during("rate_limit", bill):
                    await self._clock.sleep(wait)
                self._session.ledger.drop_draft(self._session.id)  # the call is made again, from its beginning

    async def _count(self, prompt: Prompt) -> None:
        """See to it that the tokens of all blocks are known: counted by another session, or now."""
        new = prompt.since(prompt.common_prefix(self._counted))
        unknown = {block.digest: block for block in new if block.known_tokens is None}
        for digest, tokens in self._session.ledger.tokens(unknown).items():
            unknown.pop(digest).learn_tokens(tokens)
        await self._counter.count(unknown.values())
        self._counted = prompt
        self._unrecorded += unknown.values()

    async def _attempt(self, bill: Bill, aside: tuple[Block, int] | None, otherwise: bool) -> Reply:
        session, ledger, backend = self._session, self._session.ledger, self._backend
        await self._count(session.prompt if aside is None else session.prompt.append(aside[0]))
        started = self._clock.now()
        plan = self._forecaster.plan(started) if aside is None else self._forecaster.aside(*aside, started)
        purpose = "turn" if aside is None else "compaction"
        usd, _ = self._pricing(replace(plan.forecast.usage, output=0), datetime.fromtimestamp(started, UTC))
        expected = ForecastRow(plan.forecast.usage, plan.forecast.total, usd)
        request = Request(
            plan.prompt,
            plan.markers,
            max_output=None if aside is None else min(_LONGEST_ASIDE, backend.capabilities.max_output),
            effort=self._forecaster.effort,
            previous_response=plan.previous_response,
            off=plan.off,
            temperature=_OTHER_TEMPERATURE if otherwise else None,
            repeat=_OTHER_PENALTY if otherwise else 1.0,
            veto=self._veto,
        )
        self._budgets.before_call(usd)
        call_id, self._number = ledger.begin_call(
            session.id,
            model=backend.name,
            dialect=backend.dialect,
            started=started,
            prompt=plan.prompt,
            markers=plan.markers,
            endpoint=backend.endpoint,
            effort=plan.scope.effort,
            forecast=expected,
            baseline=plan.baseline,
            epoch=session.epoch,
            turn=session.turn,
            purpose=purpose,
            policy=self._policy,
            check=self._budgets.check,
        )
        self._emit(events.CallStarted(self._number, expected.total, expected.usage, expected.usd, purpose))
        stream = _Stream(self._clock)
        guard = RepetitionGuard() if self._guards else None

        def settle(status: str, reply: Block | None = None) -> CallOutcome:
            outcome = self._outcome(status, stream)
            place = None
            if reply is not None and aside is None:
                place = (session.id, session.epoch, session.prompt.length, reply)
            if outcome.usage.cache_read is not None or status in ANSWERED:  # the provider began to answer
                verdict, entries = self._forecaster.audit(plan, outcome.usage, stream.diagnosis)
                outcome = replace(outcome, verdict=verdict, entries=entries)
            keep = status not in ANSWERED and aside is None
            ledger.finish_call(call_id, outcome, reply=place, keep_draft=keep, counted=self._unrecorded)
            self._unrecorded = []
            bill.add(outcome, counts=aside is None)
            return outcome

        try:
            async with aclosing(self._backend.stream(request)) as source:
                async for event in source:
                    stream.take(event)
                    if aside is None or isinstance(event, base.Prefill):
                        self._pass_on(event, call_id, stream)
                    if guard is not None and (circle := guard.take(event)) is not None:
                        stream.cut(circle.good)
                        self._emit(events.Notice(circle.notice))
                        break  # which closes the stream: nothing more is generated, or billed
            if stream.finished is None:
                raise BackendError(ErrorKind.PROTOCOL, "The reply ended without its last event.", retriable=True)
        except BackendError:
            settle("failed")
            raise
        except BaseException:  # cancelled: what was streamed is kept, and the bill so far
            settle("interrupted")
            raise

        block = reply_block(stream.finished.parts)
        kept = block if block.parts else None
        outcome = settle("cut" if stream.finished.stop is StopReason.REPEATED else "done", kept)
        if kept and aside is None:
            session.prompt = session.prompt.append(kept)
        if outcome.verdict is not None and outcome.verdict.cause is not Cause.IMPLAUSIBLE:
            self._forecaster.learn(request.prompt.length, stream.usage)
        tps = decode_tps(outcome.usage.output, outcome.ttft_s, stream.duration)
        saved = saved_usd(outcome.usage, outcome.cost_usd, self._pricing, datetime.fromtimestamp(started, UTC))
        lease = self._forecaster.lease()
        self._emit(
            events.CallFinished(
                *(self._number, outcome.usage, outcome.cost_usd, outcome.ttft_s, stream.duration, tps, outcome.verdict),
                *(saved, lease.tokens if lease else None, lease.expires if lease else None),
            )
        )
        self._budgets.look()
        return Reply(kept, stream.finished.stop, stream.finished.detail)

    def _pass_on(self, event: base.Event, call_id: int, stream: "_Stream") -> None:
        match event:
            case base.TextDelta(text):
                self._session.ledger.add_draft(call_id, text)
                self._emit(events.TextDelta(self._number, text))
            case base.ThinkingDelta(text):
                self._emit(events.ThinkingDelta(self._number, text))
            case base.ToolCallStarted(_, name):
                self._emit(events.ToolWriting(self._number, name, 0))
            case base.ToolCallDelta():
                self._tell_writing(stream)
            case base.Prefill(done, total, reused):
                self._emit(events.PrefillProgress(self._number, done, total, reused))

    def _tell_writing(self, stream: "_Stream") -> None:
        if stream.written - stream.written_told >= _WRITING_STEP:
            stream.written_told = stream.written
            self._emit(events.ToolWriting(self._number, stream.writing, stream.written))

    def _outcome(self, status: str, stream: "_Stream") -> CallOutcome:
        finished = stream.finished
        usage = stream.usage if finished else replace(stream.usage, output=None, reasoning=None)
        cost, price = self._pricing(usage, datetime.fromtimestamp(self._clock.now(), UTC))
        return CallOutcome(
            status=status,
            usage=usage,
            cost_usd=cost,
            price=price,
            stop=finished.stop.value if finished else None,
            response=finished.response_id if finished else None,
            ttft_s=stream.ttft,
            duration_s=stream.duration,
            diagnosis=_diagnosis(stream.diagnosis),
        )


def _diagnosis(told: Diagnosis | None) -> str | None:
    if told is None:
        return None
    return told.reason if told.missed is None else f"{told.reason} ({told.missed} tokens)"


class _Stream:
    """What a stream has told so far, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._first: float | None = None
        self._last = self._started
        self.usage = Usage()
        self.finished: ReplyFinished | None = None
        self.writing = ""  # the tool whose call is being written
        self.written = self.written_told = 0  # characters of its arguments

    def take(self, event: base.Event) -> None:
        self._last = self._clock.monotonic()
        match event:
            case base.UsageReported(usage):
                self.usage = usage
            case ReplyFinished():
                self.finished = event
            case base.ToolCallStarted(_, name):
                self.writing, self.written, self.written_told = name, 0, 0
                self._note_first()
            case base.ToolCallDelta(_, fragment):
                self.written += len(fragment)
            case base.TextDelta() | base.ThinkingDelta():
                self._note_first()

    def cut(self, good: str) -> None:
        """End it here: the reply is the `good` text. What was generated is billed, but nobody tells how much it was."""
        self.finished = ReplyFinished((Text(good.rstrip()),), StopReason.REPEATED)
        self.usage = replace(self.usage, output=None, reasoning=None)

    def _note_first(self) -> None:
        if self._first is None:
            self._first = self._last

    @property
    def diagnosis(self) -> Diagnosis | None:
        return self.finished.diagnosis if self.finished else None

    @property
    def ttft(self) -> float | None:
        return None if self._first is None else self._first - self._started

    @property
    def duration(self) -> float:
        """Seconds from the start to the last event."""
        return self._last - self._started
