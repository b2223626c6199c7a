"""What happens in a turn, on the screen: what is finished is written once and never touched again; what still changes
is the live region.
"""

import io
import time
from collections.abc import Callable, Iterable
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from agent import events
from agent.chat.markdown_stream import Code, MarkdownStream, Piece
from agent.chat.markdown_view import CodeView, Reply, Stripped
from agent.chat.thought import Thought
from agent.chat.tool_view import RunningTool, finished, stopped
from agent.events import TurnEnd
from agent.reports.totals import Totals, money
from agent.screens.plain import plain
from agent.screens.restarts import Restarts
from agent.screens.sentences import BEGINS_ANEW, bill, told, writing
from agent.screens.shown import Shown
from backends.llama.models import is_local

_PREFILL_FROM: Final = 256  # tokens; below it the progress would only flicker


class Transcript:
    """Call with each event. `write` prints for good; `changed` says that the live region is another.

    `colour`: whether the live region may hold colours. `now`: seconds since some start, for durations.
    """

    def __init__(
        self,
        write: Callable[[RenderableType], None],
        *,
        changed: Callable[[], None] = lambda: None,
        colour: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._print = write
        self._changed = changed
        self._colour = colour
        self._now = now
        self._local = False
        self._after_text = False  # the last thing written is a piece of a reply, or a message
        self._begin_reply()
        self._shown = Shown()
        self._restarts = Restarts()
        self._thought = Thought()
        self._thoughts: list[str] = []  # of the turn
        self._tools: dict[str, RunningTool] = {}
        self._totals = Totals()
        self._doing: str | None = None
        self._prefill_began: tuple[float, int] | None = None
        self._idle: list[events.CacheRenewed] = []
        self._let_go: events.KeepaliveStopped | None = None

    # What the person does

    def write_command(self, text: str) -> None:
        """Show what the person has sent."""
        self._tell_idle()
        self._thoughts.clear()
        lines = plain(text).expandtabs(4).rstrip("\n").split("\n")
        shown = "\n".join(("❯ " if number == 0 else "  ") + line for number, line in enumerate(lines))
        self._print(Text(""))
        self._print(Text(shown, style="bold", overflow="fold"))
        self._after_text = True

    def diff_shown(self) -> None:
        """A question has shown the diff of the call that waits for it: it is not shown again."""
        for tool in self._tools.values():
            tool.diff_seen = True

    def thinking(self) -> str:
        """What the model has thought since the last message, as far as the provider shows it."""
        return "\n\n".join([*self._thoughts, self._thought.text] if self._thought.text else self._thoughts)

    # What happens

    def __call__(self, event: events.Event) -> None:
        self._take(event)
        self._changed()

    def live(self, width: int, height: int) -> str:
        """The live region as ANSI text, `height` lines at most."""
        if height < 1:
            return ""
        parts = [*self._live_reply(width, height), *self._live_rest(height)]
        lines = [line for part in parts for line in self._rendered(part, width)]
        return "\n".join(lines[-height:])

    def _take(self, event: events.Event) -> None:
        if not isinstance(event, events.ThinkingDelta | events.PrefillProgress):
            self._end_thought(event)
        match event:
            case events.SessionOpened():
                self._local = is_local(event.model)
                self._say(event)
            case events.CallStarted():
                self._prefill_began = None
                self._doing = "waiting for the model" if event.purpose == "turn" else self._doing
            case events.PrefillProgress():
                self._doing = self._prefill(event)
            case events.ThinkingDelta(_, text):
                self._thought = self._thought.plus(plain(text), self._now())
            case events.TextDelta(_, text):
                self._doing = None
                self._add_text(plain(text))
            case events.ToolWriting():
                self._doing = writing(event)
            case events.ReplyRestarted(_, _, wait_s):
                self._shown = self._shown.again()
                self._doing = f"waiting {wait_s:.0f} s to try again"
                self._write(Text.from_markup(self._restarts.told(event)))
            case events.CallFinished():
                self._finish_call(event)
            case events.ToolStarted(call, name, arguments, summary):
                self._doing = None
                self._tools[call] = RunningTool(name, arguments, summary)
            case events.ToolOutputChunk(call, text):
                if call in self._tools:
                    self._tools[call].take(text)
            case events.ToolFinished(call, name, _, _, _):
                self._write(finished(self._tools.pop(call, RunningTool(name, "", name)), event))
            case events.CacheRenewed("idle", "done"):
                self._idle.append(event)
            case events.KeepaliveStopped("idle"):
                self._let_go = event
            case events.CompactionStarted(tokens):
                self._say(event)
                self._doing = f"summing up {tokens:,} tokens"
            case events.TurnFinished():
                self._finish_turn(event)
            case _:
                self._say(event)

    # The reply

    def _begin_reply(self) -> None:
        self._stream, self._code, self._wrote_reply = MarkdownStream(), CodeView(), False

    def _add_text(self, text: str) -> None:
        self._shown, text, differs = self._shown.plus(text)
        if differs:  # what of the broken reply is not written yet is dropped
            if self._wrote_reply:
                self._write(Text.from_markup(BEGINS_ANEW))
            self._begin_reply()
        self._write_pieces(self._stream.feed(text))

    def _write_pieces(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if not piece.continues:
                self._code = CodeView()
            if not piece.text.strip() or (isinstance(piece.shown, Code) and not piece.shown.text):
                continue
            if not piece.continues:
                self._print(Text(""))
            self._print(_look(piece, self._code.add))
            self._after_text = self._wrote_reply = True

    def _end_reply(self) -> None:
        self._write_pieces(self._stream.finish())
        self._begin_reply()
        self._shown = Shown()

    def _end_thought(self, event: events.Event) -> None:
        if self._thought.text:
            tokens = event.usage.reasoning if isinstance(event, events.CallFinished) else None
            self._thoughts.append(self._thought.text)
            self._write(Text(self._thought.told(self._now(), tokens), style="dim"))
            self._thought = Thought()

    # Ends

    def _finish_call(self, event: events.CallFinished) -> None:
        self._restarts.over()
        self._totals = self._totals.plus(event.usage, event.cost_usd)
        self._doing = None
        self._end_reply()
        self._say(event)

    def _finish_turn(self, event: events.TurnFinished) -> None:
        self._end_reply()
        for tool in self._tools.values():
            self._write(stopped(tool))
        self._tools.clear()
        self._doing = None
        self._say(event)
        if event.end is TurnEnd.INTERRUPTED and not event.message:
            self._write(Text("Interrupted. What was done so far is kept.", style="yellow"))
        if event.calls:
            cost = "local" if self._local else money(event.cost_usd)
            self._write(Text(bill(event.calls, self._totals, cost), style="dim"))
        self._totals = Totals()

    def _tell_idle(self) -> None:
        """The pings of a pause, and its end: told when the person is back, to disturb nobody."""
        pings, self._idle = self._idle, []
        let_go, self._let_go = self._let_go, None
        if pings:
            self._tell_pings(pings)
        if let_go is not None:
            self._write(Text(f"cache no longer kept warm ({let_go.why}): {let_go.tokens:,} tokens", style="dim"))

    def _tell_pings(self, pings: list[events.CacheRenewed]) -> None:
        costs = [ping.cost_usd for ping in pings if ping.cost_usd is not None]
        cost = money(sum(costs[1:], costs[0]) if len(costs) == len(pings) else None)
        count = f"{len(pings)} ping{'s' if len(pings) != 1 else ''}"
        self._write(Text(f"cache kept warm while you were away: {count}, {cost}", style="dim"))

    def _say(self, event: events.Event) -> None:
        line = told(event)
        if line is not None:
            self._write(Text.from_markup(line))

    def _write(self, what: RenderableType) -> None:
        """Something beside the reply: set off from a reply, but not from its like. What of a reply is not finished
        stays in the live region: a paragraph is not torn.
        """
        if self._after_text:
            self._print(Text(""))
        self._print(what)
        self._after_text = False

    # The live region

    def _live_reply(self, width: int, height: int) -> list[RenderableType]:
        pieces = [_cut(piece, width * height * 2) for piece in self._stream.pending() if piece.text.strip()]
        ahead = [Text("")] if pieces and not pieces[0].continues else []  # as it will be written
        return [*ahead, *(_look(piece, self._code.peek) for piece in pieces)]

    def _live_rest(self, height: int) -> list[RenderableType]:
        if self._tools:
            each = max(1, height // len(self._tools))
            return [line for tool in self._tools.values() for line in tool.live(each)]
        if self._thought.text:
            return self._thought.live(self._now())
        return [Text(self._doing, style="dim", no_wrap=True, overflow="ellipsis")] if self._doing else []

    def _rendered(self, what: RenderableType, width: int) -> list[str]:
        out = io.StringIO()
        colours = "standard" if self._colour else None
        console = Console(file=out, width=width, force_terminal=True, color_system=colours, highlight=False)  # type: ignore[arg-type]
        console.print(what)
        return out.getvalue().rstrip("\n").split("\n")

    def _prefill(self, event: events.PrefillProgress) -> str | None:
        if event.total - event.reused < _PREFILL_FROM:
            return self._doing
        now, done, all_of_it = self._now(), event.done - event.reused, event.total - event.reused
        if self._prefill_began is None:
            self._prefill_began = (now, done)
        began, before = self._prefill_began
        left = ""
        if done > before and now > began:
            left = f", {(all_of_it - done) * (now - began) / (done - before):.0f} s left"
        reused = f", {event.reused:,} reused" if event.reused else ""
        return f"reading the prompt: {done:,} of {all_of_it:,} tokens{reused}{left}"


def _look(piece: Piece, colour: Callable[[Code], Text]) -> RenderableType:
    shown = piece.shown
    return colour(shown) if isinstance(shown, Code) else Stripped(Reply(shown, piece.number))


def _cut(piece: Piece, characters: int) -> Piece:
    """Of a very long tail the end is enough: no more can be seen."""
    if isinstance(piece.shown, Code) or len(piece.shown) <= characters:
        return piece
    return Piece(piece.text, piece.shown[-characters:])
