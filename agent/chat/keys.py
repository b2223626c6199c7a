"""What arrives from the terminal, as keys: pastes of every kind as one key, and the keys of newer terminal protocols.

The parser is told what each read gave. That is how it knows a paste that the terminal does not mark: characters that
arrive together, with a line end among them, were not typed. Such a text goes on until nothing has come for a moment
(`flush`).
"""

import re
from typing import Final

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

# The key that `flush` sends behind an Escape that nothing followed, so that a binding need not wait whether it is Alt.
ALONE: Final = Keys.Ignore

_START: Final = "\x1b[200~"
_END: Final = "\x1b[201~"
_INTERRUPT: Final = re.compile(r"\x03|\x1b\[99;5u|\x1b\[27;5;99~")
# A line end with text behind it. Not Alt-Enter; not Enter and then a key such as Up, which begins with Escape.
_LINES: Final = re.compile(r"(?<!\x1b)\r(?:\n|[\r\n]*[^\x00-\x1f\x7f])")
_FULL_READ: Final = 1_000  # bytes that no person types at once

_LOCKS: Final = (0, 64, 128, 192)  # Caps Lock and Num Lock are told as modifiers too
_SHIFT, _ALT, _CONTROL = 1, 2, 4


def more_keys() -> dict[str, Keys | tuple[Keys | str, ...]]:
    """Keys in the forms `ESC [ code ; modifiers u` (kitty's protocol) and `ESC [ 27 ; modifiers ; code ~`
    (xterm's modifyOtherKeys). Enter with any modifier is a new line.
    """
    keys: dict[str, Keys | tuple[Keys | str, ...]] = {_END: Keys.Ignore, "\x1b\r": Keys.ControlJ}

    def add(code: int, modifiers: int, key: "Keys | tuple[Keys | str, ...]") -> None:
        for locks in _LOCKS:
            number = 1 + modifiers + locks
            keys[f"\x1b[{code};{number}u"] = key
            keys[f"\x1b[27;{number};{code}~"] = key
        if not modifiers:
            keys[f"\x1b[{code}u"] = key

    enter, keypad_enter, tab, escape, backspace = 13, 57414, 9, 27, 127
    for code in (enter, keypad_enter):
        add(code, 0, Keys.ControlM)
        for modifiers in range(1, 8):
            add(code, modifiers, Keys.ControlJ)
    add(escape, 0, (Keys.Escape, ALONE))
    add(tab, 0, Keys.ControlI)
    add(tab, _SHIFT, Keys.BackTab)
    add(backspace, 0, Keys.ControlH)
    add(backspace, _SHIFT, Keys.ControlH)
    add(backspace, _ALT, (Keys.Escape, Keys.ControlH))
    add(backspace, _CONTROL, Keys.ControlW)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        add(ord(letter), _CONTROL, Keys(f"c-{letter}"))
        add(ord(letter), _ALT, (Keys.Escape, letter))
    return keys


def know_more_keys() -> None:
    """Add `more_keys` to those of prompt_toolkit, which has one table for the process. Idempotent."""
    ANSI_SEQUENCES.update(more_keys())  # type: ignore[arg-type]  # a letter is a key too (KeyPress), the table's type omits it


class ChatParser(Vt100Parser):
    """Feed it with what one read gave; call `flush` when nothing has come for a moment."""

    def __init__(self, parser: Vt100Parser) -> None:
        super().__init__(parser.feed_key_callback)
        self._rest = ""  # the beginning of a mark that may be cut between two reads
        self._paste: list[str] | None = None  # what has come since the mark, None: outside
        self._unmarked: list[str] = []  # a paste without marks, so far
        self._cut = False  # a paste was interrupted, and its rest may still come

    def feed(self, data: str) -> None:
        text, self._rest = _split(self._rest + data)
        if self._paste is not None:
            self._pasted(text, self._paste)
            return
        before, start, after = text.partition(_START)
        self._outside(before)
        if start:
            self._release()
            self._paste = []
            self._cut = False
            self._pasted(after, self._paste)

    def flush(self) -> None:
        """Nothing has followed for a moment: what could have been the beginning of something is all there is."""
        self._release()
        if self._paste is not None:
            return
        rest, self._rest = self._rest, ""
        super().flush()
        if rest == "\x1b":
            self._press(Keys.Escape, rest)
            self._press(ALONE, "")
        elif rest:
            super().feed(rest)
            super().flush()

    def _pasted(self, text: str, paste: list[str]) -> None:
        """`text` has come within the marks `paste` began with."""
        content, end, after = text.partition(_END)
        interrupt = None if end else _INTERRUPT.search(content)
        if interrupt:  # typed by the person: terminals take it out of pastes. The mark at the end may never come.
            content, after = content[: interrupt.start()], content[interrupt.end() :]
        paste.append(content)
        if not end and not interrupt:
            return
        self._paste = None
        self._press(Keys.BracketedPaste, "".join(paste))
        if interrupt:
            self._press(Keys.ControlC, "\x03")
            self._cut = True
            if after:
                self._unmarked.append(after)
        elif after:
            self.feed(after)

    def _outside(self, text: str) -> None:
        if not text:
            return
        if self._cut:
            of_paste, end, after = text.partition(_END)
            if end:
                self._cut = False
                if of_paste:
                    self._unmarked.append(of_paste)
                self._release()
                self._outside(after)
                return
            if len(text) == 1:
                self._cut = False
        if _INTERRUPT.fullmatch(text):
            self._release()
        elif self._unmarked or _is_paste(text) or (self._cut and not text.startswith("\x1b")):
            self._unmarked.append(text)
            return
        super().feed(text)

    def _release(self) -> None:
        if self._unmarked:
            self._press(Keys.BracketedPaste, "".join(self._unmarked))
            self._unmarked = []

    def _press(self, key: Keys, data: str) -> None:
        self.feed_key_callback(KeyPress(key, data))


def _is_paste(text: str) -> bool:
    return _LINES.search(text) is not None or len(text.encode("utf-8", "surrogateescape")) >= _FULL_READ


def _split(text: str) -> tuple[str, str]:
    """`text` in two: what is settled, and an end that may be the beginning of a mark."""
    place = text.rfind("\x1b", max(0, len(text) - len(_START) + 1))
    if place >= 0 and any(mark.startswith(text[place:]) for mark in (_START, _END)):
        return text[:place], text[place:]
    return text, ""
