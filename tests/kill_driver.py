"""Kills the program at random instants: `kill_driver.py COUNT SEED`, in the repository, with the test's environment.

Each run is a fork of this process, which has imported everything, so that the kills fall into the work and not into a
second of imports. The first run is let go to its end and measured; each of the COUNT following ones goes on with its
session and is killed with SIGKILL at a random instant of that time; the last goes to its end. Prints the exit code of
the last run.
"""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import anthropic  # noqa: F401 (imported here once, instead of in each fork)

from agent.backend_choice import Downloads
from agent.clock import SystemClock
from agent.config import Folders, Settings
from agent.oneshot import Surroundings, Task, run_once


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


def main() -> None:
    count, chance = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    started = time.monotonic()
    if (code := finish(start("command 0", again=False))) != 0:
        sys.exit(f"the first run failed with {code}")
    whole = time.monotonic() - started
    killed = 0
    for number in range(1, count + 1):
        pid = start(f"command {number}", again=True)
        time.sleep(chance.uniform(0, whole))  # the random instant itself
        os.kill(pid, signal.SIGKILL)
        killed += finish(pid) == -signal.SIGKILL
    print(killed, finish(start("the last command", again=True)))


if __name__ == "__main__":
    main()
