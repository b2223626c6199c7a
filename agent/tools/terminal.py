"""What commands write for a terminal, made into plain text: bytes in, readable text out, piece by piece."""

import codecs
import re
from typing import Final

# Colours and cursor movements (CSI), titles and links (OSC), device strings (DCS and the like), and short sequences.
_WHOLE: Final = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[PX^_][^\x07\x1b]*\x1b\\"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
)
# The same, cut off by the end of the text.
_OPEN: Final = r"(?P<open>(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[\]PX^_][^\x07\x1b]*\x1b?|\x1b[ -/]*)\Z)"
_ESCAPE: Final = re.compile(f"{_WHOLE}|{_OPEN}")
_LAST_ESCAPE: Final = re.compile(_WHOLE)
_LONGEST_ESCAPE: Final = 4_096  # characters that are held back in the hope of an end
_NO_TEXT: Final = re.compile("[\x00-\x07\x0b-\x0c\x0e-\x1a\x1b-\x1f\x7f\x9b]")
_LONGEST_LINE: Final = 65_536  # characters of a line that are held back because a carriage return may undo them


class PlainText:
    """Decodes UTF-8, with a replacement character for what is not, and drops escape sequences and control characters.

    Carriage returns and backspaces stay: a screen knows what they mean. `LineFolder` carries them out.
    """

    def __init__(self) -> None:
        self._decoder: Final = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        return self._clean(self._rest + self._decoder.decode(data), final=False)

    def close(self) -> str:
        """What was held back."""
        return self._clean(self._rest + self._decoder.decode(b"", True), final=True)

    def _clean(self, text: str, *, final: bool) -> str:
        self._rest = ""
        pieces, done = [], 0
        for escape in (_LAST_ESCAPE if final else _ESCAPE).finditer(text):
            if escape.lastgroup and len(escape[0]) > _LONGEST_ESCAPE:
                break
            self._rest = escape[0] if escape.lastgroup else ""
            pieces.append(text[done : escape.start()])
            done = escape.end()
        return _NO_TEXT.sub("", "".join([*pieces, text[done:]]))


class LineFolder:
    """Carries out carriage returns and backspaces, so that of a progress bar only its last state remains."""

    def __init__(self) -> None:
        self._line = ""

    def feed(self, text: str) -> str:
        """The text that is settled: whole lines, and the beginning of one that grows without end."""
        self._line += text
        lines, newline, self._line = self._line.rpartition("\n")
        settled = "\n".join(map(_folded, lines.split("\n"))) + newline if newline else ""
        if len(self._line) > _LONGEST_LINE:
            self._line = _folded(self._line) + ("\r" if self._line.endswith("\r") else "")
        if len(self._line) > _LONGEST_LINE:
            settled, self._line = settled + self._line, ""
        return settled

    def close(self) -> str:
        line, self._line = self._line, ""
        return _folded(line)


def _folded(line: str) -> str:
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    if "\b" not in line:
        return line
    kept: list[str] = []
    for char in line:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)
