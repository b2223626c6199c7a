"""The chat's input: its keys, pastes in the buffer and history, without a terminal."""

import asyncio
import select
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.utils import Event

from agent.chat.complete import ChatCompleter
from agent.chat.input import ChatInput

TWENTY = "\n".join(f"line {number}" for number in range(20))
PASTE = f"\x1b[200~{TWENTY}\x1b[201~"
LONG = "你x" * 2_500
UP, DOWN, LEFT, RIGHT, BACKSPACE = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C", "\x7f"
HOME, END, WORD, UNDO, YANK = "\x01", "\x05", "\x17", "\x1f", "\x19"


class Typing:
    """A person who types. `told`: what the chat is told of it."""

    def __init__(self, pipe: PipeInput) -> None:
        self._pipe = pipe
        self.told: list[object] = []
        self.input = ChatInput(
            history=InMemoryHistory(["older", "two\nlines", "newest"]),
            completer=ChatCompleter(lambda: {"help": "", "model": ""}, lambda *_: (), lambda: ["a file.txt"]),
            on_submit=lambda text: self.told.append(("sent", text)),
            on_interrupt=lambda: self.told.append("interrupted"),
            on_escape=lambda: self.told.append("escaped"),
            on_leave=lambda: self.told.append("left"),
            on_shell_mark=lambda shell: self.told.append(("shell", shell)),
        )
        self.app: Application[None] = Application(
            layout=Layout(self.input.window, focused_element=self.input.buffer),
            key_bindings=self.input.key_bindings,
            input=pipe,
            output=DummyOutput(),
        )
        self.input.attach(self.app)

    def press(self, *keys: str | bytes) -> None:
        """Each of `keys` arrives by itself, with a moment of nothing behind it."""
        for key in keys:
            self._pipe.send_bytes(key.encode() if isinstance(key, str) else key)
            while select.select([self._pipe.fileno()], [], [], 0)[0]:
                self._process(self._pipe.read_keys())
            self._process(self._pipe.flush_keys())

    def sent(self, *keys: str) -> str:
        """The one text that is submitted by these keys and Enter."""
        self.told.clear()
        self.press(*keys, "\r")
        [(what, text)] = [each for each in self.told if isinstance(each, tuple) and each[0] == "sent"]
        assert what == "sent"
        return str(text)

    @property
    def text(self) -> str:
        return self.input.text()

    def _process(self, keys: list) -> None:  # type: ignore[type-arg]
        self.app.key_processor.feed_multiple(keys)
        self.app.key_processor.process_keys()


@pytest.fixture
async def typing() -> AsyncIterator[Typing]:
    with create_pipe_input() as pipe:
        typing = Typing(pipe)
        with set_app(typing.app):
            yield typing
            for task in typing.app._background_tasks:
                task.cancel()


async def with_history(typing: Typing) -> None:
    typing.input.buffer.load_history_if_not_yet_loaded()
    assert typing.input.buffer._load_history_task is not None
    await typing.input.buffer._load_history_task


async def until(holds: Callable[[], bool], event: "Event[Buffer]") -> None:
    """Wait for `holds()`, which is asked with each `event`."""
    happened = asyncio.Event()
    event += lambda _: happened.set()
    async with asyncio.timeout(20):
        while not holds():
            await happened.wait()
            happened.clear()


async def test_enter_sends_and_clears(typing: Typing) -> None:
    assert typing.sent("fix the price") == "fix the price"
    assert typing.text == ""
    typing.press("\r", "  ", "\r")
    assert typing.told == [("sent", "fix the price")]


@pytest.mark.parametrize(
    "key", ["\n", "\x1b\r", "\\\r", "\x1b[13;2u", "\x1b[27;2;13~"], ids=["C-j", "Alt", "backslash", "kitty", "xterm"]
)
async def test_new_lines(typing: Typing, key: str) -> None:
    assert typing.sent("one", key, "two") == "one\ntwo"


async def test_two_backslashes_are_no_new_line(typing: Typing) -> None:
    assert typing.sent("C:\\\\") == "C:\\\\"


@pytest.mark.parametrize("key", ["\x03", "\x1b[99;5u", "\x1b[27;5;99~"])
async def test_interrupt_keeps_what_is_typed(typing: Typing, key: str) -> None:
    typing.press("half a thou", key)
    assert typing.told == ["interrupted"]
    assert typing.text == "half a thou"


async def test_escape_alone_and_alt_keys(typing: Typing) -> None:
    typing.press("two words", "\x1b", "\x1bb", "\x1b[27u", "X")
    assert typing.told == ["escaped", "escaped"]
    assert typing.text == "two Xwords"


async def test_ctrl_d_leaves_on_an_empty_line_only(typing: Typing) -> None:
    typing.press("ab", HOME, "\x04")
    assert typing.text == "b"
    typing.press("\x04", "\x04")
    assert typing.told == ["left"]


async def test_a_large_paste_is_one_thing_and_is_sent_whole(typing: Typing) -> None:
    typing.press("see ", PASTE, " and ", PASTE)
    assert len(typing.input.buffer.text) == len("see  and ") + 2
    assert typing.sent(" end") == f"see {TWENTY} and {TWENTY} end"


