"""The turn: command in, calls and tools until the model is done, one TurnFinished out.

It decides nothing about screens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from agent import events
from agent.call import Caller, Reply
from agent.events import TurnEnd
from agent.session import Session
from agent.toolbox import Toolbox
from backends.base import BackendError, StopReason
from context.block import Layer
from context.layers.command import command_block, notice_block
from context.layers.history import results_block
from context.notices import Environment, changes, first_notices

_CUT_AT_LIMIT: Final = (
    "Your reply was cut at the output limit. Go on where it ends; write large files in several steps."
)
_EMPTY_REPLY: Final = "Your reply was empty. Go on, or say that you are done."
_GO_ON: Final = 'Everything so far is kept: go on with `agent run --continue "…"`.'
_GO_ON_NEW: Final = "Everything so far is kept; start a new session for what is left."
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
        limits: Limits,
        emit: Callable[[events.Event], None],
    ) -> None:
        self._session = session
        self._caller = caller
        self._toolbox = toolbox
        self._limits = limits
        self._emit = emit

    async def turn(self, command: str, now: Environment) -> events.TurnFinished:
        """Run one command to its end and emit (and return) how it ended.

        A cancelled turn can be repaired and continued.
        """
        session = self._session
        notices = session.repair()
        if session.prompt.length == session.prompt.head(Layer.PROJECT).length:
            notices += first_notices(now)
        else:
            notices += changes(session.told, now)
        session.append([command_block(command, notices)], told=now)
        return await self._until_done()

    async def _until_done(self) -> events.TurnFinished:
        calls, cost, text, nudges = 0, Decimal(0), "", 0
        cost_known = True

        def finish(end: TurnEnd, message: str | None = None) -> events.TurnFinished:
            finished = events.TurnFinished(end, text, message, calls, cost if cost_known else None, self._session.id)
            self._emit(finished)
            return finished

        while True:
            if self._limits.max_turns is not None and calls >= self._limits.max_turns:
                return finish(TurnEnd.LIMIT, f"Stopped after {calls} calls (--max-turns). {_GO_ON}")
            if self._limits.max_cost is not None and cost >= self._limits.max_cost:
                return finish(TurnEnd.LIMIT, f"Stopped at ${cost:.4f} (--max-cost). {_GO_ON}")
            try:
                reply = await self._caller.call()
            except BackendError as error:
                return finish(TurnEnd.FAILED, f"{error} {_GO_ON}")
            calls += 1
            cost_known = cost_known and reply.cost_usd is not None
            cost += reply.cost_usd or Decimal(0)
            if reply.block is not None and reply.block.text:
                text = reply.block.text

            if reply.block is not None and (asked := reply.block.tool_calls):
                results = await self._toolbox.run(asked)
                self._session.append([results_block(asked, results)])
                if (stuck := self._toolbox.stuck_on(asked)) is not None:
                    return finish(
                        TurnEnd.STUCK, f"Stopped: the model keeps calling {stuck.name} with the same result. {_GO_ON}"
                    )
                nudges = 0
                continue

            verdict = judge(reply)
            if verdict.end is not None:
                return finish(verdict.end, verdict.message)
            nudges += 1
            if nudges > _MOST_NUDGES:
                return finish(TurnEnd.FAILED, f"Stopped: {verdict.message} {_GO_ON}")
            if verdict.nudge is not None:
                self._session.append([notice_block(verdict.nudge)])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows a reply without tool calls: the turn's `end`, or a `nudge` for the model (None: send as it is)."""

    end: TurnEnd | None
    message: str | None = None
    nudge: str | None = None


def judge(reply: Reply) -> Verdict:
    """Read the stop reason of a reply that asks for no tool."""
    match reply.stop:
        case StopReason.REFUSED:
            detail = f": {reply.detail}" if reply.detail else "."
            return Verdict(TurnEnd.FAILED, f"The model declined to answer{detail}")
        case StopReason.CONTEXT_FULL:
            return Verdict(TurnEnd.FAILED, f"The context window is full; the reply was cut. {_GO_ON_NEW}")
        case StopReason.MAX_OUTPUT:
            return Verdict(None, "the reply was cut at the output limit again and again.", _CUT_AT_LIMIT)
        case StopReason.PAUSED:
            return Verdict(None, "the provider pauses the reply again and again.")
        case StopReason.END | StopReason.TOOLS if reply.block is None or not reply.block.text.strip():
            return Verdict(None, "the model keeps sending empty replies.", _EMPTY_REPLY)
        case _:
            return Verdict(TurnEnd.DONE)
