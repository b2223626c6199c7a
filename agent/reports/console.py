"""Where reports are printed: as wide as the terminal, or wide enough for every column in a pipe."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from context.names import show_name

_PIPE_WIDTH = 160


def report_console() -> Console:
    """A console on standard output."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: it was closed (`>&-`)
    return Console(highlight=False, width=None if is_terminal else _PIPE_WIDTH)


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line. Values may come from elsewhere: they steer neither terminal nor layout."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(show_name(value)))
    report_console().print(table)
