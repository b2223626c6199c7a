"""Splits Markdown that is still being written into pieces that are finished and a tail that may still change.

Pure. A piece is a top-level block that no later text can change: CommonMark decides its block structure line by line,
and only the last block is open. Two kinds of blocks may be long and are not held back until their end: the lines of a
fenced code block, and the items of a list. The time per character is bounded: a long tail is parsed again only when it
has grown by a quarter.

What is not as it would be in one piece: link reference definitions are plain text (a later one would change what was
written before), and the numbers of a long ordered list are aligned in each piece on its own. Long tables, quotes and
paragraphs are held back until their end.
"""

import re
from dataclasses import dataclass
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import table
from markdown_it.token import Token

_CODE_LINES: Final = 8  # of an open code block that make a piece
_LIST_LINES: Final = 24  # of an open list from which on its finished items are a piece
_SMALL: Final = 16  # lines of a tail that is parsed again with each new line
_GROWTH: Final = 4  # a longer one when it has grown by this part of it
_TAB: Final = 4  # columns
_ENDS_BY_ITSELF: Final = frozenset({"heading_open", "hr"})
_ENDED_BY_BLANK: Final = frozenset({"paragraph_open", "table_open", "blockquote_open"})


def _parser() -> MarkdownIt:
    """HTML and images are shown as they are written: nothing of a reply may vanish. A table is looked for after all
    that a line alone decides, as GitHub does, so that the line after a list item or a fence cannot undo it.
    """
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    parser.enable("strikethrough").disable(["reference", "image"])
    parser.block.ruler.before("lheading", "late_table", table, {"alt": ["paragraph"]})
    return parser


