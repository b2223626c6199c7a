"""Where reports are printed: as wide as the terminal, or wide enough for every column in a pipe."""

import sys

from rich.console import Console

_PIPE_WIDTH = 160


def report_console() -> Console:
    """A console on standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
