"""Begins new epochs: when the cache is cold anyway, when the window is full, when a person asks for it.

Between two epochs, and only there, what was sent is rewritten: a new snapshot of the project, stale tool outputs as one
line each (their text goes to a file), or a summary in place of the history. Whether it is worth it is decided in
`context.epoch`; both ways' expected costs go to the ledger.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from agent import events
from agent.bill import Bill
from agent.budgets import BudgetError
from agent.call import Caller, Reply
from agent.forecaster import Forecaster
from agent.ledger_rows import EpochRow
from agent.parts import Parts
from agent.price_levels import prices_at
from backends.base import BackendError, ErrorKind, StopReason
from context.block import Block, Layer, Role
from context.compaction import compacted, instruction_block
from context.economics import Prices
from context.epoch import (
    EpochDecision,
    Reason,
    decide_compaction,
    decide_epoch,
    decide_idle_compaction,
    expected_calls_left,
    is_full,
)
from context.fold import fold, fold_results, is_command
from context.forecast import Cause
from context.layers.command import notice_block
from context.notices import Environment, changes
from context.prompt import Prompt

_MOST_IN_A_ROW: Final = 2
_SUMMARY: Final = 2_000  # tokens that a summary is expected to take
_LEAST_ROOM: Final = 0.5  # share of a full prompt that folding must free to be a help for long
_NO_FILES: Final = "Old outputs cannot be put into files"
_UNTOLD: Final = ""  # a mode that is none: the next notices tell the mode
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
        self._can = parts.backend.capabilities
        self._pricing = parts.pricing
        self._emit = parts.emit
        self._clock = parts.clock
        self._forecaster = forecaster
        self._caller = caller
        self._rewriting = rewriting
        self._window = parts.backend.capabilities.context

    def learn_window(self, tokens: int | None) -> None:
        """The server has named the size of its window: what was assumed of it is not asked for again."""
        if tokens is not None and tokens < self._window:
            self._emit(
                events.Notice(
                    f"The server's context window is {tokens:,} tokens, and not {self._window:,} as assumed: what "
                    "follows is made to fit. Set `context` for this model to say so at once."
                )
            )
            self._window = tokens

    async def begin_turn(self, now: Environment, bill: Bill) -> None:
        """Begin a new epoch before a command is appended, if that is worth it.

        `now`: what its head tells of the surroundings. Compaction calls are added to `bill`.
        """
        if self.is_new:
            return
        outlook = await self._outlook()
        if (reason := _COLD.get(outlook.cause)) is not None and await self._fold(reason, now, outlook):
            outlook = await self._outlook()
        decision = decide_compaction(
            tokens=outlook.tokens,
            after=self._compacted_size(),
            window=self._window,
            reply_reserve=self._reserve,
            warm=outlook.read * 2 > outlook.tokens,
            calls_left=self._calls_left(),
            prices=self._prices(outlook.tokens),
        )
        if decision.compact:
            await self.compact(now, bill)

    async def refresh(self, now: Environment) -> bool:
        """A new epoch because the person wants one. Whether it differs from the old one, and so began."""
        return not self.is_new and await self._fold(Reason.REFRESH, now, await self._outlook())

    async def make_room(self, now: Environment, bill: Bill, *, overflowed: bool = False) -> bool:
        """See to it that the next request fits the window, in the middle of a turn. Whether it does.

        `overflowed`: the provider has said that it does not, whatever our count.
        """
        for _ in range(_MOST_IN_A_ROW):
            if not overflowed and not await self._is_full():
                return True
            folded = await self._fold(Reason.PRESSURE, now, await self._outlook())
            if not folded and not await self.compact(now, bill, open_turn=True, refused=overflowed):
                return False
            overflowed = False
        return not await self._is_full()

    async def shrink(self, now: Environment, bill: Bill) -> bool:
        """Make the prompt shorter though it fits, in the middle of a turn. Whether an epoch began."""
        folded = not self.is_new and await self._fold(Reason.PRESSURE, now, await self._outlook())
        return folded or await self.compact(now, bill, open_turn=True)

    async def compact(self, now: Environment, bill: Bill, *, open_turn: bool = False, refused: bool = False) -> bool:
        """A summary in place of the history: asked for as a suffix of the conversation, which is read from the cache.

        Whether the epoch began: a failed call, a reply that is no summary, or a prompt that would not shrink changes
        nothing. `open_turn`: the last request is being worked on. `refused`: the prompt as it is does not fit the
        window, so that the question stands behind what was answered before. Raises BudgetError when it cannot be paid.
        """
        if not self._rewriting.compacts or self.is_new:
            return False
        session, outlook = self._session, await self._outlook()
        before = outlook.tokens
        self._emit(events.CompactionStarted(before))
        spent = bill.known_usd
        try:
            reply, blocks_seen = await self._summary(bill, refused=refused or before + _SUMMARY > self._window)
        except BackendError as error:
            self._emit(events.CompactionFinished("failed", str(error), before, None, None))
            return False
        except BudgetError:
            self._emit(events.CompactionFinished("failed", "the budget is spent", before, None, None))
            raise
        cost = None if bill.usd is None else bill.known_usd - spent
        summary = "" if reply.block is None else reply.block.text.strip()
        if not summary or reply.stop is not StopReason.END:
            self._emit(events.CompactionFinished("refused", "the model gave no summary", before, None, cost))
            return False
        head = await asyncio.to_thread(self._rewriting.head)
        try:
            unseen = await asyncio.to_thread(self._unseen, blocks_seen)
        except OSError as error:
            self._emit(events.CompactionFinished("failed", f"{_NO_FILES} ({error})", before, None, cost))
            return False
        blocks = [*head, *compacted(session.prompt, summary, open_turn=open_turn, seen=blocks_seen, unseen=unseen)]
        after = await self._caller.size(Prompt.empty().extend(blocks))
        if after >= before:
            self._emit(events.CompactionFinished("refused", "the summary is no shorter", before, after, cost))
            return False
        expected = self._weighed(outlook, after, Prompt.empty().extend(head))
        self._begin(Reason.COMPACTED, blocks, now, (before, after), expected, open_turn=open_turn)
        self._emit(events.CompactionFinished("done", None, before, after, cost))
        return True

    async def _summary(self, bill: Bill, *, refused: bool) -> tuple[Reply, int]:
        """The model's summary, and how many blocks of the prompt it has seen for it. Raises BackendError."""
        whole = self._session.prompt.length
        places = sorted({self._forecaster.answered(), self._before_last_command()} - {0, whole}, reverse=True)
        if not refused or not places:
            places.insert(0, whole)
        while True:
            blocks = places.pop(0)
            try:
                return await self._caller.ask_aside(instruction_block(), bill, blocks), blocks
            except BackendError as error:
                if error.kind is not ErrorKind.OVERFLOW or not places:
                    raise
                self.learn_window(error.window)

    def _before_last_command(self) -> int:
        """Blocks ahead of the last command; 0 where nothing was said before it."""
        prompt: Prompt | None = self._session.prompt
        start = self._session.prompt.head(Layer.PROJECT).length
        while prompt is not None and prompt.block is not None and prompt.length > start + 1:
            if is_command(prompt.block):
                return prompt.length - 1
            prompt = prompt.parent
        return 0

    def _unseen(self, blocks: int) -> str:
        """What the calls behind the first `blocks` gave; long outputs go into files. Raises OSError."""
        told, outputs = fold_results(self._session.prompt.since(blocks), str(self._rewriting.folder))
        self._write(outputs)
        return told

    async def compact_before_cold(self, now: Environment, bill: Bill, p_return: float) -> bool:
        """Compact a large session that nobody is expected back to before its lease ends, if that pays.

        `p_return`: the probability that the person comes back later.
        """
        if self.is_new or not self._rewriting.compacts:
            return False
        head = list(self._session.prompt.head(Layer.PROJECT))
        folded = await asyncio.to_thread(fold, self._session.prompt, head, str(self._rewriting.folder))
        tokens = await self._caller.size()
        decision = decide_idle_compaction(
            tokens=tokens,
            folded=await self._caller.size(Prompt.empty().extend([*head, *folded.blocks])),
            after=self._compacted_size(),
            p_return=p_return,
            prices=self._prices(tokens),
        )
        with suppress(BudgetError):  # nobody waits for it
            return decision.compact and await self.compact(now, bill)
        return False

    async def _fold(self, reason: Reason, now: Environment, outlook: "_Outlook") -> bool:
        """Begin an epoch with the stale folded, if that is worth it. Whether it began."""
        prompt = self._session.prompt
        head = await asyncio.to_thread(self._rewriting.head)
        folded = await asyncio.to_thread(fold, prompt, head, str(self._rewriting.folder))
        new = Prompt.empty().extend([*head, *folded.blocks])
        if new.digest == prompt.digest:
            return False
        after = await self._caller.size(new)
        decision = self._weighed(outlook, after, new.head(Layer.PROJECT))
        match reason:
            case Reason.REFRESH:
                worth = True
            case Reason.PRESSURE:
                worth = after <= outlook.tokens * (1 - _LEAST_ROOM)
            case _:
                worth = decision.start
        if not worth:
            return False
        try:
            await asyncio.to_thread(self._write, folded.outputs)
        except OSError as error:
            self._emit(events.Notice(f"{_NO_FILES} ({error}): the history stays as it is."))
            return False
        open_turn = reason is Reason.PRESSURE
        self._begin(reason, list(new), now, (outlook.tokens, after), decision, open_turn=open_turn)
        return True

    def _weighed(self, outlook: "_Outlook", after: int, head: Prompt) -> EpochDecision:
        """The prompt as it is against one of `after` tokens that begins with `head`."""
        return decide_epoch(
            tokens=outlook.tokens,
            folded=after,
            warm=outlook.read,
            warm_head=self._warm_head(head, outlook.read),
            calls_left=self._calls_left(),
            prices=self._prices(outlook.tokens),
        )

    def _begin(
        self,
        reason: Reason,
        blocks: list[Block],
        now: Environment,
        tokens: tuple[int, int],
        expected: EpochDecision,
        *,
        open_turn: bool,
    ) -> None:
        """The head tells date and directory; the mode is told by the next command, or here where none comes."""
        told = replace(now, mode=_UNTOLD)
        if open_turn:
            blocks, told = [*blocks, notice_block("\n".join(changes(told, now)))], now
        as_is, anew = _usd(expected.as_is_usd), _usd(expected.anew_usd)
        row = EpochRow(self._session.epoch + 1, self._clock.now(), reason.value, *tokens, as_is, anew)
        self._session.begin_epoch(row, blocks, told)
        self._rewriting.forget()
        self._emit(events.EpochStarted(row.number, row.reason, *tokens, as_is, anew))

    def _write(self, outputs: Sequence[tuple[str, str]]) -> None:
        """Keep the full text of what is folded away. Raises OSError."""
        if outputs:
            self._rewriting.folder.mkdir(parents=True, exist_ok=True)
        for name, text in outputs:  # the name holds the text's digest: what is there is the same
            (self._rewriting.folder / name).write_text(text, encoding="utf-8", newline="")

    async def _outlook(self) -> "_Outlook":
        await self._caller.size()
        made = self._forecaster.plan(self._clock.now()).forecast
        return _Outlook(made.cause, made.total, made.usage.cache_read or 0)

    def _warm_head(self, head: Prompt, read: int) -> int:
        """Tokens of a new prompt's `head` that are read though the rest is new: of SYSTEM, and of PROJECT too where it
        did not change.
        """
        for layer in (Layer.PROJECT, Layer.SYSTEM):
            end = head.head(layer)
            if end.digest == self._session.prompt.head(layer).digest:
                return min(read, self._forecaster.size(end))
        return 0

    def _compacted_size(self) -> int:
        """What a compacted prompt is expected to take."""
        return self._forecaster.size(self._session.prompt.head(Layer.PROJECT)) + _SUMMARY

    def _calls_left(self) -> float:
        turns = max(1, self._session.turn)
        return expected_calls_left(turns, self._session.ledger.turn_calls(self._session.id) / turns)

    def _prices(self, tokens: int) -> Prices | None:
        return prices_at(self._pricing, self._can.cache, tokens, self._clock.now())

    @property
    def is_new(self) -> bool:
        """Whether the model has said nothing yet: there is nothing to fold or to sum up."""
        prompt: Prompt | None = self._session.prompt
        start = self._session.prompt.head(Layer.PROJECT).length
        while prompt is not None and prompt.block is not None and prompt.length > start:  # the last reply is near
            if prompt.block.role is Role.ASSISTANT:
                return False
            prompt = prompt.parent
        return True

    @property
    def _reserve(self) -> int:
        """Tokens of the window that the reply is left."""
        return min(self._can.max_output, self._window // 8)

    async def _is_full(self) -> bool:
        return is_full(await self._caller.size(), self._window, self._reserve)


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The session's prompt if it were sent now: `tokens`, of which `read` from the cache, and why not more."""

    cause: Cause
    tokens: int
    read: int


def _usd(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(round(value, 6)))
