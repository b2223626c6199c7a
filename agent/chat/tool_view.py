"""How a tool call looks: one line while it runs, with the end of its output below; one line and a summary after."""

from dataclasses import dataclass, field
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from agent import events
from agent.screens.diff import edit_diff, show_diff
from agent.screens.plain import plain
from agent.tools.terminal import LineFolder

_LONGEST: Final = 3  # lines that the summary of a call may take
_KEPT: Final = 200  # last lines of live output
_SHOWN: Final = 6  # lines of output that stay on the screen
_TALKATIVE: Final = "shell"  # the tool whose output a person wants to see


@dataclass(slots=True)
class RunningTool:
    """`diff_seen`: the question of this call has shown what it changes."""

    name: str
    arguments: str
    summary: str
    diff_seen: bool = False
    _folder: LineFolder = field(default_factory=LineFolder)
    _open: str = ""
    _lines: list[str] = field(default_factory=list)

    def take(self, text: str) -> None:
        """Live output."""
        *lines, self._open = (self._open + self._folder.feed(text)).split("\n")
        self._lines = [*self._lines, *lines][-_KEPT:]

    def live(self, height: int) -> list[Text]:
        """What is shown while it runs."""
        last = self._lines[-(height - 1) :] if height > 1 else []
        return [_one_line(f"› {self.summary}"), *(_one_line(f"  │ {line}", "dim") for line in last)]


def finished(tool: RunningTool, event: events.ToolFinished) -> RenderableType:
    """What stays on the screen."""
    shown: list[RenderableType] = [ToolLine(tool.summary, event.summary, "red" if event.is_error else "dim")]
    if tool.name == "edit" and not event.is_error and not tool.diff_seen:
        diff = edit_diff(tool.arguments)
        if diff is not None:
            shown.append(_Indented(show_diff(diff)))
    elif tool.name == _TALKATIVE:
        shown += _folded(event)
    return Group(*shown)


def stopped(tool: RunningTool) -> RenderableType:
    """A call that did not come to its end."""
    return ToolLine(tool.summary, "interrupted", "yellow")


class ToolLine:
    """A call and its result, in one line where both fit."""

    def __init__(self, call: str, result: str, style: str) -> None:
        self._call = " ".join(plain(call).split())
        self._result = " ".join(plain(result).split())
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        call = Text.assemble(("› ", "bold"), _cut(self._call, width * _LONGEST - 4), overflow="fold")
        if call.cell_len + cell_len(self._result) + 2 <= width:
            yield Text.assemble(call, "  ", (self._result, self._style))
        else:
            yield call
            yield _Indented(Text(_cut(self._result, width * _LONGEST - 8), style=self._style, overflow="fold"))


class _Indented:
    def __init__(self, inner: Text) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._inner.rstrip()
        for line in self._inner.wrap(console, max(1, options.max_width - 2), tab_size=4):
            line.rstrip()
            yield Text.assemble("  ", line)


def _folded(event: events.ToolFinished) -> list[RenderableType]:
    """The last lines of the output, and where all of it is."""
    lines = plain(event.text).expandtabs(4).strip("\n").split("\n")
    if not any(line.strip() for line in lines):
        return []
    hidden = max(0, len(lines) - _SHOWN)
    shown: list[RenderableType] = []
    if event.full is not None:
        shown.append(Text(f"  │ … all of it is in {plain(event.full)}", style="dim", overflow="fold"))
    elif hidden:
        shown.append(_one_line(f"  │ … {hidden:,} line{'s' if hidden != 1 else ''} before", "dim"))
    return shown + [_one_line(f"  │ {line}", "dim") for line in lines[hidden:]]


def _one_line(text: str, style: str = "") -> Text:
    return Text(plain(text).expandtabs(4), style=style, no_wrap=True, overflow="ellipsis")


def _cut(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else f"{set_cell_size(text, max(0, cells - 1)).rstrip()}…"
