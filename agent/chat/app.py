"""The chat's terminal: a live region at the bottom, and above it what is finished.

What is finished is printed once, above the live region, and belongs to the terminal's scrollback from then on. The live
region holds what still changes: the end of the reply that streams, the running tool, a question, what the person types
and the status line. prompt_toolkit draws it; rich renders what is printed.
"""

import asyncio
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style

from agent.chat.input import ChatInput
from agent.clock import Clock
from context.names import show_name

if TYPE_CHECKING:  # a person can type before these are loaded
    from rich.console import RenderableType

    from agent import events
    from agent.chat.dialogs import Dialog
    from agent.chat.front import Choice
    from agent.chat.status import StatusLine
    from agent.chat.transcript import Transcript
    from agent.gate import Answer
    from agent.permissions import Ask
    from backends.llama.fetch import FetchProgress

T = TypeVar("T")
STYLE: Final = Style.from_dict(
    {
        "key": "ansicyan",
        "chosen": "reverse",
        "dim": "ansibrightblack",
        "mark": "bold ansicyan",
        "shell-mark": "bold ansiyellow",
        "pasted": "ansicyan",
        "status": "ansibrightblack",
        "status.warm": "ansigreen",
        "status.soon": "ansiyellow",
        "status.cold": "ansibrightblack",
    }
)
_LIVE_LINES: Final = 12
_REFRESH_S: Final = 0.5  # how often clocks are drawn


@dataclass(slots=True)
class Callbacks:
    """What the person does; the chat sets them before the program runs."""

    submit: Callable[[str], None] = lambda _: None
    interrupt: Callable[[], bool] = lambda: False
    escape: Callable[[], None] = lambda: None
    leave: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _Shown:
    """What the live region shows besides what streams."""

    working: str | None = "opening"
    waiting: tuple[str, ...] = ()
    dialog: "Dialog[Any] | None" = None
    pending: "list[RenderableType]" = field(default_factory=list)
    events: bool = False  # whether there was one yet


