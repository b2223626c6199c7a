"""Begins new epochs: when the cache is cold anyway, when the window is full, when a person asks for it.

Between two epochs, and only there, what was sent is rewritten: a new snapshot of the project, stale tool outputs as one
line each (their text goes to a file), or a summary in place of the history. Whether it is worth it is decided in
`context.epoch`; both ways' expected costs go to the ledger.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from agent import events
from agent.bill import Bill
from agent.call import Caller
from agent.forecaster import Forecaster
from agent.ledger_rows import EpochRow
from agent.parts import Parts
from agent.tariff import tariff_at
from backends.base import BackendError, StopReason
from context.block import Block, Layer
from context.compaction import compacted, instruction_block
from context.epoch import (
    Reason,
    Tariff,
    decide_compaction,
    decide_epoch,
    decide_idle_compaction,
    expected_calls_left,
)
from context.fold import Folded, fold
from context.forecast import Cause
from context.layers.command import notice_block
from context.notices import Environment, first_notices
from context.prompt import Prompt

_MOST_IN_A_ROW: Final = 2
_SUMMARY: Final = 2_000  # tokens that a summary is expected to take
_COLD: Final = {
    Cause.EXPIRED: Reason.COLD,
    Cause.MODEL_CHANGED: Reason.MODEL,
    Cause.ENDPOINT_CHANGED: Reason.MODEL,
}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What new epochs are made from. `head`: SYSTEM and PROJECT as they are now; it reads the repository. `folder`:
    where the full text of folded outputs goes. `compacts`: whether a summary may take the place of the history.
    `forget` is called when the model no longer sees what it has read.
    """

    head: Callable[[], list[Block]]
    folder: Path
    compacts: bool
    forget: Callable[[], None]


