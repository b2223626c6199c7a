"""Runs `agent run` inside the test, on a clock that the emulator shares: an hour passes in no time."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from emulator import Call, Emulator, ManualClock, Recorded, Reply

from agent import events
from agent.backend_choice import Downloads
from agent.config import Folders, Settings
from agent.ledger import Ledger
from agent.ledger_rows import CallRow
from agent.oneshot import run_once
from agent.opening import Surroundings, Task

NO_DOWNLOADS = Downloads(lambda _: None, lambda _: None, None)


@dataclass
class DeskClock:
    """The shared clock, as the agent wants one; sleeping lets the time pass at once."""

    shared: ManualClock
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.shared.now()

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.shared.advance(seconds)
        await asyncio.sleep(0)


class Desk:
    """One person at one repository. Every `run` opens the ledger anew, as a new process does."""

    def __init__(self, repository: Path, environment: Mapping[str, str], server: Emulator, clock: ManualClock) -> None:
        self.repository = repository
        self.env = {**environment, **server.env}
        self.server = server
        self.clock = DeskClock(clock)
        # Keepalive's sleeps would let time pass under running tools; scripts say one word thousands of times.
        self.settings = Settings(mode="auto", keepalive="off", repetition_guard="off")
        self.folders = Folders.find(self.env)
        self.seen: list[events.Event] = []

    def run(
        self,
        command: str,
        *,
        expect: int = 0,
        again: bool = True,
        fork: bool = False,
        at_turn: int | None = None,
        files: tuple[str, ...] = (),
        **settings: object,
    ) -> None:
        task = Task(command, self.repository, again=again, fork=fork, at_turn=at_turn, files=files)
        around = Surroundings(self.env, self.clock, lambda: 0.0, self.seen.append, NO_DOWNLOADS, None)
        chosen = replace(self.settings, **settings)  # type: ignore[arg-type]
        code = asyncio.run(run_once(task, chosen, self.folders, around))
        ends = [event.message for event in self.seen if isinstance(event, events.TurnFinished)]
        assert code == expect, ends[-1] if ends else "no turn"

    def answer(self) -> str:
        """The last turn's last words."""
        return [event.text for event in self.seen if isinstance(event, events.TurnFinished)][-1]

    def results(self) -> list[str]:
        """What the tools have answered."""
        return [event.text for event in self.seen if isinstance(event, events.ToolFinished)]

    def pause(self, minutes: float) -> None:
        self.clock.shared.advance(minutes * 60)

    def calls(self) -> list[CallRow]:
        """All calls of all sessions, in the order in which they were made."""
        with Ledger.open(self.folders.ledger) as ledger:
            rows = [call for session in ledger.sessions() for call in ledger.calls(session.id)]
        return sorted(rows, key=lambda call: call.id)


def compact(script: Callable[[Recorded], Reply]) -> Callable[[Recorded], Reply]:
    """The same script by a model that writes its calls' arguments without spaces, which is how they are sent back."""

    def reply(request: Recorded) -> Reply:
        made = script(request)
        parts = (
            replace(part, arguments=json.dumps(part.arguments, separators=(",", ":"), ensure_ascii=False))
            if isinstance(part, Call)
            else part
            for part in made.parts
        )
        return replace(made, parts=tuple(parts))

    return reply
