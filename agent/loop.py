"""The turn: command in, calls and tools until the model is done, one TurnFinished out.

It decides nothing about screens.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from agent import events
from agent.bill import Bill
from agent.budgets import BudgetError, Budgets
from agent.call import Caller, Reply
from agent.epochs import Epochs
from agent.errors import UserError
from agent.events import TurnEnd
from agent.keeper import Keeper
from agent.repository import Repository
from agent.session import Session
from agent.toolbox import Toolbox
from agent.ways_on import ONE_SHOT, WaysOn
from backends.base import BackendError, ErrorKind, StopReason
from context.block import Layer
from context.layers.command import command_block, notice_block
from context.layers.history import BROKEN_CALL, CIRCLED, results_block
from context.notices import Environment, changes, first_notices

_CUT_AT_LIMIT: Final = (
    "Your reply was cut at the output limit. Go on where it ends; write large files in several steps."
)
_EMPTY_REPLY: Final = "Your reply was empty. Go on, or say that you are done."
_FULL: Final = "The context window is full."
_NO_USE: Final = "Everything so far is kept, but the same request would fail again."
_FOR_EVER: Final = frozenset({ErrorKind.OVERFLOW, ErrorKind.INVALID})  # the same prompt will fail again
_MOST_OVERFLOWS: Final = 3
_MOST_BROKEN_CALLS: Final = 3  # in a row; then the prompt is made shorter, because long ones bring them about
_MOST_CIRCLES: Final = 2  # in a turn, that are followed by another try
_MOST_NUDGES: Final = 2  # in a row; a model that needs a third is not getting anywhere


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_turns`: calls to the model in one turn. `max_cost`: USD in one turn. None: no limit."""

    max_turns: int | None = None
    max_cost: Decimal | None = None


