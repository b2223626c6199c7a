"""What happens in a turn, on the screen: what is finished is printed once; what still changes is the live region."""

from collections.abc import Callable

from rich.console import RenderableType
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.text import Text

from agent import events
from agent.screens.text import NO_CONTROL

_OUTPUT_LINES = 6


def diff_view(diff: str, width: int, limit: int) -> RenderableType:
    """A unified diff in colours, at most `limit` lines of it."""
    lines = diff.translate(NO_CONTROL).splitlines()
    shown = "\n".join(lines[:limit])
    if len(lines) > limit:
        shown += f"\n… {len(lines) - limit:,} more lines"
    return Syntax(shown, "diff", background_color="default", word_wrap=True)


class Transcript:
    """Call with each event. `write` prints for good; `changed` says that the live region is another."""

    def __init__(self, write: Callable[[RenderableType], None], *, changed: Callable[[], None]) -> None:
        self._write = write
        self._changed = changed
        self._reply = ""
        self._thought = ""
        self._activity = ""
        self._output: list[str] = []
        self._totals = ""

    def write_command(self, text: str) -> None:
        self._write(Text(f"> {text.translate(NO_CONTROL)}", style="bold"))

    def thinking(self) -> str:
        return self._thought

    def live(self, width: int, height: int) -> str:
        lines = self._reply.translate(NO_CONTROL).splitlines() or self._output[-_OUTPUT_LINES:]
        if self._activity and not lines:
            lines = [self._activity]
        return "\n".join(line[: width - 1] for line in lines[-height:])

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.CallStarted():
                self._thought, self._activity = "", "waiting for the model"
            case events.PrefillProgress(_, done, total, _):
                self._activity = f"reading the prompt: {done:,} of {total:,} tokens"
            case events.TextDelta(_, text):
                self._reply += text
            case events.ThinkingDelta(_, text):
                self._thought += text
                self._activity = f"thinking, {len(self._thought):,} characters"
            case events.ToolWriting(_, name, characters):
                self._activity = f"writing a call of {name}, {characters:,} characters"
            case events.ReplyRestarted(_, reason, wait_s):
                self._reply = ""
                self._say(f"{reason} Trying again in {wait_s:.0f} s.", "yellow")
            case events.ToolStarted(_, _, _, summary):
                self._flush()
                self._output, self._activity = [], summary
                self._say(f"› {summary}", "bold")
            case events.ToolOutputChunk(_, text):
                self._output = [*self._output, *text.translate(NO_CONTROL).splitlines()][-_OUTPUT_LINES:]
            case events.ToolFinished(_, _, _, summary, is_error):
                self._output, self._activity = [], ""
                self._say(f"  {summary}", "red" if is_error else "dim")
            case events.CallFinished():
                self._flush()
            case events.Notice(text):
                self._say(text, "yellow")
            case events.TurnFinished():
                self._flush()
                self._activity = ""
                if event.message:
                    self._say(event.message, "yellow")

    def _flush(self) -> None:
        if self._reply.strip():
            self._write(Markdown(self._reply.translate(NO_CONTROL)))
        self._reply = ""

    def _say(self, text: str, style: str) -> None:
        self._write(Text(text.translate(NO_CONTROL), style=style))
