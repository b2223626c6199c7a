"""One turn of a chat in a process of its own, which then waits for its person until it is killed.

`reopen_child.py MODEL AT COMMAND [again]`, in the repository, with the test's environment. AT: seconds since the epoch
at which its clock starts. Prints the events as JSON lines, and at last `waiting`.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent import events
from agent.backend_choice import Downloads
from agent.config import Folders, Settings
from agent.opening import Surroundings, Task, open_conversation


class ClockFrom:
    """The machine's clock, set to another time."""

    def __init__(self, at: float) -> None:
        self._offset = at - time.time()

    def pass_by(self, seconds: float) -> None:
        self._offset += seconds

    def now(self) -> float:
        return time.time() + self._offset

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def tell(event: events.Event) -> None:
    print(json.dumps(events.to_json(event)), flush=True)


async def chat(model: str, at: float, command: str, *, again: bool) -> None:
    env = dict(os.environ)
    around = Surroundings(env, ClockFrom(at), lambda: 0.0, tell, Downloads(lambda _: None, lambda _: None, None), None)
    settings = Settings(model=model, mode="auto", cache_ttl="short")
    task = Task(command, Path.cwd(), again=again)
    async with open_conversation(task, settings, Folders.find(env), around) as conversation:
        await conversation.wait(await conversation.turn(command))
        print("waiting", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(chat(sys.argv[1], float(sys.argv[2]), sys.argv[3], again="again" in sys.argv[4:]))
