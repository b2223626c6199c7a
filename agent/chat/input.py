"""The place where the person types: the buffer, how it looks, and its keys."""

from collections.abc import Callable
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import Container, Window
from prompt_toolkit.layout.controls import BufferControl


class ChatInput:
    """Put `window` into a layout, merge `key_bindings` into the application's, and call `attach` with the application.

    `on_submit` gets the whole text, `on_interrupt` is Ctrl-C, `on_escape` Esc alone, `on_leave` Ctrl-D on an empty line.
    `on_shell_mark(whether)` is called when the text begins to be a shell line (`!`), or ends to be one.
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
        self.buffer = Buffer(history=history, completer=completer, multiline=True)
        self.control = BufferControl(self.buffer)
        self.window: Container = Window(self.control)
        self.key_bindings = KeyBindings()

    def attach(self, app: "Application[Any]") -> None:
        """Make the application's input know pastes and more keys, and Esc quick. Call it before the application runs."""

    def text(self) -> str:
        """What was typed, with pastes put back."""
        return self.buffer.text

    def set_text(self, text: str) -> None:
        """Put `text` in the place of what was typed, the cursor behind it."""

    def clear(self) -> None:
        """Forget what was typed."""
