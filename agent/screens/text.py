"""One-shot text: what happens goes to standard error, the answer to standard output.

On a terminal the answer streams as it comes. Into a pipe or a file goes the last reply alone, so that it can be used
by a program.
"""

from typing import Final, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.text import Text

from agent import events
from agent.reports.totals import Totals, money
from agent.screens.plain import plain
from agent.screens.restarts import Restarts
from agent.screens.sentences import BEGINS_ANEW, bill, told, writing
from agent.screens.shown import Shown
from backends.llama.models import is_local

_PROGRESS_FROM: Final = 256  # tokens of prefill; below it the bar would only flicker
_OUTPUT_LINES: Final = 12  # of a command that are shown while it runs


class OneShotText:
    """Call with each event; `close` when the turn is over, however it ended."""

    def __init__(self, out: TextIO, console: Console) -> None:
        self._out = out
        self._console = console  # on standard error
        self._streams = out.isatty()
        self._line_open = False
        self._progress: Progress | None = None
        self._prefill: TaskID | None = None
        self._status: Status | None = None
        self._output, self._output_lines = "", 0  # of the running command: an open line, and the lines shown
        self._shown = Shown()
        self._restarts = Restarts()
        self._totals = Totals()
        self._local = False

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.PrefillProgress | events.ToolWriting):
            self._end_progress()
        if isinstance(event, events.CallFinished | events.CompactionFinished):
            self._restarts.over()
        match event:
            case events.SessionOpened():
                self._local = is_local(event.model)
                self._tell(event)
            case events.PrefillProgress():
                self._show_prefill(event)
            case events.ToolWriting():
                self._show_status(f"[dim]{escape(writing(event))}[/dim]")
            case events.TextDelta(_, text):
                self._stream(text)
            case events.ReplyRestarted():
                self._shown = self._shown.again()
                self._say(self._restarts.told(event))
            case events.ToolStarted(_, _, _, summary):
                self._say(f"[bold]›[/bold] {escape(summary)}")
            case events.ToolOutputChunk(_, text):
                self._show_output(text)
            case events.ToolFinished(_, _, _, summary, is_error):
                self._show_output("\n" if self._output else "")
                self._output_lines, self._output = 0, ""
                self._say(f"  [{'red' if is_error else 'dim'}]{escape(summary)}[/]")
            case events.CallFinished():
                self._shown = Shown()
                self._totals = self._totals.plus(event.usage, event.cost_usd)
                self._end_line()
                self._tell(event)
            case events.TurnFinished():
                self._finish(event)
            case _:
                self._tell(event)

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self._end_progress()
        self._end_line()

    def _finish(self, event: events.TurnFinished) -> None:
        self._end_line()
        if not self._streams and event.text:
            self._out.write(event.text.rstrip("\n") + "\n")
            self._out.flush()
        self._tell(event)
        if not event.calls:  # stopped before the first reply: there is no bill to show
            return
        cost = "local" if self._local else money(event.cost_usd)
        self._say(f"[dim]{bill(event.calls, self._totals, cost)} · agent cost {event.session}[/dim]")

    def _tell(self, event: events.Event) -> None:
        line = told(event)
        if line is not None:
            self._say(line)

    def _stream(self, text: str) -> None:
        if not self._streams:
            return
        self._shown, text, differs = self._shown.plus(text)
        if differs:
            self._say(BEGINS_ANEW)
        if text:
            self._out.write(plain(text))
            self._out.flush()
            self._line_open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._line_open:
            self._out.write("\n")
            self._out.flush()
            self._line_open = False

    def _say(self, markup: str) -> None:
        self._end_line()
        self._console.print(Text.from_markup(markup), soft_wrap=True)

    def _show_prefill(self, event: events.PrefillProgress) -> None:
        if event.total - event.reused < _PROGRESS_FROM or not self._console.is_terminal:
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("[dim]reading the prompt[/dim]"),
                BarColumn(bar_width=24),
                TextColumn("[dim]{task.completed:.0f}/{task.total:.0f} tokens[/dim]"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
            self._prefill = self._progress.add_task("", total=event.total - event.reused)
        if self._prefill is not None:
            self._progress.update(self._prefill, completed=event.done - event.reused)

    def _show_output(self, text: str) -> None:
        """The first lines of what a command prints, as it prints them; only where a person watches."""
        if not self._console.is_terminal:
            return
        *lines, self._output = (self._output + text).split("\n")
        for line in lines:
            self._output_lines += 1
            if self._output_lines <= _OUTPUT_LINES:
                self._console.print(Text(f"  │ {line}", style="dim"), no_wrap=True, overflow="ellipsis")
            elif self._output_lines == _OUTPUT_LINES + 1:
                self._console.print("  │ …", style="dim")

    def _show_status(self, markup: str) -> None:
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._end_progress()
            self._end_line()
            self._status = self._console.status(markup)
            self._status.start()
        self._status.update(markup)

    def _end_progress(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._prefill = None
