"""Kills the program at random instants: `kill_driver.py COUNT SEED`, in the repository, with the test's environment.

Each run is a fork of this process, which has imported everything, so that the kills fall into the work and not into a
second of imports. The first run is let go to its end and measured; each of the following ones goes on with its session
and is killed with SIGKILL at a random instant of the shortest run so far that came to its end. A run that ends before
its kill is such a run, so the span follows the machine, whatever else it has to do. It goes on until COUNT kills have
fallen into running programs, for at most 4 × COUNT attempts; a last run goes to its end. Prints how many kills fell
into running programs, and the exit code of the last run.
"""

import asyncio
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import anthropic  # noqa: F401 (imported here once, instead of in each fork)

from agent.backend_choice import Downloads
from agent.clock import SystemClock
from agent.config import Folders, Settings
from agent.counting import Counter
from agent.oneshot import run_once
from agent.opening import Surroundings, Task
from context.tokens import count_tokens

_MOST_ATTEMPTS = 4  # for each kill that is asked for


async def count_here(_: Counter) -> None:
    """Tokens are counted in the fork, with the tables built below, and not in a child that builds them anew."""


def start(command: str, *, again: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        env = dict(os.environ)
        around = Surroundings(
            env, SystemClock(), random.random, lambda _: None, Downloads(lambda _: None, lambda _: None, None), None
        )
        code = asyncio.run(run_once(Task(command, Path.cwd(), again), Settings(mode="auto"), Folders.find(env), around))
    except BaseException as error:  # noqa: BLE001 (a fork must never return into the parent's code)
        sys.stderr.write(f"{error!r}\n")
        os._exit(70)
    os._exit(code)


def finish(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ended_within(pid: int, seconds: float) -> bool:
    """Wait for the end of a child, but no longer. The child stays to be waited for."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def main() -> None:
    Counter.start = count_here  # type: ignore[method-assign]
    count_tokens("")
    count, chance = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    started = time.monotonic()
    if (code := finish(start("command 0", again=False))) != 0:
        sys.exit(f"the first run failed with {code}")
    shortest = time.monotonic() - started
    killed = 0
    for number in range(1, _MOST_ATTEMPTS * count + 1):
        if killed == count:
            break
        started = time.monotonic()
        pid = start(f"command {number}", again=True)
        if ended_within(pid, chance.uniform(0, shortest)):  # the random instant itself
            shortest = min(shortest, time.monotonic() - started)
        else:
            os.kill(pid, signal.SIGKILL)
        code = finish(pid)
        killed += code == -signal.SIGKILL
        if code not in (0, -signal.SIGKILL):
            sys.exit(f"run {number} failed with {code}")
    print(killed, finish(start("the last command", again=True)))


if __name__ == "__main__":
    main()
