"""Kills the chat at random instants: `chat_kill_driver.py COUNT SEED`, in the repository, with the test's environment.

Each run is a fork of this process on a pseudo-terminal of its own, which has imported everything, so that the kills
fall into the work. In the first run a command is typed and answered, and the time measured; each following one goes on
with its session (`agent -c`), is given a command at once, and is killed with SIGKILL at a random instant of that time.
It goes on until COUNT kills have fallen into running programs. A last run is answered. Prints how many kills fell.
"""

import asyncio
import os
import pty
import random
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import anthropic  # noqa: F401 (imported here once, instead of in each fork)

import agent.chat.controller
import agent.chat.transcript  # noqa: F401
from agent.chat.context import Opening
from agent.chat.start import run_chat
from agent.config import Folders, Settings
from agent.counting import Counter
from agent.opening import Task
from context.tokens import count_tokens

ANSWERED = b" out \xc2\xb7"  # of the bill under a turn
_LIMIT_S = 60.0


async def count_here(_: Counter) -> None:
    """Tokens are counted in the fork, with the tables built below, and not in a child that builds them anew."""


def start(*, again: bool) -> tuple[int, int]:
    """A chat on a terminal of its own, which was given a command. Its process, and our end of the terminal."""
    pid, terminal = pty.fork()
    if pid:
        read_for(terminal, _LIMIT_S, b">")  # before that the terminal makes another key of Enter
        os.write(terminal, b"go on\r")
        return pid, terminal
    try:
        env, here = dict(os.environ), Path.cwd()
        opening = Opening(Task("", here, again=again), Settings(mode="auto", sandbox="off", compact="off"))
        code = asyncio.run(run_chat(lambda: opening, here, Folders.find(env), env))
    except BaseException as error:  # noqa: BLE001 (a fork must never return into the parent's code)
        sys.stderr.write(f"{error!r}\n")
        os._exit(70)
    os._exit(code)


def read_for(terminal: int, seconds: float, wanted: bytes | None = None) -> bytes:
    """What comes in this time, or until `wanted` has come, or the program has ended."""
    deadline, seen = time.monotonic() + seconds, b""
    while (left := deadline - time.monotonic()) > 0 and (wanted is None or wanted not in seen):
        if not select.select([terminal], [], [], left)[0]:
            break
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        if b"\x1b[6n" in piece:  # where is the cursor?
            os.write(terminal, b"\x1b[1;1R")
        seen += piece
    return seen


def answered(*, again: bool) -> float:
    """Give a command and wait for its answer; how many seconds that took."""
    begun = time.monotonic()
    pid, terminal = start(again=again)
    seen = read_for(terminal, _LIMIT_S, ANSWERED)
    if ANSWERED not in seen:
        sys.stderr.write(seen.decode(errors="replace"))
        raise SystemExit("The chat did not answer.")
    took = time.monotonic() - begun
    os.write(terminal, b"\x04")
    read_for(terminal, _LIMIT_S)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    if code:
        raise SystemExit(f"The chat ended with {code}.")
    return took


def killed(seconds: float) -> bool:
    """Give a command and kill the program after a while. Whether it still ran."""
    pid, terminal = start(again=True)
    read_for(terminal, seconds)
    running = os.waitpid(pid, os.WNOHANG) == (0, 0)
    if running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(terminal)
    return running


def main(count: int, seed: int) -> None:
    Counter.start = count_here  # type: ignore[method-assign]
    count_tokens("ready")
    chance, fell = random.Random(seed), 0
    span = answered(again=False)
    while fell < count:
        fell += killed(chance.uniform(0, span))
    answered(again=True)
    print(fell)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
