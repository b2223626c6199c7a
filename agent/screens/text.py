"""One-shot text: what happens goes to standard error, the answer to standard output.

On a terminal the answer streams as it comes. Into a pipe or a file goes the last reply alone, so that it can be used
by a program.
"""

from datetime import datetime
from typing import Final, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.text import Text

from agent import events
from agent.events import TurnEnd
from agent.reports.totals import Totals, money, percent, tokens
from agent.screens.shown import Shown
from backends.llama.models import is_local
from context.explain import sentence
from context.forecast import Cause

_PROGRESS_FROM: Final = 256  # tokens of prefill; below it the bar would only flicker
_OUTPUT_LINES: Final = 12  # of a command that are shown while it runs
_WORTH_TELLING: Final = 1000  # tokens of a miss
# A reply may quote what it read in a file; it must not command the terminal.
NO_CONTROL: Final = {code: None for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}


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
        self._totals = Totals()
        self._local = False

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.PrefillProgress | events.ToolWriting):
            self._end_progress()
        match event:
            case events.SessionOpened(session, model, mode, directory, resumed, warm, until):
                self._local = is_local(model)
                again = "continues" if resumed else "session"
                kept = f" · {warm:,} tokens warm{_until(until)}" if warm else ""
                self._say(f"[dim]{escape(model)} · mode {mode} · {again} {session}{kept} · {escape(directory)}[/dim]")
            case events.PrefillProgress():
                self._show_prefill(event)
            case events.ToolWriting(_, name, characters):
                self._show_status(f"[dim]writing a call of {escape(name)}, {characters:,} characters[/dim]")
            case events.TextDelta(_, text):
                self._stream(text)
            case events.ReplyRestarted(_, reason, wait_s):
                self._shown = self._shown.again()
                self._say(f"[yellow]{escape(reason)}[/yellow] [dim]Trying again in {wait_s:.0f} s.[/dim]")
            case events.CacheOptionRefused(_, endpoint, option):
                self._say(
                    f"[yellow]{escape(endpoint)} refuses the cache option {option}: it is left out from now on.[/]"
                )
            case events.CacheRenewed("tool" | "rate_limit", "done", read, cost, until) if read and until:
                self._say(f"[dim]cache kept warm{_until(until)}: {read:,} tokens read, {money(cost)}[/dim]")
            case events.CacheRenewed("prewarm", "done", _, cost, _):
                self._say(f"[dim]cache written ahead of the first turn, {money(cost)}[/dim]")
            case events.KeepaliveStopped("tool" | "rate_limit" | "question", why, tokens_lost, _) if why != "off":
                self._say(f"[dim]cache no longer kept warm ({escape(why)}): {tokens_lost:,} tokens[/dim]")
            case events.EpochStarted(number, reason, before, after, as_is, anew) if reason != "compacted":
                less = "" if as_is is None or anew is None else f", {money(as_is - anew)} less for what is to come"
                self._say(f"[dim]epoch {number} ({escape(reason)}): {before:,} tokens became {after:,}{less}[/dim]")
            case events.CompactionStarted(before):
                self._say(f"[dim]asking for a summary of {before:,} tokens …[/dim]")
            case events.CompactionFinished("done", _, before, after, cost):
                self._say(f"[dim]compacted: {before:,} tokens became {after or 0:,}, {money(cost)}[/dim]")
            case events.CompactionFinished(_, detail, _, _, cost):
                self._say(f"[yellow]Not compacted: {escape(detail or '')}. Nothing was changed.[/yellow]")
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
                self._tell_miss(event)
            case events.Notice(text):
                self._say(f"[yellow]{escape(text)}[/yellow]")
            case events.TurnFinished():
                self._finish(event)

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self._end_progress()
        self._end_line()

    def _finish(self, event: events.TurnFinished) -> None:
        self._end_line()
        if not self._streams and event.text:
            self._out.write(event.text.rstrip("\n") + "\n")
            self._out.flush()
        if event.message:
            colour = "yellow" if event.end is TurnEnd.LIMIT else "red"
            self._say(f"[{colour}]{escape(event.message)}[/{colour}]")
        if not event.calls:  # stopped before the first reply: there is no bill to show
            return
        calls = f"{event.calls} call{'s' if event.calls != 1 else ''}"
        totals = self._totals
        cost = "local" if self._local else money(event.cost_usd)
        self._say(
            f"[dim]{calls} · {tokens(totals.input_total)} tokens in, {percent(totals.hit_rate)} from cache · "
            f"{tokens(totals.output)} out · {cost} · agent cost {event.session}[/dim]"
        )

    def _tell_miss(self, event: events.CallFinished) -> None:
        verdict = event.verdict
        if verdict is None or verdict.cause in (Cause.NONE, Cause.FIRST, Cause.NOT_REPORTED):
            return
        if verdict.cause in (Cause.TTL_SHORTENED, Cause.IMPLAUSIBLE) or (verdict.missed or 0) >= _WORTH_TELLING:
            missed = f"{verdict.missed:,} tokens not read: " if verdict.missed else ""
            self._say(
                f"[yellow]cache: {missed}{escape(sentence(verdict.cause))}[/yellow] [dim]agent cache explain[/dim]"
            )

    def _stream(self, text: str) -> None:
        if not self._streams:
            return
        self._shown, text, differs = self._shown.plus(text)
        if differs:
            self._say("[dim]The reply begins anew.[/dim]")
        if text:
            self._out.write(text.translate(NO_CONTROL))
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


def _until(seconds: float | None) -> str:
    return "" if seconds is None else f" until {datetime.fromtimestamp(seconds).astimezone():%H:%M:%S}"