class Epochs:
    """For one session on one backend."""

    def __init__(self, parts: Parts, forecaster: Forecaster, caller: Caller, rewriting: Rewriting) -> None:
        self._session = parts.session
        self._backend = parts.backend
        self._pricing = parts.pricing
        self._emit = parts.emit
        self._clock = parts.clock
        self._forecaster = forecaster
        self._caller = caller
        self._rewriting = rewriting

    async def begin_turn(self, now: Environment, bill: Bill) -> bool:
        """Begin a new epoch before a command is appended, if that is worth it. Whether one began.

        `now`: what its head tells of the surroundings. Compaction calls are added to `bill`.
        """
        if self._is_new:
            return False
        plan = await self._plan()
        began = False
        if (reason := _COLD.get(plan.cause)) is not None:
            began = await self._fold(reason, now, plan.total, plan.read)
        return await self._compact_if_dear(now, bill) or began

    async def refresh(self, now: Environment) -> bool:
        """A new epoch because the person wants one. Whether there was anything to begin it from."""
        if self._is_new:
            return False
        plan = await self._plan()
        return await self._fold(Reason.REFRESH, now, plan.total, plan.read)

    async def make_room(self, now: Environment, bill: Bill, *, overflowed: bool = False) -> bool:
        """See to it that the next request fits the window, in the middle of a turn as well. Whether it does.

        `overflowed`: the provider has said that it does not, whatever our count.
        """
        for _ in range(_MOST_IN_A_ROW):
            tokens = await self._caller.size()
            if not overflowed and not self._is_full(tokens):
                return True
            folded = await self._fold(Reason.PRESSURE, now, tokens, 0, least=0.5)
            if not folded and not await self.compact(now, bill, open_turn=True):
                return False
            overflowed = False
        return not self._is_full(await self._caller.size())

    async def compact(self, now: Environment, bill: Bill, *, open_turn: bool = False) -> bool:
        """A summary in place of the history: asked for as a suffix of the conversation, which is read from the cache.

        Whether the epoch began: a failed call, a reply that is no summary, or a prompt that would not shrink changes
        nothing. `open_turn`: the last request is being worked on.
        """
        if not self._rewriting.compacts or self._is_new:
            return False
        session = self._session
        before = await self._caller.size()
        self._emit(events.CompactionStarted(before))
        spent = bill.known_usd
        try:
            reply = await self._caller.ask_aside(instruction_block(), bill)
        except BackendError as error:
            self._emit(events.CompactionFinished("failed", str(error), before, None, None))
            return False
        cost = None if bill.usd is None else bill.known_usd - spent
        summary = "" if reply.block is None else reply.block.text.strip()
        if not summary or reply.stop is not StopReason.END:
            self._emit(events.CompactionFinished("refused", "the model gave no summary", before, None, cost))
            return False
        head = await asyncio.to_thread(self._rewriting.head)
        rest = compacted(session.prompt, summary, open_turn=open_turn)
        notices = first_notices(now)
        if open_turn and notices:
            rest = (*rest, notice_block("\n".join(notices)))
        prompt = Prompt.empty().extend([*head, *rest])
        after = await self._caller.size(prompt)
        if after >= before:
            self._emit(events.CompactionFinished("refused", "the summary is no shorter", before, after, cost))
            return False
        tariff = self._tariff(before)
        left = self._calls_left()
        as_is = tariff.read * before * left if tariff else None
        anew = tariff.write * after + tariff.read * after * left if tariff else None
        self._begin(Reason.COMPACTED, prompt, now, (before, after), (as_is, anew))
        self._emit(events.CompactionFinished("done", None, before, after, cost))
        return True

    async def compact_before_cold(self, now: Environment, bill: Bill, p_return: float) -> bool:
        """Compact a large session that nobody is expected back to before its lease ends, if that pays.

        `p_return`: the probability that the person comes back later.
        """
        if self._is_new or not self._rewriting.compacts:
            return False
        tokens = await self._caller.size()
        decision = decide_idle_compaction(
            tokens=tokens, after=self._after(), p_return=p_return, tariff=self._tariff(tokens)
        )
        return decision.compact and await self.compact(now, bill)

    async def _compact_if_dear(self, now: Environment, bill: Bill) -> bool:
        plan = await self._plan()
        decision = decide_compaction(
            tokens=plan.total,
            after=self._after(),
            window=self._backend.capabilities.context,
            reply_reserve=self._reserve,
            warm=plan.read * 2 > plan.total,
            calls_left=self._calls_left(),
            tariff=self._tariff(plan.total),
        )
        if not decision.compact:
            return False
        return await self.compact(now, bill)

    async def _fold(self, reason: Reason, now: Environment, tokens: int, read: int, *, least: float = 0.0) -> bool:
        """Begin an epoch with the stale folded, if that is worth it. `least`: the share that must go."""
        session = self._session
        head = await asyncio.to_thread(self._rewriting.head)
        folded = await asyncio.to_thread(fold, session.prompt, head, str(self._rewriting.folder))
        prompt = Prompt.empty().extend([*head, *folded.blocks])
        after = await self._caller.size(prompt)
        kept = self._warm_head(prompt, read)
        decision = decide_epoch(
            tokens=tokens,
            folded=after,
            warm=read,
            warm_head=kept,
            calls_left=self._calls_left(),
            tariff=self._tariff(tokens),
        )
        if prompt.digest == session.prompt.digest or after > tokens * (1 - least):
            return False
        if reason is not Reason.REFRESH and not decision.start:
            return False
        try:
            await asyncio.to_thread(self._keep, folded)
        except OSError as error:
            self._emit(events.Notice(f"Old outputs cannot be put into files ({error}): the history stays as it is."))
            return False
        self._begin(reason, prompt, now, (tokens, after), (decision.as_is_usd, decision.anew_usd))
        return True

    def _begin(
        self,
        reason: Reason,
        prompt: Prompt,
        now: Environment,
        tokens: tuple[int, int],
        usd: tuple[float | None, float | None],
    ) -> None:
        session = self._session
        as_is, anew = (None if value is None else Decimal(str(round(value, 6))) for value in usd)
        row = EpochRow(session.epoch + 1, self._clock.now(), reason.value, *tokens, as_is, anew)
        session.begin_epoch(row, prompt, now)
        self._rewriting.forget()
        self._emit(events.EpochStarted(row.number, row.reason, *tokens, as_is, anew))

    def _keep(self, folded: Folded) -> None:
        """Write the full text of what is folded away. Raises OSError."""
        if folded.outputs:
            self._rewriting.folder.mkdir(parents=True, exist_ok=True)
        for name, text in folded.outputs:
            path = self._rewriting.folder / name
            if not path.exists():
                path.write_text(text, encoding="utf-8", errors="replace", newline="")

    async def _plan(self) -> "_Outlook":
        await self._caller.size()
        plan = self._forecaster.plan(self._clock.now())
        return _Outlook(plan.forecast.cause, plan.forecast.total, plan.forecast.usage.cache_read or 0)

    def _warm_head(self, prompt: Prompt, read: int) -> int:
        """Tokens of `prompt` that are read though the rest is new: SYSTEM, and PROJECT where it did not change."""
        session = self._session
        for layer in (Layer.PROJECT, Layer.SYSTEM):
            head = prompt.head(layer)
            if head.digest == session.prompt.head(layer).digest:
                return min(read, self._forecaster.size(head))
        return 0

    def _after(self) -> int:
        """What a compacted prompt is expected to take."""
        return self._forecaster.size(self._session.prompt.head(Layer.PROJECT)) + _SUMMARY

    def _calls_left(self) -> float:
        calls = [call for call in self._session.ledger.calls(self._session.id) if call.purpose == "turn"]
        turns = max(1, self._session.turn)
        return expected_calls_left(turns, len(calls) / turns)

    def _tariff(self, tokens: int) -> Tariff | None:
        return tariff_at(self._pricing, self._backend.capabilities.cache, tokens, self._clock.now())

    @property
    def _is_new(self) -> bool:
        prompt = self._session.prompt
        return prompt.length <= prompt.head(Layer.PROJECT).length

    @property
    def _reserve(self) -> int:
        """Tokens of the window that the reply is left."""
        can = self._backend.capabilities
        return min(can.max_output, can.context // 8)

    def _is_full(self, tokens: int) -> bool:
        decision = decide_compaction(
            tokens=tokens,
            after=0,
            window=self._backend.capabilities.context,
            reply_reserve=self._reserve,
            warm=True,
            calls_left=0.0,
            tariff=None,
        )
        return decision.why == "window"


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The session's prompt if it were sent now: `total` tokens, of which `read` from the cache, and why not more."""

    cause: Cause
    total: int
    read: int
