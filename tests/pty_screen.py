"""A program on a pseudo-terminal, and the screen as a person sees it (pexpect runs it, pyte draws it)."""

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

_READ_BYTES = 65_536
_SCROLLBACK_LINES = 10_000


class ScreenTimeoutError(AssertionError):
    """The screen did not become what was waited for; the message shows what it was."""


class Screen:
    """Runs `command` on a terminal of `rows` by `columns`. Close it, or use it as a context manager.

    The screen is read only while one of the `wait` methods runs. Each of them raises ScreenTimeoutError.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        rows: int = 24,
        columns: int = 80,
        timeout_s: float = 20.0,
    ) -> None:
        self.rows = rows
        self.columns = columns
        self.output = b""  # all that the program has written
        self._timeout_s = timeout_s
        self._screen = pyte.HistoryScreen(columns, rows, history=_SCROLLBACK_LINES, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self.child = pexpect.spawn(
            command[0],
            list(command[1:]),
            cwd=None if cwd is None else str(cwd),
            env={"TERM": "xterm-256color", **env},
            dimensions=(rows, columns),
            preexec_fn=_heed_interrupts,
        )
        self.child.delaybeforesend = None
        self._screen.write_process_input = self._answer  # where the program asks for the cursor, a terminal answers

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What the person does

    def send(self, keys: str | bytes) -> None:
        """Press keys, all at once; `\\r` is Enter."""
        data = keys.encode() if isinstance(keys, str) else keys
        while data:  # as much as the terminal takes; the program reads on meanwhile
            data = data[self.child.send(data[:1024]) :]

    def resize(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self._screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def hang_up(self) -> None:
        """Close the window: the terminal is gone."""
        self.child.ptyproc.fileobj.close()

    # What the person sees

    @property
    def display(self) -> list[str]:
        """The lines on the screen, without blanks at their ends."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def scrollback(self) -> list[str]:
        """The lines that have left the screen at the top."""
        columns = range(self.columns)
        return ["".join(line[column].data for column in columns).rstrip() for line in self._screen.history.top]

    @property
    def text(self) -> str:
        """Scrollback and screen, one line each."""
        return "\n".join([*self.scrollback, *self.display]).rstrip()

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column, from 0; a wide character counts two columns."""
        return self._screen.cursor.y, self._screen.cursor.x

    # Waiting

    def wait_for(self, wanted: str | re.Pattern[str], *, timeout_s: float | None = None) -> "Screen":
        """Until the screen shows `wanted`."""
        pattern = re.compile(re.escape(wanted)) if isinstance(wanted, str) else wanted
        return self.wait_until(
            lambda: pattern.search("\n".join(self.display)) is not None, f"{pattern.pattern!r}", timeout_s=timeout_s
        )

    def wait_gone(self, text: str, *, timeout_s: float | None = None) -> "Screen":
        """Until the screen does not show `text` any more."""
        return self.wait_until(
            lambda: text not in "\n".join(self.display), f"no {text!r} any more", timeout_s=timeout_s
        )

    def wait_until(self, holds: Callable[[], bool], what: str, *, timeout_s: float | None = None) -> "Screen":
        """Until `holds()`, which is asked after each piece of output."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                raise ScreenTimeoutError(f"After {limit_s} s there is not: {what}. The screen:\n{self._framed()}")
            if not self._read(left):
                if holds():
                    break
                raise ScreenTimeoutError(f"The program ended without: {what}. The screen:\n{self._framed()}")
        return self

    def run_for(self, seconds: float) -> None:
        """Read what comes in this time: an instant that no output tells."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._read(left):
            pass

    def wait_end(self, *, timeout_s: float | None = None) -> int:
        """Until the program has ended. Its exit code; minus the number of the signal that killed it."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while self._read(deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                raise ScreenTimeoutError(f"The program does not end. The screen:\n{self._framed()}")
        self.child.wait()
        return self.child.exitstatus if self.child.signalstatus is None else -self.child.signalstatus

    def close(self) -> None:
        """Kill the program if it still runs. Idempotent."""
        self.child.close(force=True)

    def _read(self, limit_s: float) -> bool:
        """Draw what comes within `limit_s`. False: the program has ended and all it wrote is drawn."""
        try:
            piece = self.child.read_nonblocking(_READ_BYTES, timeout=max(0.0, limit_s))
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.output += piece
        self._stream.feed(piece)
        return True

    def _answer(self, data: str) -> None:
        self.child.send(data)

    def _framed(self) -> str:
        lines = "\n".join(f"|{line}" for line in self.display)
        return f"{lines}\n(cursor at row {self.cursor[0]}, column {self.cursor[1]})"


def _heed_interrupts() -> None:
    """A test run in the background of a shell ignores Ctrl-C, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
