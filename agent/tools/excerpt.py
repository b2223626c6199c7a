"""Long output: its beginning and its end for the model, all of it in a file (rule R8), little of it in memory."""

import os
import tempfile
from pathlib import Path
from typing import Final, TextIO

from agent.tools.base import OutputLimits

LARGEST_FILE: Final = 64 << 20  # characters that are kept of one output
_HEAD_SHARE: Final = 3  # a third of the room is for the beginning; the end, where results stand, gets the rest


class Excerpt:
    """Takes output as it comes. A file is made in `folder` once the output is longer than `limits` allow."""

    def __init__(self, limits: OutputLimits, folder: Path, name: str) -> None:
        self._limits: Final = limits
        self._folder: Final = folder
        self._name: Final = name
        self._head = ""
        self._tail = ""
        self._file: TextIO | None = None
        self._trouble = ""
        self.chars = 0
        self.newlines = 0
        self.path: Path | None = None

    @property
    def long(self) -> bool:
        return self.chars > self._limits.output_chars or self.newlines > self._limits.output_lines

    def feed(self, text: str) -> None:
        was_long = self.long
        self.chars += len(text)
        self.newlines += text.count("\n")
        if was_long:
            self._keep(text)
            self._tail = (self._tail + text)[-self._limits.output_chars :]
            return
        self._head += text
        if self.long:
            self._open()
            self._keep(self._head)
            self._tail = self._head[-self._limits.output_chars :]
            self._head = _first(self._head, self._limits)

    def close(self) -> str:
        """The text for the model. No more output can follow."""
        self._close_file()
        if not self.long:
            return self._head
        tail = _last(self._tail, self._limits, self.chars - len(self._head))
        chars = self.chars - len(self._head) - len(tail)
        lines = self.newlines - self._head.count("\n") - tail.count("\n")
        gap = f"[… {lines:,} lines, {chars:,} characters left out{self._where()} …]"
        return f"{self._head}{'' if self._head.endswith(chr(10)) or not self._head else chr(10)}{gap}\n{tail}"

    def _where(self) -> str:
        if self._trouble or self.path is None:
            return f", and not kept: {self._trouble}"
        if self.chars > LARGEST_FILE:
            return f"; the first {LARGEST_FILE:,} characters are in {self.path}"
        return f"; all of it is in {self.path}"

    def _open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(".txt", f"{self._name}-", self._folder)
            self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n")
            self.path = Path(name)
        except OSError as error:
            self._trouble = error.strerror or str(error)

    def _keep(self, text: str) -> None:
        room = LARGEST_FILE - (self.chars - len(text))
        if self._file is None or room <= 0:
            return
        try:
            self._file.write(text[:room])
        except OSError as error:
            self._trouble = error.strerror or str(error)
            self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._trouble = error.strerror or str(error)


def _first(text: str, limits: OutputLimits) -> str:
    """The beginning: whole lines, or a part of the first one if it alone is too long."""
    cut = text[: limits.output_chars // _HEAD_SHARE]
    *whole, _ = cut.split("\n")
    return "".join(f"{line}\n" for line in whole[: limits.output_lines // _HEAD_SHARE]) if whole else cut


def _last(text: str, limits: OutputLimits, most: int) -> str:
    """The end, of at most `most` characters: whole lines, or a part of the last one if it alone is too long."""
    cut = text[-min(limits.output_chars - limits.output_chars // _HEAD_SHARE, most) :]
    *whole, rest = cut.split("\n")
    lines = [f"{line}\n" for line in whole] + ([rest] if rest else [])
    return "".join(lines[1:][-(limits.output_lines - limits.output_lines // _HEAD_SHARE) :]) if len(lines) > 1 else cut
