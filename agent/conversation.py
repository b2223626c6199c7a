"""A session held open on one model: turns one after another, and the cache looked after between them.

`agent run` takes one turn of it; a chat takes many.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Decimal

from agent import events
from agent.bill import Bill
from agent.budgets import Budgets
from agent.clock import Clock
from agent.epochs import Epochs
from agent.errors import USAGE, UserError
from agent.events import TurnEnd
from agent.forecaster import Forecaster
from agent.gate import ModeGate
from agent.head import Head, Look
from agent.keeper import Keeper
from agent.loop import Loop
from agent.permissions import Mode
from agent.repository import Repository
from agent.session import Session
from backends.base import Usage
from context.pauses import After


class Conversation:
    """Open one with `agent.opening.open_conversation`."""

    def __init__(
        self,
        session: Session,
        model: str,
        loop: Loop,
        keeper: Keeper,
        epochs: Epochs,
        forecaster: Forecaster,
        budgets: Budgets,
        clock: Clock,
        look: Look,
        head: Head,
        gate: ModeGate,
        repository: Repository,
        price: Callable[[Usage], Decimal | None],
    ) -> None:
        self.session = session
        self._loop = loop
        self._keeper = keeper
        self._epochs = epochs
        self._clock = clock
        self.look = look
        self.head = head
        self.model = model
        self._gate = gate
        self._repository = repository
        self._forecaster = forecaster
        self.budgets = budgets
        self._price = price
        self._warming: asyncio.Task[None] | None = None
        self._wait = AsyncExitStack()  # what ends when the person comes back
        self.idle_bill = Bill()
        keeper.before_cold = self._before_cold

    async def turn(
        self, command: str, notes: Sequence[str] = (), before_effects: Callable[[], Awaitable[None]] | None = None
    ) -> events.TurnFinished:
        """Run one command to its end; `notes` are told with it. A tool that may change something waits for
        `before_effects`. Raises CancelledError when it was interrupted; everything so far is kept.
        """
        self._gate.before_effects = before_effects
        await self._come_back()
        await self._finish_warming()
        if self.session.is_unused:
            self.session.rename(command)
        return await self._loop.turn(command, await asyncio.to_thread(self.look), notes)

    async def wait(self, finished: events.TurnFinished | None) -> None:
        """The person has the word: keep the cache warm as long as that is expected to pay. The next turn ends it.

        `finished` None: the turn was interrupted.
        """
        now = self._clock.now()
        after = after_turn(finished)
        self.session.ledger.pauses.begin(self.session.id, now, after)
        await self._wait.enter_async_context(self._keeper.during("idle", self.idle_bill, after))

    def prewarm(self) -> None:
        """Write SYSTEM and PROJECT while the person types the first command, if they are cold. A local model reads all
        of the session.
        """
        if self._warming is None:
            self._warming = asyncio.create_task(self._keeper.prewarm(self.idle_bill))

    def set_mode(self, mode: str) -> None:
        """What may run without asking from now on. The model is told with the next command."""
        self._gate.mode = Mode(mode)
        self.look.mode = mode

    async def show_files(self, paths: Sequence[str]) -> None:
        """Show the model these files with the next command; relative to the working directory."""
        await asyncio.to_thread(self._repository.show, paths)

    def next_turn(self) -> tuple[Usage, Decimal | None]:
        """What the input of the next call is expected to be, without its command, and its price in USD (None: it is
        not known).
        """
        now = self._clock.now()
        usage = replace(self._forecaster.plan(now).forecast.usage, output=0, reasoning=0)
        return usage, self._price(usage)

    async def refresh(self) -> bool:
        """Begin a new epoch: a new snapshot of the project, stale outputs folded. Whether there was one to begin."""
        await self._come_back()
        return await self._epochs.refresh(await asyncio.to_thread(self.look))

    async def compact(self, bill: Bill) -> bool:
        """Put a summary in place of the history. Whether that was done; what it cost is added to `bill`.

        Raises UserError when there is no history.
        """
        await self._come_back()
        self.session.repair()
        if self._epochs.is_new:
            raise UserError(f"Session {self.session.id} has no history yet. Nothing was sent.", USAGE)
        return await self._epochs.compact(await asyncio.to_thread(self.look), bill)

    async def aclose(self) -> None:
        """End what runs."""
        self.session.ledger.pauses.leave(self.session.id)
        await self._wait.aclose()
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        if self.session.is_unused:
            self.session.ledger.names.drop_unused(self.session.id)

    async def _come_back(self) -> None:
        self.session.ledger.pauses.end(self.session.id, self._clock.now())
        await self._wait.aclose()

    async def _finish_warming(self) -> None:
        """What is being written is what the turn reads: to send it a second time meanwhile would pay for it twice."""
        if self._warming is None:
            return
        if self._keeper.is_local:  # what it has evaluated stays, and the turn shows how the rest comes along
            self._warming.cancel()
        await asyncio.wait([self._warming])  # who stops the turn does not stop what is being written
        if not self._warming.cancelled():
            self._warming.result()  # raises what nobody expects

    async def _before_cold(self, p_return: float) -> None:
        now = await asyncio.to_thread(self.look)
        await self._epochs.compact_before_cold(now, self.idle_bill, p_return)


def after_turn(finished: events.TurnFinished | None) -> After:
    """What the person finds when they come back."""
    if finished is None or finished.end is not TurnEnd.DONE:
        return "failed"
    return "question" if finished.text.rstrip().endswith("?") else "answer"