class PromptFront:
    """A `Front` on a terminal. `run` it beside the chat. `colour`: whether colours may be used."""

    def __init__(
        self,
        make_input: Callable[["PromptFront"], ChatInput],
        clock: Clock,
        *,
        colour: bool,
        source: Input | None = None,
        screen: Output | None = None,
    ) -> None:
        self.on: Final = Callbacks()
        self._clock = clock
        self._colour = colour
        self._shown = _Shown()
        self._to_print = asyncio.Event()
        self._input = make_input(self)
        self._app: Application[None] = self._application(source, screen)
        self._input.attach(self._app)

    @cached_property
    def _transcript(self) -> "Transcript":
        from agent.chat.transcript import Transcript

        return Transcript(self.write, changed=self._changed, colour=self._colour, now=self._clock.monotonic)

    @cached_property
    def _status(self) -> "StatusLine":
        from agent.chat.status import StatusLine

        return StatusLine()

    # Front

    @property
    def width(self) -> int:
        return self._size().columns

    def write(self, what: "RenderableType") -> None:
        self._shown.pending.append(what)
        self._to_print.set()

    def event(self, event: "events.Event") -> None:
        self._shown.events = True
        self._status(event)
        self._transcript(event)
        self._changed()

    async def show(self, report: Callable[[], None]) -> None:
        self._print_pending()
        self._above(report)

    async def ask(self, question: "Ask") -> "Answer":
        from agent.chat.dialogs import Question

        if question.diff is not None:
            self._transcript.diff_shown()
        return await self._answer(Question(question, self._clock.monotonic))

    async def agree(self, question: str) -> bool:
        from agent.chat.dialogs import YesNo

        return await self._answer(YesNo(question, self._clock.monotonic))

    def announce(self, line: str) -> None:
        from rich.text import Text

        self.write(Text(line, style="dim"))

    def download(self, progress: "FetchProgress") -> None:
        from backends.llama.models import megabytes

        share = f" of {megabytes(progress.total)}" if progress.total else ""
        self.working(f"downloading: {megabytes(progress.done)}{share}")

    async def choose(self, title: str, choices: "Sequence[Choice]") -> str | None:
        from agent.chat.dialogs import Picker

        return await self._answer(Picker(title, tuple(choices)))

    def say_command(self, text: str) -> None:
        self._status.turn_began()
        self._transcript.write_command(text)

    def thinking(self) -> str:
        return self._transcript.thinking()

    def working(self, what: str | None) -> None:
        self._shown.working = what
        self._changed()

    def waiting(self, messages: Sequence[str]) -> None:
        self._shown.waiting = tuple(messages)
        self._changed()

    def mode_changed(self, mode: str) -> None:
        self._status.mode_changed(mode)

    def edit(self, text: str) -> bool:
        if self._input.text():
            return False
        self._input.set_text(text)
        return True

    # The program

    async def run(self, drawn: Callable[[], None] = lambda: None) -> None:
        """Until `close`; `drawn` is called when the person can type. Raises EOFError when the terminal is gone."""
        printer = asyncio.create_task(self._print_all())
        self._app.after_render += lambda _: drawn()
        try:
            await self._app.run_async(handle_sigint=False)
        finally:
            printer.cancel()
            await asyncio.wait([printer])

    async def close(self) -> None:
        """Print what is left and end the program."""
        self._print_pending()
        if self._app.is_running:
            self._app.exit()

    async def _print_all(self) -> None:
        while True:
            await self._to_print.wait()
            self._to_print.clear()
            self._print_pending()

    def _print_pending(self) -> None:
        pending, self._shown.pending = self._shown.pending, []
        if not pending:
            return
        text = "".join(self._rendered(what) for what in pending)

        def write() -> None:
            self._app.output.write_raw(text.replace("\n", "\r\n"))
            self._app.output.flush()

        self._above(write)

    def _above(self, write: Callable[[], None]) -> None:
        """Let `write` print above the live region. prompt_toolkit's own way would give the terminal back meanwhile: a
        key that comes then is taken for a line, and Ctrl-C ends the program.
        """
        if not self._app.is_running:
            write()
            return
        self._app.renderer.erase()
        write()
        self._app.renderer.reset()
        self._app.renderer.request_absolute_cursor_position()
        self._changed()

    def _rendered(self, what: "RenderableType") -> str:
        from rich.console import Console

        out = io.StringIO()
        Console(
            file=out,
            width=self._size().columns,
            force_terminal=True,
            color_system="auto" if self._colour else None,
            no_color=not self._colour,
            highlight=False,
        ).print(what)
        return out.getvalue()

    def _size(self) -> Size:
        return self._app.output.get_size()

    def _changed(self) -> None:
        self._app.invalidate()

    async def _answer(self, dialog: "Dialog[T]") -> T:
        """Let the person answer; one question after another."""
        from rich.text import Text

        for renderable in dialog.ahead(self._size().columns):
            self.write(renderable)
        self._print_pending()  # nobody is asked about what is not yet there to be read
        self._shown.dialog = dialog
        self._changed()
        try:
            answer = await dialog.answer
        finally:
            self._shown.dialog = None
            self._changed()
        if (line := dialog.told(answer)) is not None:
            self.write(Text(line, style="dim"))
        return answer

    def _application(self, source: Input | None, screen: Output | None) -> "Application[None]":
        asking = Condition(lambda: self._shown.dialog is not None)
        live = Window(
            FormattedTextControl(self._live),
            dont_extend_height=True,
            wrap_lines=False,
            height=lambda: self._live_height(),
        )
        return Application(
            layout=Layout(
                HSplit(
                    [
                        live,
                        ConditionalContainer(
                            Window(FormattedTextControl(self._dialog), dont_extend_height=True, wrap_lines=True), asking
                        ),
                        ConditionalContainer(self._input.window, ~asking),
                        Window(FormattedTextControl(self._status_line), height=1),
                    ]
                ),
                focused_element=self._input.buffer,
            ),
            key_bindings=merge_key_bindings([self._input.key_bindings, self._dialog_keys(asking)]),
            style=STYLE,
            color_depth=None if self._colour else ColorDepth.DEPTH_1_BIT,
            refresh_interval=_REFRESH_S,
            full_screen=False,
            erase_when_done=True,
            input=source,
            output=screen,
        )

    def _dialog_keys(self, asking: Condition) -> KeyBindings:
        keys = KeyBindings()

        def press(key: str) -> None:
            if self._shown.dialog is not None:
                self._shown.dialog.key(key)
                self._changed()

        for name in ("enter", "escape", "up", "down", "backspace"):

            @keys.add(name, filter=asking, eager=True)
            def _(event: KeyPressEvent, name: str = name) -> None:
                press(name)

        @keys.add(Keys.Any, filter=asking, eager=True)
        def _typed(event: KeyPressEvent) -> None:
            if event.data.isprintable():
                press(event.data)

        @keys.add(Keys.BracketedPaste, filter=asking, eager=True)
        def _pasted(event: KeyPressEvent) -> None:
            """No answer to a question."""

        @keys.add("c-c", filter=asking, eager=True)
        def _interrupted(event: KeyPressEvent) -> None:
            self.on.interrupt()

        return keys

    def _live(self) -> ANSI:
        return ANSI(self._live_text())

    def _live_text(self) -> str:
        if not self._shown.events:
            return ""
        size = self._size()
        lines = [self._transcript.live(size.columns, self._live_room())] if self._live_room() else []
        for message in self._shown.waiting:
            lines.append(f"\x1b[2m  next: {_one_line(message, size.columns - 9)}\x1b[0m")
        return "\n".join(line for line in lines if line)

    def _live_room(self) -> int:
        """Lines for what streams: the terminal may be low."""
        return max(0, min(_LIVE_LINES, self._size().rows - 6 - len(self._shown.waiting)))

    def _live_height(self) -> int:
        text = self._live_text()
        return text.count("\n") + 1 if text else 0

    def _dialog(self) -> StyleAndTextTuples:
        dialog = self._shown.dialog
        if dialog is None:
            return []
        parts: StyleAndTextTuples = []
        for style, text in dialog.lines(self._size().columns):
            parts += [(style, text), ("", "\n")]
        return parts[:-1]

    def _status_line(self) -> StyleAndTextTuples:
        if not self._shown.events:
            return [("class:status", "opening …")]
        parts: StyleAndTextTuples = []
        parts += self._status.parts(self._clock.now(), self._size().columns)
        return parts


def _one_line(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    line = show_name(" ".join(text.split()))
    return line if cell_len(line) <= width else f"{set_cell_size(line, max(0, width - 1))}…"
