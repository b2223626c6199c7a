"""Pages of a text file: a few whole lines out of a file of any size, in bounded memory."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from agent.tools.base import Page
from agent.tools.encoding import Survey, decoded, survey

LONGEST_LINE: Final = 2_000  # characters shown of one line
_IN_MEMORY: Final = 8 << 20  # bytes; a smaller file is read once, so that both passes see the same content


@dataclass(frozen=True, slots=True)
class TextPage:
    """`lines` from line `first` on, without their ends. `ends_line`: the last one had an end.

    `trimmed` is how many of them were longer than LONGEST_LINE and lost their rest.
    """

    survey: Survey
    first: int
    lines: tuple[str, ...]
    ends_line: bool
    trimmed: int

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


def read_page(path: Path, first: int, most_lines: int, most_chars: int) -> TextPage:
    """Lines of the regular file `path` from line `first` (counted from 1) on; never a part of a line at the end.

    Raises OSError and BinaryFileError.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        source: BinaryIO = BytesIO(file.read()) if size <= _IN_MEMORY else file
        if isinstance(source, BytesIO):
            size = source.getbuffer().nbytes
        found = survey(source, size)
        lines, chars, ends_line, trimmed = list[str](), 0, True, 0
        for text, dropped, ends_line in _lines_from(first, decoded(source, found.encoding)):
            line = f"{text}… [{dropped:,} more characters]" if dropped else text.removesuffix("\r")
            chars += len(line) + 1
            if lines and (len(lines) == most_lines or chars > most_chars):
                ends_line = True
                break
            lines.append(line)
            trimmed += dropped > 0
        return TextPage(found, first, tuple(lines), ends_line, trimmed)


def is_regular(path: Path) -> bool:
    """Whether `path` is an ordinary file, which can be read without waiting for anyone. Raises OSError."""
    return stat.S_ISREG(path.stat().st_mode)


def covers(pages: Iterable[Page], wanted: Page) -> bool:
    """Whether every line of `wanted` is on one of `pages`; a page with numbers stands in for one without."""
    line = wanted.first
    for page in sorted(pages, key=lambda page: page.first):
        if page.numbers >= wanted.numbers and page.first <= line <= page.last:
            line = page.last + 1
    return line > wanted.last


def covers_all(pages: Iterable[Page], text: str) -> bool:
    """Whether `pages` hold the whole of the file whose content is `text`, to the end of each line."""
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    return covers([page for page in pages if not page.cut], Page(1, lines))


def _lines_from(first: int, pieces: Iterator[str]) -> Iterator[tuple[str, int, bool]]:
    """Lines from `first` on, as (text, characters dropped from its end, whether a line end follows)."""
    to_skip, text, dropped = first - 1, "", 0
    for piece in pieces:
        start = 0
        if to_skip:
            newlines = piece.count("\n")
            if newlines < to_skip:
                to_skip -= newlines
                continue
            while to_skip:
                start = piece.index("\n", start) + 1
                to_skip -= 1
        while (end := piece.find("\n", start)) >= 0:
            text, dropped = _grown(text, dropped, piece[start:end])
            yield text, dropped, True
            text, dropped, start = "", 0, end + 1
        text, dropped = _grown(text, dropped, piece[start:])
    if text or dropped:
        yield text, dropped, False


def _grown(text: str, dropped: int, more: str) -> tuple[str, int]:
    room = LONGEST_LINE - len(text)
    return text + more[:room], dropped + max(0, len(more) - room)
