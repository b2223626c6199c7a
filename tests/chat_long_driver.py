"""A long chat without a terminal: `chat_long_driver.py TURNS`, in the repository, with the test's environment.

The chat's own controller is given messages and commands, one after another, each when it is idle again. Prints a JSON
line for each turn: `cpu` (seconds of this process), `rss` (bytes), `files` (open descriptors), `tasks`.
"""

import asyncio
import io
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.console import RenderableType

from agent import events
from agent.backend_choice import Downloads
from agent.chat.context import Opening
from agent.chat.controller import Chat
from agent.chat.front import Choice
from agent.clock import SystemClock
from agent.config import Folders, Settings
from agent.counting import Counter
from agent.gate import Answer
from agent.ledger import Ledger
from agent.opening import Surroundings, Task
from agent.permissions import Ask
from agent.turns import turns


class Desk:
    """A `Front` for a script: it knows when the chat is idle and which session is open."""

    width = 100

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.session = ""
        self.said: list[str] = []

    def write(self, what: RenderableType) -> None:
        self.said.append(str(what))

    def event(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened():
                self.session = event.session
            case events.TurnFinished(events.TurnEnd.DONE):
                pass
            case events.TurnFinished():
                raise AssertionError(event)

    async def show(self, report: Callable[[], None]) -> None:
        report()

    async def ask(self, question: Ask) -> Answer:
        raise AssertionError(question)

    async def agree(self, question: str) -> bool:
        return True

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        raise AssertionError(title)

    def say_command(self, text: str) -> None:
        pass

    def working(self, what: str | None) -> None:
        if what is None:
            self.idle.set()

    def waiting(self, messages: Sequence[str]) -> None:
        pass

    def edit(self, text: str) -> bool:
        return True

    def thinking(self) -> str:
        return ""

    def mode_changed(self, mode: str) -> None:
        pass


def between(number: int, desk: Desk, folders: Folders, first: str) -> list[str]:
    """Commands after the turn `number`, and what follows them."""
    given = []
    if number % 7 == 0:
        given += ["/undo", "/redo"]
    if number % 11 == 0:
        given += ["!echo by hand", "/cost", "/cache explain"]
    if number % 13 == 0:
        given += ["/mode plan", "/mode auto", "/diff"]
    if number % 20 == 0:
        given += ["/fork"]
    if number % 30 == 0:
        with Ledger.open(folders.ledger) as ledger:
            given += [f"/rewind {turns(ledger, desk.session)[-2].number} both"]
    if number % 50 == 0:
        given += ["/compact"]
    if number % 70 == 0:
        given += ["/refresh"]
    if number % 90 == 0:
        given += [f"/resume {first}", f"turn {number}: once more in the first session", f"/resume {desk.session}"]
    return given


def measured(cpu: float) -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "cpu": cpu,
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
    }


async def count_here(_: Counter) -> None:
    """Tokens are counted here, so that what it takes is measured too."""


async def main(count: int) -> None:
    Counter.start = count_here  # type: ignore[method-assign]
    env, here, desk = dict(os.environ), Path.cwd(), Desk()
    folders, nothing = Folders.find(env), Downloads(lambda _: None, lambda _: None, None)
    around = Surroundings(env, SystemClock(), random.Random(1).random, desk.event, nothing, desk.ask)
    opening = Opening(Task("", here), Settings(mode="auto", sandbox="off"))
    chat = Chat(desk, opening, folders, around)
    running = asyncio.create_task(chat.run())

    async def give(text: str) -> None:
        desk.idle.clear()
        chat.submit(text)
        done = asyncio.create_task(desk.idle.wait())
        await asyncio.wait([done, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            raise AssertionError("the chat has ended")

    await desk.idle.wait()
    first = desk.session
    report, sys.stdout = sys.stdout, io.StringIO()  # what /cost and the like print is not asked for
    for number in range(1, count + 1):
        begun = time.process_time()
        await give(f"turn {number}: look, and write down what you see")
        report.write(json.dumps(measured(time.process_time() - begun)) + "\n")
        for text in between(number, desk, folders, first):
            await give(text)
    chat.leave()
    assert await running == 0
    assert not [line for line in desk.said if "no undo for this turn" in line], desk.said


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
