"""Signals as cancellation: what a person or the system sends to stop the program cancels the work, once, cleanly."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_cancellable(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine; SIGINT, SIGTERM and SIGHUP cancel it.

    A second SIGINT raises KeyboardInterrupt where it stands.
    """

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for name in ("SIGTERM", "SIGHUP"):  # SIGINT is the Runner's own
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                loop.add_signal_handler(number, task.cancel)
        return await make()

    with asyncio.Runner() as runner:
        return runner.run(main())
