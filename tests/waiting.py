"""Runs that wait, with the clock in the test's hands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator import Emulator, ManualClock

from agent import events
from agent.backend_choice import Downloads
from agent.config import Folders, Settings
from agent.conversation import Conversation
from agent.gate import Asker
from agent.ledger import Ledger
from agent.ledger_rows import CallRow
from agent.oneshot import run_once
from agent.opening import Surroundings, Task, open_conversation
from agent.ping_record import Ping

MODELS = {"anthropic": "anthropic/claude-sonnet-5-5", "responses": "openai/gpt-6.2-sol"}
LEASE_S = {"anthropic": 300, "responses": 1800}


@dataclass
class SteppedClock:
    """Time passes only by `advance`, which wakes sleepers one after another, each at its own second."""

    shared: ManualClock
    sleepers: list[tuple[float, asyncio.Event]] = field(default_factory=list)
    asleep: asyncio.Event = field(default_factory=asyncio.Event)  # someone has gone to sleep

    def now(self) -> float:
        return self.shared.now()

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        woken = asyncio.Event()
        entry = (self.now() + seconds, woken)
        self.sleepers.append(entry)
        self.asleep.set()
        try:
            await woken.wait()
        finally:
            if entry in self.sleepers:
                self.sleepers.remove(entry)

    async def advance(self, seconds: float, settled: "Any") -> None:
        """Let `seconds` pass. After each sleeper that wakes, wait until `settled()` holds again."""
        end = self.now() + seconds
        while due := sorted((entry for entry in self.sleepers if entry[0] <= end), key=lambda entry: entry[0]):
            at, woken = due[0]
            self.shared.advance(max(0.0, at - self.now()))
            self.sleepers.remove(due[0])
            self.asleep.clear()
            woken.set()
            await settled()
        self.shared.advance(max(0.0, end - self.now()))

    def jump(self, seconds: float) -> None:
        """The machine was suspended: the clock is late before anyone wakes."""
        self.shared.advance(seconds)


class Waiting:
    """A run in the middle of a wait, with the clock in the test's hands."""

    def __init__(self, repository: Path, environment: dict[str, str], server: Emulator, model: str) -> None:
        assert isinstance(server.clock, ManualClock)
        self.repository, self.server = repository, server
        self.clock = SteppedClock(server.clock)
        self.env = {**environment, **server.env}
        self.folders = Folders.find(self.env)
        self.settings = Settings(
            model=model, mode="auto", repetition_guard="off"
        )  # scripts say one word again and again
        self.seen: list[events.Event] = []
        self.arrived = asyncio.Event()
        self.stopped = asyncio.Event()  # the keeper has let the lease go, or a wait is over

    def note(self, event: events.Event) -> None:
        self.seen.append(event)
        self.arrived.set()
        if isinstance(event, events.KeepaliveStopped | events.CallStarted):
            self.stopped.set()

    async def until(self, kind: type[events.Event], count: int = 1) -> None:
        async with asyncio.timeout(60):
            while sum(isinstance(event, kind) for event in self.seen) < count:
                self.arrived.clear()
                await self.arrived.wait()
        await self.idle()

    async def idle(self) -> None:
        """Whoever can go on without time passing has done so."""
        for _ in range(20):
            await asyncio.sleep(0)

    def start(self, command: str, *, again: bool = False) -> "asyncio.Task[int]":
        task = Task(command, self.repository, again=again)
        nothing = Downloads(lambda _: None, lambda _: None, None)
        around = Surroundings(self.env, self.clock, lambda: 0.0, self.note, nothing, None)
        return asyncio.create_task(run_once(task, self.settings, self.folders, around))

    async def pinged(self) -> None:
        """Whoever woke up sleeps again, has stopped pinging, or has nothing more to wait for."""
        self.stopped.clear()
        waits = [asyncio.create_task(event.wait()) for event in (self.clock.asleep, self.stopped)]
        await asyncio.wait(waits, timeout=2, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await self.idle()

    def renewals(self) -> list[events.CacheRenewed]:
        return [event for event in self.seen if isinstance(event, events.CacheRenewed)]

    def pings(self) -> list[Ping]:
        with Ledger.open(self.folders.ledger) as ledger:
            return [ping for session in ledger.sessions() for ping in ledger.pings.of(session.id)]

    def calls(self) -> list[CallRow]:
        with Ledger.open(self.folders.ledger) as ledger:
            return [call for session in ledger.sessions() for call in ledger.calls(session.id)]


@asynccontextmanager
async def opened(waiting: Waiting, asker: Asker | None = None, **task: bool) -> AsyncIterator[Conversation]:
    nothing = Downloads(lambda _: None, lambda _: None, None)
    around = Surroundings(waiting.env, waiting.clock, lambda: 0.0, waiting.note, nothing, asker)
    todo = Task("chat", waiting.repository, **task)
    async with open_conversation(todo, waiting.settings, waiting.folders, around) as conversation:
        yield conversation