PARSER: Final = _parser()


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of a fenced code block without its fences. `language`: the first word behind the opening fence, or ""."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` as it came. `shown` is what it looks like on its own: Markdown, or lines of a code block. `continues`: it
    goes on with the block of the piece before. `number`: of its first item, if it goes on with an ordered list.
    """

    text: str
    shown: str | Code
    continues: bool = False
    number: int | None = None


class MarkdownStream:
    """Feed it with text in any portions. The texts of all pieces and the `tail` make the whole text again."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # whole lines of the tail
        self._rest: list[str] = []  # of the line that has not ended
        self._parse_at = 1  # lines of the tail
        self._fence: _Fence | None = None  # the tail goes on in it
        self._in_list = False  # the tail goes on with a list
        self._number: int | None = None  # that is ordered, with this item

    @property
    def tail(self) -> str:
        return "".join([*self._lines, *self._rest])

    def feed(self, text: str) -> list[Piece]:
        """What is finished now."""
        pieces = []
        start, *lines = text.split("\n")
        self._rest.append(start)
        for line in lines:
            pieces += self._take("".join(self._rest) + "\n")
            self._rest = [line]
        return pieces

    def finish(self) -> list[Piece]:
        """The tail as the end of the text makes it. The stream begins anew."""
        pieces = self.pending()
        self._lines, self._rest, self._fence = [], [], None
        self._begin_block()
        return pieces

    def pending(self) -> list[Piece]:
        """The tail as it would be if nothing came any more."""
        rest = "".join(self._rest)
        if not self._lines and not rest:
            return []
        lines = [*self._lines, rest] if rest else self._lines
        if self._fence is not None:
            return [self._fence.piece(lines, closed=self._fence.closed_by(rest))]
        return [self._as_piece(lines)]

    def _take(self, line: str) -> list[Piece]:
        """A whole line."""
        self._lines.append(line)
        if self._fence is not None:
            return self._in_fence(self._fence, line)
        count = len(self._lines)
        if count < self._parse_at:
            return []
        pieces = self._parse()
        count = len(self._lines)
        self._parse_at = count + (1 if count < _SMALL else count // _GROWTH)
        return pieces

    def _in_fence(self, fence: "_Fence", line: str) -> list[Piece]:
        closed = fence.closed_by(line)
        if not closed and len(self._lines) < _CODE_LINES:
            return []
        piece = fence.piece(self._lines, closed=closed)
        self._lines = []
        fence.opened = True
        if closed:
            self._fence = None
            self._begin_block()
        return [piece]

    def _parse(self) -> list[Piece]:
        tokens = PARSER.parse(_plain(self._lines))
        blocks = [(token, token.map[0]) for token in tokens if token.level == 0 and token.map is not None]
        if not blocks:
            return []
        pieces, done = [], 0
        for _, start in blocks[1:]:
            pieces.append(self._piece(self._lines[done:start]))
            done = start
        self._lines = self._lines[done:]
        last, start = blocks[-1]
        if last.type == "fence":
            return pieces + self._open_fence(last, start - done)
        if last.type in _ENDS_BY_ITSELF or (last.type in _ENDED_BY_BLANK and not self._lines[-1].strip(" \t\r\n")):
            pieces.append(self._piece(self._lines))
            self._lines = []
        elif last.type in ("bullet_list_open", "ordered_list_open") and len(self._lines) >= _LIST_LINES:
            pieces += self._finished_items(last, tokens, done)
        return pieces

    def _open_fence(self, token: Token, start: int) -> list[Piece]:
        """The lines of the tail from `start` on (blank ones before it) are in a fence, unless it is closed in them."""
        pieces = []
        before, lines = self._lines[:start], self._lines[start:]
        self._fence = _Fence(token, len(before), lines[0])
        self._lines = [*before, lines[0]]
        for line in lines[1:]:
            pieces += self._take(line)
        return pieces

    def _finished_items(self, token: Token, tokens: list[Token], done: int) -> list[Piece]:
        """All items of the list but the last. `done`: lines before the tail that `tokens` count too."""
        items = [
            each.map[0] - done for each in tokens if each.type == "list_item_open" and each.level == 1 and each.map
        ]
        items = [start for start in items if start >= 0]
        if len(items) < 2:
            return []
        first = self._number
        if first is None and token.type == "ordered_list_open":
            first = int(token.attrs.get("start", 1))
        piece = self._piece(self._lines[: items[-1]])
        self._lines = self._lines[items[-1] :]
        self._in_list, self._number = True, None if first is None else first + len(items) - 1
        return [piece]

    def _piece(self, lines: list[str]) -> Piece:
        """The finished `lines`, with which the tail began; another block follows."""
        piece = self._as_piece(lines)
        self._begin_block()
        return piece

    def _as_piece(self, lines: list[str]) -> Piece:
        return Piece("".join(lines), _plain(lines), self._in_list, self._number)

    def _begin_block(self) -> None:
        self._in_list, self._number, self._parse_at = False, None, 1


class _Fence:
    """A fenced code block that begins with the line `opening`, `ahead` blank lines into the tail. `opened`: that line
    is in an earlier piece.
    """

    def __init__(self, token: Token, ahead: int, opening: str) -> None:
        mark = token.markup
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*\n?")
        self._language = (token.info.split() or [""])[0]
        self._ahead = ahead + 1
        self._indent = len(opening) - len(opening.lstrip(" "))
        self.opened = False

    def closed_by(self, line: str) -> bool:
        return self._closing.fullmatch(line.replace("\r", "")) is not None

    def piece(self, lines: list[str], *, closed: bool) -> Piece:
        code = lines if self.opened else lines[self._ahead :]
        code = [_without_indent(line, self._indent) for line in (code[:-1] if closed else code)]
        return Piece("".join(lines), Code(self._language, _plain(code)), self.opened)


def _without_indent(line: str, columns: int) -> str:
    """`line` without up to `columns` columns of white space; what is left of a tab becomes spaces."""
    column = at = 0
    while column < columns and line[at : at + 1] in (" ", "\t"):
        column += _TAB - column % _TAB if line[at] == "\t" else 1
        at += 1
    return " " * max(0, column - columns) + line[at:]


def _plain(lines: list[str]) -> str:
    return "".join(lines).replace("\r", "")
