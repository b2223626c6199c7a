"""Tokens as text. A token may end inside a character; such tokens are shown joined, and what never becomes a character
is shown as escapes: a broken character is never shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from context.names import show_name


@dataclass(frozen=True, slots=True)
class Group:
    """The fewest tokens in a row, `start` to `end` (without `end`), that are whole characters, and these."""

    start: int
    end: int
    text: str


def groups(pieces: Sequence[bytes]) -> list[Group]:
    """All `pieces` in order, those that share a character together."""
    found: list[Group] = []
    start, waiting = 0, b""
    for index, piece in enumerate(pieces):
        waiting += piece
        if not _is_cut(waiting):
            found.append(Group(start, index + 1, decoded(waiting)))
            start, waiting = index + 1, b""
    if waiting:
        found.append(Group(start, len(pieces), decoded(waiting)))
    return found


def whole(pieces: Sequence[bytes]) -> int:
    """How many of `pieces`, from the first one, end with a whole character: not those of one that is cut off."""
    found = groups(pieces)
    if found and _is_cut(b"".join(pieces[found[-1].start :])):
        return found[-1].start
    return len(pieces)


def decoded(data: bytes) -> str:
    """The text of `data`; bytes that are no UTF-8 as `\\xE7`."""
    return data.decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    """`text` on one line, with everything that could command a terminal or turn the writing as escapes."""
    return show_name(text)


def _is_cut(data: bytes) -> bool:
    """Whether `data` ends inside a character that further bytes can complete."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.end == len(data) and error.reason == "unexpected end of data"
    return False