class Loop:
    """Runs turns of one session. Everything it tells goes through `emit`."""

    def __init__(
        self,
        session: Session,
        caller: Caller,
        toolbox: Toolbox,
        keeper: Keeper,
        epochs: Epochs,
        limits: Limits,
        emit: Callable[[events.Event], None],
        repository: Repository,
        budgets: Budgets,
        ways: WaysOn = ONE_SHOT,
    ) -> None:
        self._session = session
        self._caller = caller
        self._toolbox = toolbox
        self._keeper = keeper
        self._epochs = epochs
        self._limits = limits
        self._emit = emit
        self._repository = repository
        self._budgets = budgets
        self._ways = ways

    async def turn(self, command: str, now: Environment, notes: Sequence[str] = ()) -> events.TurnFinished:
        """Run one command to its end; emit and return how it ended. `notes` are told with it.

        A cancelled turn emits that it was interrupted and raises CancelledError; the next turn repairs what it left
        open.
        """
        session, turn = self._session, _Turn(Bill(self._limits.max_cost), now)
        if (spent := self._budgets.stopped()) is not None:
            return self._finish(turn, TurnEnd.LIMIT, f"{spent} Nothing was sent.")
        session.turn += 1
        notices = session.repair()
        try:
            await self._epochs.begin_turn(now, turn.bill)
            told = session.told  # after that: a new head tells what has changed until now
            before = told.files if told.directory == now.directory else None
            news = await asyncio.to_thread(self._repository.news, before, now.files)
        except asyncio.CancelledError:
            self._finish(turn, TurnEnd.INTERRUPTED, "Interrupted before the command was sent: say it again.")
            raise
        except BudgetError as error:  # a summary was due, and cannot be paid
            session.turn -= 1
            return self._finish(turn, TurnEnd.LIMIT, f"{error} Your message was not sent.")
        if session.prompt.length == session.prompt.head(Layer.PROJECT).length:
            notices += first_notices(now)
            told = replace(told, mode=now.mode, asks=now.asks)
        notices += changes(told, now) + news.notices + list(notes)
        notices += await self._toolbox.begin(command)
        session.append([command_block(command, notices)], told=now, seen=self._toolbox.unrecorded() | news.seen)
        self._repository.settle(news)
        try:
            end, message = await self._until_done(turn)
        except BudgetError as error:
            return self._finish(turn, TurnEnd.LIMIT, f"{error} {self._ways.go_on}")
        except UserError as error:  # the ledger cannot be written: what cannot be recorded is not done
            return self._finish(turn, TurnEnd.FAILED, str(error))
        except asyncio.CancelledError:
            self._finish(turn, TurnEnd.INTERRUPTED, f"Interrupted. {self._ways.go_on}")
            raise
        return self._finish(turn, end, message)

    def _finish(self, turn: "_Turn", end: TurnEnd, message: str | None) -> events.TurnFinished:
        finished = events.TurnFinished(end, turn.text, message, turn.bill.calls, turn.bill.usd, self._session.id)
        self._emit(finished)
        return finished

    async def _until_done(self, turn: "_Turn") -> tuple[TurnEnd, str | None]:
        nudges, circling = 0, False
        while True:
            if (reached := self._limit(turn)) is not None:
                return TurnEnd.LIMIT, f"{reached} {self._ways.go_on}"
            if not await self._epochs.make_room(turn.environment, turn.bill):
                return TurnEnd.FAILED, f"{_FULL} {self._ways.too_small if self._epochs.is_new else self._ways.full}"
            try:
                reply = await self._caller.call(turn.bill, otherwise=circling)
            except BackendError as error:
                if error.kind is ErrorKind.OVERFLOW and await self._make_more_room(turn, error.window):
                    continue
                if (reached := self._limit(turn)) is not None:
                    return TurnEnd.LIMIT, f"{error} {reached} {self._ways.go_on}"
                if error.kind is ErrorKind.BROKEN_CALL:
                    if await self._ask_for_whole_call(turn):
                        continue
                    return TurnEnd.FAILED, f"{error} {self._ways.other}"
                return TurnEnd.FAILED, f"{error} {_NO_USE if error.kind in _FOR_EVER else self._ways.go_on}"
            turn.broken_calls = 0
            if reply.block is not None and reply.block.text:
                turn.text = reply.block.text

            if circling := reply.stop is StopReason.REPEATED:
                turn.circles += 1
                if turn.circles > _MOST_CIRCLES:
                    return TurnEnd.STUCK, f"Stopped: the model's replies go round in circles. {self._ways.go_on}"
                self._session.append([notice_block(CIRCLED)])
                continue

            if reply.block is not None and (asked := reply.block.tool_calls):
                async with self._keeper.during("tool", turn.bill):
                    results = await self._toolbox.run(asked)
                self._session.append([results_block(asked, results)])
                if (stuck := self._toolbox.stuck(asked)) is not None:
                    return TurnEnd.STUCK, f"Stopped: the model keeps {stuck}. {self._ways.go_on}"
                nudges = 0
                continue

            if reply.stop is StopReason.CONTEXT_FULL and await self._make_more_room(turn):
                continue
            verdict = judge(reply, self._ways)
            if verdict.end is TurnEnd.DONE and (refusal := self._toolbox.refuse_text(turn.text)) is not None:
                verdict = Verdict(None, "the model keeps writing its calls into its text.", refusal)
            if verdict.end is TurnEnd.DONE and (objection := self._toolbox.objection()) is not None:
                self._session.append([notice_block(objection)])
                self._emit(events.Notice(f"The model is sent back to work: {objection.splitlines()[0]}"))
                continue
            if verdict.end is not None:
                return verdict.end, verdict.message
            nudges += 1
            if nudges > _MOST_NUDGES:
                return TurnEnd.FAILED, f"Stopped: {verdict.message} {self._ways.go_on}"
            if verdict.nudge is not None:
                self._session.append([notice_block(verdict.nudge)])

    async def _make_more_room(self, turn: "_Turn", window: int | None = None) -> bool:
        """When the provider says that the window (of so many tokens) is full. Not without end: a turn that needs it
        often is too large.
        """
        turn.overflows += 1
        self._epochs.learn_window(window)
        return turn.overflows <= _MOST_OVERFLOWS and await self._epochs.make_room(
            turn.environment, turn.bill, overflowed=True
        )

    async def _ask_for_whole_call(self, turn: "_Turn") -> bool:
        """When the server could not read the model's tool call: remind the model; after the third in a row shorten the
        prompt, once in a turn. Whether it is worth another try.
        """
        turn.broken_calls += 1
        if turn.broken_calls >= _MOST_BROKEN_CALLS:
            if turn.shrunk or not await self._epochs.shrink(turn.environment, turn.bill):
                return False
            turn.shrunk, turn.broken_calls = True, 0
        self._session.ledger.drop_draft(self._session.id)
        self._session.append([notice_block(BROKEN_CALL)])
        self._emit(events.Notice("The server could not read the model's tool call: the model is asked for a new one."))
        return True

    def _limit(self, turn: "_Turn") -> str | None:
        limits, bill = self._limits, turn.bill
        if limits.max_turns is not None and bill.calls >= limits.max_turns:
            return f"Stopped after {bill.calls} calls (--max-turns)."
        if not bill.exhausted:
            return self._budgets.stopped()
        if bill.usd is None:
            return "Stopped: what a call has cost is not known, so --max-cost cannot be kept."
        return f"Stopped at ${bill.known_usd:.4f} (--max-cost)."


@dataclass(slots=True)
class _Turn:
    """What a turn has come to. `text`: the last reply's. `overflows`: how often the window was full; `circles`: how
    many replies went round in circles; `broken_calls`: how many replies in a row the server could not read; `shrunk`:
    whether the prompt was made shorter for that.
    """

    bill: Bill
    environment: Environment
    text: str = ""
    overflows: int = 0
    circles: int = 0
    broken_calls: int = 0
    shrunk: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows a reply without tool calls: the turn's `end`, or a `nudge` for the model (None: send as it is)."""

    end: TurnEnd | None
    message: str | None = None
    nudge: str | None = None


def judge(reply: Reply, ways: WaysOn) -> Verdict:
    """Read the stop reason of a reply that asks for no tool."""
    match reply.stop:
        case StopReason.REFUSED:
            detail = f": {reply.detail}" if reply.detail else "."
            return Verdict(TurnEnd.FAILED, f"The model declined to answer{detail}")
        case StopReason.CONTEXT_FULL:
            return Verdict(TurnEnd.FAILED, f"The context window is full; the reply was cut. {ways.full}")
        case StopReason.MAX_OUTPUT:
            return Verdict(None, "the reply was cut at the output limit again and again.", _CUT_AT_LIMIT)
        case StopReason.PAUSED:
            return Verdict(None, "the provider pauses the reply again and again.")
        case StopReason.END | StopReason.TOOLS if reply.block is None or not reply.block.text.strip():
            return Verdict(None, "the model keeps sending empty replies.", _EMPTY_REPLY)
        case _:
            return Verdict(TurnEnd.DONE)