async def test_edits_around_a_paste(typing: Typing) -> None:
    assert typing.sent("中文", PASTE, HOME, "前", END, "后", LEFT, LEFT, LEFT, "x") == f"前中x文{TWENTY}后"


async def test_a_deleted_paste_is_not_sent_and_comes_back_by_undo(typing: Typing) -> None:
    typing.press("a ", PASTE, BACKSPACE)
    assert typing.text == "a "
    typing.press(UNDO)
    assert typing.text == f"a {TWENTY}"
    typing.press(WORD, "b")
    assert typing.sent() == "a b"


async def test_a_paste_may_be_cut_and_put_back_twice(typing: Typing) -> None:
    assert typing.sent(PASTE, WORD, YANK, " ", YANK) == f"{TWENTY} {TWENTY}"


async def test_what_looks_like_a_paste_is_text(typing: Typing) -> None:
    assert typing.sent(PASTE, " [pasted #1: 20 lines]") == f"{TWENTY} [pasted #1: 20 lines]"


async def test_a_small_paste_is_text_to_edit(typing: Typing) -> None:
    typing.press("\x1b[200~a\r\nb\x1b[201~", BACKSPACE)
    assert typing.text == typing.input.buffer.text == "a\n"


async def test_commands_to_the_terminal_are_taken_out_of_a_paste(typing: Typing) -> None:
    assert typing.sent("\x1b[200~\x1b]0;title\x07a\x1b[31mb\x00\x1b[201~") == "ab"


@pytest.mark.parametrize("text", [LONG, "\n".join(["short"] * 1_000)], ids=["line", "lines"])
async def test_5_000_characters_in_many_reads(typing: Typing, text: str) -> None:
    for sent in (f"\x1b[200~{text}\x1b[201~", text.replace("\n", "\r")):
        typing.press(sent)
        assert typing.told == []
        assert len(typing.input.buffer.text) == 1
        assert typing.sent() == text
        typing.told.clear()


async def test_a_character_cut_between_two_reads(typing: Typing) -> None:
    data = "\x1b[200~你好\x1b[201~".encode()
    for place in range(7, 12):
        typing.press(data[:place], data[place:])
    assert typing.sent() == "你好" * 5


async def test_history_is_walked_at_the_first_and_the_last_line_only(typing: Typing) -> None:
    await with_history(typing)
    typing.press("draft", UP)
    assert typing.text == "newest"
    typing.press(UP)
    assert typing.text == "two\nlines"
    typing.press("!", UP)
    assert typing.text == "two\nlines!"
    typing.press(UP)
    assert typing.text == "older"
    typing.press(DOWN, DOWN, DOWN, DOWN, DOWN, DOWN)
    assert typing.text == "draft"


async def test_what_was_sent_is_the_newest_in_history_with_its_pastes(typing: Typing) -> None:
    typing.sent("look: ", PASTE)
    await with_history(typing)
    typing.press(UP)
    assert typing.text == f"look: {TWENTY}"


async def test_search_in_history(typing: Typing) -> None:
    await with_history(typing)
    typing.press("\x12", "lin", "\r")
    assert typing.told == []
    assert typing.sent() == "two\nlines"


async def test_the_shell_mark_is_told_when_it_changes(typing: Typing) -> None:
    typing.press("!", "l", "s", HOME, "\x04")
    assert typing.told == [("shell", True), ("shell", False)]


async def test_completion_is_taken_by_enter_and_sent_by_the_next(typing: Typing) -> None:
    typing.press("/mo")
    buffer = typing.input.buffer
    await until(lambda: buffer.complete_state is not None, buffer.on_completions_changed)
    typing.press("\t")
    assert typing.text == "/model"
    typing.press("\r")
    assert typing.told == []
    assert typing.sent() == "/model"


async def test_text_is_set_and_cleared(typing: Typing) -> None:
    typing.input.set_text("a\r\nb\x1b[31m")
    assert typing.sent("c") == "a\nbc"
    typing.input.set_text("gone")
    typing.input.clear()
    assert typing.text == ""


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Appends to the file, and keeps what it was given."""
    seen = tmp_path / "seen"
    script = tmp_path / "editor"
    script.write_text(f"#!/bin/sh\ncp \"$1\" '{seen}'\nprintf '%s' ' edited' >> \"$1\"\n")
    script.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(script))
    return seen


async def test_the_editor_gets_the_whole_text(typing: Typing, editor: Path) -> None:
    running = asyncio.create_task(typing.app.run_async(handle_sigint=False))
    typing._pipe.send_text("see ")
    typing._pipe.send_text(PASTE)
    typing._pipe.send_text("\x18\x05")
    await until(lambda: typing.text.endswith(" edited"), typing.input.buffer.on_text_changed)
    assert await asyncio.to_thread(editor.read_text) == f"see {TWENTY}"
    assert typing.text == f"see {TWENTY} edited"
    typing.app.exit()
    await running
