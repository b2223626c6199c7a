"""Makes a program stop itself in the middle of writing a KV state, so that a test can kill it right there.

A test puts this file on PYTHONPATH under the name `sitecustomize.py`, which Python runs at every start, and says in
KEEPWARM_TEST_STOP which state it is: 1 is the first. The program is stopped (SIGSTOP) when half of the state is in the
file; whoever has started it waits for that. For another build of llama.cpp, KEEPWARM_TEST_PROCESSOR is the name that
this machine's processor then has: it is a part of the key that states are kept under.
"""

import io
import os
import platform
import signal
import threading
from typing import Any

_LARGE = 20_000  # bytes: a state, and nothing else that is written

_open = os.fdopen
_left = int(os.environ.get("KEEPWARM_TEST_STOP", "0"))


class _Stopping(io.BufferedWriter):
    def write(self, data: Any) -> int:
        global _left
        if len(data) < _LARGE:
            return super().write(data)
        _left -= 1
        if _left:
            return super().write(data)
        super().write(data[: len(data) // 2])
        self.flush()
        os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait()  # this thread may run on for an instant: the signal is for all of them
        raise AssertionError("it was not killed")


def _fdopen(descriptor: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
    if mode == "wb" and os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].startswith("tmp-"):
        return _Stopping(io.FileIO(descriptor, "wb"))
    return _open(descriptor, mode, *arguments, **options)


if _left:
    os.fdopen = _fdopen
if processor := os.environ.get("KEEPWARM_TEST_PROCESSOR"):
    platform.processor = lambda: processor
