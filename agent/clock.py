"""Time, as an argument: everything that waits or measures takes a Clock, so that tests decide what time it is."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC; jumps when the machine's clock is set or it wakes up."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; never jumps. For durations."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
