"""What bash makes of one word, as far as that can be known without running anything. Pure.

What cannot be known (an expansion, a glob) is a HOLE: it may stand for any text, also for several words or for none.
"""

import re
from typing import Final

HOLE: Final = "\ufdd0"  # a code point that is no character, so that no text holds it
_EXPANDS: Final = re.compile(r"[A-Za-z0-9_{(\[@*#?$!-]")
_BRACES: Final = re.compile(r",|\.\.")
_ANSI: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_NAMED: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}


def literal(raw: str) -> str:
    """The text of the word that is written `raw`, without quotes and escapes; from the first expansion on a HOLE."""
    out, at = list[str](), 0
    raw = raw.replace(HOLE, "?")
    if raw == "[":  # the program, not the beginning of a glob
        return raw
    while at < len(raw):
        char, after = raw[at], raw[at + 1 : at + 2]
        match char:
            case "\\":
                out.append("" if after == "\n" else after)
                at += 2
            case "'":
                end = _end(raw, at + 1, "'")
                out.append(raw[at + 1 : end])
                at = end + 1
            case "$" if after == "'":
                end = _ansi_end(raw, at + 2)
                out.append(_ansi(raw[at + 2 : end]))
                at = end + 1
            case "$" if after == '"':
                at += 1
            case '"':
                text, at = _double_quoted(raw, at + 1)
                out.append(text)
                if HOLE in text:
                    return "".join(out)
            case "*" | "?" if after != "(":
                out.append(HOLE)
                at += 1
            case _ if _unknown(raw, at):
                return "".join([*out, HOLE])
            case _:
                out.append(char)
                at += 1
    return "".join(out)


def _unknown(raw: str, at: int) -> bool:
    """Whether from here on something stands that is known only when it runs."""
    char, after = raw[at], raw[at + 1 : at + 2]
    match char:
        case "$":
            return bool(_EXPANDS.match(after))
        case "`" | "[" | "(" | ")":
            return True
        case "{":
            return bool(_BRACES.search(raw, at))
        case "<" | ">" | "@" | "+" | "!" | "*" | "?":
            return after == "("
    return False


def _double_quoted(raw: str, at: int) -> tuple[str, int]:
    """The text up to the closing quote, and the place behind it."""
    out = list[str]()
    while at < len(raw) and raw[at] != '"':
        char, after = raw[at], raw[at + 1 : at + 2]
        if char == "\\" and after and after in '$`"\\\n':
            out.append("" if after == "\n" else after)
            at += 2
        elif char == "`" or (char == "$" and _EXPANDS.match(after)):
            return "".join([*out, HOLE]), len(raw)
        else:
            out.append(char)
            at += 1
    return "".join(out), at + 1


def _end(raw: str, start: int, quote: str) -> int:
    found = raw.find(quote, start)
    return len(raw) if found < 0 else found


def _ansi_end(raw: str, at: int) -> int:
    while at < len(raw) and raw[at] != "'":
        at += 2 if raw[at] == "\\" else 1
    return min(at, len(raw))


def _ansi(text: str) -> str:
    return _ANSI.sub(_ansi_char, text).partition("\0")[0]  # bash ends the text at a NUL


def _ansi_char(match: re.Match[str]) -> str:
    two, four, eight, octal, control, named = match.groups()
    if control is not None:
        return chr(ord(control.upper()) & 0x1F)
    if named is not None:
        return _ANSI_NAMED.get(named, named if named in "\\'\"?" else f"\\{named}")
    code = int(octal, 8) & 0xFF if octal is not None else int(two or four or eight, 16)
    return chr(code) if code <= 0x10FFFF else "?"
