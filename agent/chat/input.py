"""The place where the person types: the buffer, how it looks, and its keys."""

from collections.abc import Callable
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_width
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Container, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.layout.processors import (
    HighlightIncrementalSearchProcessor,
    HighlightSelectionProcessor,
    TabsProcessor,
)
from prompt_toolkit.widgets import SearchToolbar

from agent.chat.keys import ALONE, ChatParser, know_more_keys
from agent.chat.paste import Pastes, harmless
from agent.chat.paste_view import PasteView

MARK: Final = "> "
SHELL_MARK: Final = "! "
_MOST_ROWS: Final = 10
_MOST_COMPLETIONS: Final = 8
# Within this time what follows an Escape belongs to it. Vim's recommendation for terminals that are far away.
_ESCAPE_S: Final = 0.1


class ChatInput:
    """Put `window` into a layout, merge `key_bindings` into the application's, and call `attach` with the application.

    `on_submit` gets the whole text, `on_interrupt` is Ctrl-C, `on_escape` Esc alone, `on_leave` Ctrl-D on an empty
    line. `on_shell_mark(whether)` is called when the text begins to be a shell line (`!`), and when it ends to be one.
    """

    def __init__(
        self,
        *,
        history: History,
        completer: Completer,
        on_submit: Callable[[str], object],
        on_interrupt: Callable[[], object],
        on_escape: Callable[[], object],
        on_leave: Callable[[], object],
        on_shell_mark: Callable[[bool], object] | None = None,
    ) -> None:
        self._pastes = Pastes()
        self._history = history
        self._on_submit = on_submit
        self._on_shell_mark = on_shell_mark
        self._shell = False
        self.buffer: Final = Buffer(
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._completes),
            multiline=True,
            tempfile_suffix=".md",
            on_text_changed=lambda _: self._tell_shell_mark(),
        )
        search = SearchToolbar()
        self.control: Final = BufferControl(
            self.buffer,
            input_processors=[
                HighlightIncrementalSearchProcessor(),
                HighlightSelectionProcessor(),
                PasteView(self._pastes),
                TabsProcessor(char1=" ", char2=" "),
            ],
            search_buffer_control=search.control,
            preview_search=True,
        )
        typing = Window(
            self.control,
            height=Dimension(min=1, max=_MOST_ROWS),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=self._prefix,
        )
        menu = Window(CompletionsMenuControl(), height=Dimension(min=1, max=_MOST_COMPLETIONS), dont_extend_height=True)
        self.window: Final[Container] = HSplit(
            [typing, search, ConditionalContainer(menu, has_completions & has_focus(self.buffer))]
        )
        self.key_bindings: Final = self._keys(on_interrupt, on_escape, on_leave)

    def attach(self, app: "Application[Any]") -> None:
        """Teach the application's input pastes and more keys, and make Esc quick. To be called before it runs."""
        app.ttimeoutlen = _ESCAPE_S
        know_more_keys()
        parser = getattr(app.input, "vt100_parser", None)  # there is none on Windows, which tells keys itself
        if isinstance(parser, Vt100Parser):
            app.input.vt100_parser = ChatParser(parser)  # type: ignore[attr-defined]

    def text(self) -> str:
        """What was typed, with pastes put back."""
        return self._pastes.expand(harmless(self.buffer.text))

    def set_text(self, text: str) -> None:
        """Put `text` in the place of what was typed, the cursor behind it."""
        self.buffer.document = Document(harmless(text))

    def clear(self) -> None:
        """Forget what was typed."""
        self.buffer.reset()

    def _submit(self) -> None:
        text = self.text()
        if not text.strip():
            return
        self._history.append_string(text)
        self.clear()
        self._on_submit(text)

    def _completes(self) -> bool:
        """Not while a large text is edited: each key would look through it."""
        return self.buffer.text.startswith("/") or "@" in self.buffer.document.current_line_before_cursor

    def _tell_shell_mark(self) -> None:
        shell = self.buffer.text.startswith("!")
        if shell != self._shell:
            self._shell = shell
            if self._on_shell_mark is not None:
                self._on_shell_mark(shell)

    def _prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        mark: StyleAndTextTuples = [("class:shell-mark", SHELL_MARK)] if self._shell else [("class:mark", MARK)]
        return mark if line == wrapped == 0 else [("", " " * fragment_list_width(mark))]

    def _keys(
        self, on_interrupt: Callable[[], object], on_escape: Callable[[], object], on_leave: Callable[[], object]
    ) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(self.buffer)
        empty = Condition(lambda: not self.buffer.text)

        @keys.add("enter", filter=typing)
        def _enter(event: KeyPressEvent) -> None:
            before = self.buffer.document.current_line_before_cursor
            if self.buffer.complete_state is not None and self.buffer.complete_state.current_completion is not None:
                self.buffer.complete_state = None  # it is in the text already
            elif (len(before) - len(before.rstrip("\\"))) % 2:
                self.buffer.delete_before_cursor()
                self.buffer.newline(copy_margin=False)
            else:
                self._submit()

        @keys.add("c-j", filter=typing)
        @keys.add("escape", "enter", filter=typing)
        def _new_line(event: KeyPressEvent) -> None:
            self.buffer.newline(copy_margin=False)

        @keys.add(Keys.BracketedPaste, filter=typing)
        def _paste(event: KeyPressEvent) -> None:
            self.buffer.insert_text(self._pastes.put(event.data))

        @keys.add("c-c", filter=typing)
        def _interrupt(event: KeyPressEvent) -> None:
            on_interrupt()

        @keys.add("escape", ALONE, filter=typing)
        def _escape(event: KeyPressEvent) -> None:
            if self.buffer.complete_state is not None:
                self.buffer.cancel_completion()
            else:
                on_escape()

        @keys.add("c-d", filter=typing & empty)
        def _leave(event: KeyPressEvent) -> None:
            on_leave()

        @keys.add("c-x", "c-e", filter=typing)
        def _edit(event: KeyPressEvent) -> None:
            self.buffer.document = Document(self.text())
            self.buffer.open_in_editor()

        @keys.add("c-z", filter=typing)
        def _suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        return keys
