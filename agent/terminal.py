"""The person's side of `agent run`: which screen listens, who can be asked, how a download looks."""

import asyncio
import contextlib
import os
import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from agent import events
from agent.backend_choice import Downloads
from agent.clock import SystemClock
from agent.errors import UserError
from agent.gate import Answer, Asker
from agent.permissions import Ask
from agent.screens.diff import show_diff
from agent.screens.json_lines import JsonLines
from agent.screens.text import OneShotText
from agent.ways_on import ONE_SHOT
from backends.llama.fetch import FetchProgress


class Terminal:
    """Standard streams as they are. A person can be asked when input and error are a terminal and no JSON is wanted."""

    def __init__(self, *, json_lines: bool) -> None:
        self.clock = SystemClock()
        self._console = Console(stderr=True, highlight=False)
        out = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (None when the parent closed it; lives as long as we)
        self._screen = JsonLines(out) if json_lines else OneShotText(out, self._console)
        terminals = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
        interactive = not json_lines and terminals
        self.asker: Asker | None = self._ask if interactive else None
        self._download: Progress | None = None
        self._bar: TaskID | None = None
        self.downloads = Downloads(self._show_download, self._announce, self._agree if interactive else None)

    def listener(self, event: events.Event) -> None:
        """Show an event. Raises UserError when it cannot be shown."""
        try:
            self._screen(event)
        except BrokenPipeError as error:
            raise UserError(f"The output was closed by its reader. {ONE_SHOT.go_on}") from error
        except OSError as error:
            raise UserError(f"The output cannot be written ({error.strerror or error}). {ONE_SHOT.go_on}") from error

    def close(self) -> None:
        """Leave the terminal as it was found. Idempotent."""
        if self._download is not None:
            self._download.stop()
            self._download = None
        with contextlib.suppress(OSError):  # told already, where it happened
            self._screen.close()

    async def _ask(self, ask: Ask) -> Answer:
        if ask.diff is not None:
            self._screen.close()
            self._console.print(show_diff(ask.diff), soft_wrap=True)
        always = f", [a]lways ({ask.always})" if ask.always else ""
        answer = (await self._line(f"{ask.question}\n  [y]es{always}, or [n]o, and why: ")).strip()
        word, _, rest = answer.partition(" ")
        match word.lower():
            case "y" | "yes":
                return Answer(allowed=True)
            case "a" | "always" if ask.always:
                return Answer(allowed=True, always=True)
            case "n" | "no" | "":
                return Answer(allowed=False, reason=rest.strip() or None)
            case _:  # what is no answer is a reason: anything but a clear yes is a no
                return Answer(allowed=False, reason=answer)

    async def _agree(self, question: str) -> bool:
        return (await self._line(f"{question} [Y/n] ")).strip().lower() in ("", "y", "yes")

    async def _line(self, question: str) -> str:
        """A line from the person. Cancellable, unlike a thread that waits in input()."""
        self._screen.close()
        # What was typed before the question was seen is no answer to it. Not after it is shown: a Ctrl-C that the
        # system has taken from the keyboard and not yet looked at would be forgotten with the rest.
        discard_typed_ahead(sys.stdin.fileno())
        self._console.print(question, end="", markup=False, soft_wrap=True)
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        line = sys.stdin.readline()
        if not line:  # end of input is no consent
            self._console.print()
            return "n"
        return line

    def _announce(self, text: str) -> None:
        self._screen(events.Notice(text))

    def _show_download(self, progress: FetchProgress) -> None:
        if not self._console.is_terminal:
            return
        if self._download is None:
            self._download = Progress(
                *(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._download.start()
            self._bar = self._download.add_task("downloading", total=progress.total)
        if self._bar is not None:
            self._download.update(self._bar, completed=progress.done, total=progress.total)
            if progress.done >= progress.total:
                self._download.stop()
                self._download = None


def discard_typed_ahead(terminal: int) -> None:
    """Forget what was typed and not read yet."""
    try:
        import termios
    except ImportError:  # not a Unix system
        return
    with contextlib.suppress(termios.error):
        termios.tcflush(terminal, termios.TCIFLUSH)
