"""A command and all that it starts: run with a time limit, listened to, and ended as one group."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GRACE_S: Final = 2.0  # between the request to end and the kill
DRAIN_S: Final = 0.25  # for output that is still in the pipe when the command has ended
_CHUNK: Final = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """`code` is the exit status, negative for a signal. `open_pipe`: something in the background may write on."""

    code: int
    timed_out: bool
    open_pipe: bool


async def run_group(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    time_limit: float,
    on_output: Callable[[bytes], None],
    grace: float = GRACE_S,
    drain: float = DRAIN_S,
) -> Ended:
    """Run `argv` in a session of its own, without input; stdout and stderr go to `on_output` as they come.

    Returns when the command itself has ended (what it left in the background lives on), or after `time_limit` seconds,
    or on cancellation; in the last two cases its whole process group is asked to end (SIGTERM) and killed after
    `grace` seconds. Raises OSError when the command cannot be started.
    """
    reader = asyncio.StreamReader(limit=_CHUNK)
    read_end, write_end = os.pipe()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        # A pipe of our own: with asyncio's, the end of the command is not seen while a child holds the pipe open.
        try:
            process = await _started(
                asyncio.create_subprocess_exec(
                    *argv,
                    cwd=cwd,
                    env=env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    start_new_session=True,
                )
            )
        finally:
            os.close(write_end)
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(_listen(reader, on_output))
            timed_out = await _wait(process, listening, time_limit, grace)
            await asyncio.wait({listening}, timeout=drain)
            open_pipe = not listening.done()
            listening.cancel()
        return Ended(process.returncode or 0, timed_out, open_pipe)
    finally:
        transport.close()


async def _started(start: Coroutine[Any, Any, asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """The process. It runs before asyncio tells of it: who is cancelled meanwhile ends what it has begun as well, where
    asyncio would end the process alone.
    """
    starting = asyncio.ensure_future(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        _signal_group(process, signal.SIGKILL)
        await process.wait()
        raise


async def _listen(reader: asyncio.StreamReader, on_output: Callable[[bytes], None]) -> None:
    while data := await reader.read(_CHUNK):
        on_output(data)


async def _wait(
    process: asyncio.subprocess.Process, listening: "asyncio.Task[None]", time_limit: float, grace: float
) -> bool:
    """Wait for the end of the process. Returns whether the time was up."""
    try:
        async with asyncio.timeout(time_limit):
            await process.wait()
        return False
    except TimeoutError:
        await _end_group(process, listening, grace)
        return True
    except BaseException:  # cancelled, or `on_output` failed: in any case nothing may go on running
        await _end_group(process, listening, grace)
        raise


async def _end_group(process: asyncio.subprocess.Process, listening: "asyncio.Task[None]", grace: float) -> None:
    """Ask the group to end, and kill what is left of it once the command has ended and closed its output, or after
    `grace` seconds.
    """
    _signal_group(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(grace):
            await process.wait()
            await asyncio.wait({listening})
    except TimeoutError:
        pass
    finally:
        _signal_group(process, signal.SIGKILL)
        await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all ended, or (macOS) only zombies are left
        os.killpg(process.pid, number)
