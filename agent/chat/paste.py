"""Pasted text: made harmless, and large pastes kept aside until they are sent.

A large paste is one character of the buffer (of a private area of Unicode) that is shown as `[pasted #1: 20 lines]`.
So it moves, is copied and deleted as a whole, whatever stands around it, and nothing that a person types can be taken
for it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from context.canonical import clean_text

MOST_LINES: Final = 10
MOST_CHARACTERS: Final = 1_000

_FIRST: Final = 0x10FFFD  # the first paste's character; the others go down from here
_LAST: Final = 0x10F000
_STANDS_FOR_PASTE: Final = re.compile(f"[{chr(_LAST)}-{chr(_FIRST)}]")
# Control sequences as in ECMA-48, section 5.4: with a final byte, as strings with a terminator, and of two bytes.
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_IMAGE: Final = re.compile(r"\.(png|jpe?g|gif|webp)$", re.IGNORECASE)
_WORD: Final = re.compile(r"""'(?P<single>[^'\n]*)'|"(?P<double>[^"\n]*)"|(?P<bare>(?:\\.|[^\s\\'"])+)""")


def harmless(text: str) -> str:
    """`text` with plain line ends, without control characters other than these and tabs, and valid as UTF-8."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return clean_text(_CONTROL.sub("", _SEQUENCE.sub("", lines)))


def images(text: str, directory: Path) -> list[Path]:
    """The image files whose paths `text` consists of, as a terminal writes them when files are dropped on it.

    Empty when anything else is in `text`, or one of them is no file. Relative paths are of `directory`.
    """
    found = []
    for name in _names(text):
        path = directory / Path(name).expanduser()
        if not _IMAGE.search(name) or not path.is_file():
            return []
        found.append(path)
    return found


class Pastes:
    """The large pastes of one session."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def put(self, text: str) -> str:
        """What goes into the buffer in the place of `text`, which is made harmless."""
        clean = harmless(text)
        if not _is_large(clean) and not _STANDS_FOR_PASTE.search(clean):
            return clean
        if len(self._texts) > _FIRST - _LAST:
            return _STANDS_FOR_PASTE.sub("\N{REPLACEMENT CHARACTER}", clean)
        self._texts.append(clean)
        return chr(_FIRST - len(self._texts) + 1)

    def expand(self, text: str) -> str:
        """`text` of the buffer with the pastes in it."""
        return _STANDS_FOR_PASTE.sub(lambda match: self._text(match[0]) or match[0], text)

    def label(self, character: str) -> str | None:
        """How a character of the buffer is shown, when it stands for a paste."""
        text = self._text(character)
        if text is None:
            return None
        lines = text.rstrip("\n").count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted #{_FIRST - ord(character) + 1}: {size}]"

    def _text(self, character: str) -> str | None:
        number = _FIRST - ord(character)
        return self._texts[number] if 0 <= number < len(self._texts) else None


def _is_large(text: str) -> bool:
    return len(text) > MOST_CHARACTERS or text.rstrip("\n").count("\n") >= MOST_LINES


def _names(text: str) -> Iterator[str]:
    """The file names in `text`: quoted or escaped as for a shell, or as `file:` addresses."""
    if "\n" not in text.strip() and _IMAGE.search(text.strip()) and text.strip().startswith(("/", "~")):
        whole = text.strip()
        if Path(whole).expanduser().is_file():  # some terminals neither quote nor escape
            yield whole
            return
    for match in _WORD.finditer(text):
        bare = match["bare"]
        if bare is None:
            yield match["single"] or match["double"] or ""
        elif bare.startswith("file://"):
            yield unquote(urlsplit(bare).path)
        else:
            yield re.sub(r"\\(.)", r"\1", bare)
