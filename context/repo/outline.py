"""What a source file defines and uses, read by tree-sitter, also while the file is broken or half typed."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from tree_sitter import Node, Parser, Point, QueryCursor, Tree

from context.byte_order_marks import MARKS
from context.names import show_name
from context.repo.grammars import LANGUAGE_OF_SUFFIX, load, versions

VERSION: Final = f"format=1 {versions()}"

_SIZE_LIMIT: Final = 1_000_000  # bytes
_LONG_LINE: Final = 1_000  # bytes; where most of a file is in longer ones, a program wrote it (minified code, data)
_WIDTH: Final = 160  # characters of a signature
_LOOK: Final = 4_000  # bytes from the start of a definition in which its signature is looked for
_DEEPEST: Final = 8  # definitions around one that is told
_TREE_DEPTH: Final = 1_000  # levels of the syntax tree that are looked at: a query takes longer the deeper it is
_PIECE: Final = 1 << 16  # bytes that the parser asks for at a time
# The parser reports every 100 steps. Real code, whole or cut anywhere, takes up to 1 report per 85 bytes beyond the
# first 100; what takes more is no code. Somewhere between 5,000 and 10,000 the parser can overflow its stack when it
# frees what it tried (tree-sitter 0.26.1, Python: 900 kB of "/*"). Counted, not timed: every machine gives up alike.
_REPORTS_MIN: Final = 100
_BYTES_PER_REPORT: Final = 60
_REPORTS_MAX: Final = 4_000
_DAMAGE_LIMIT: Final = 2_000  # nodes side by side in what could not be parsed: a query takes their number squared
_OPENERS: Final = frozenset({"holder", "part", "module", "space", "scope"})  # what is inside is looked at
_TRANSPARENT: Final = frozenset({"module", "space"})  # what is inside counts as the file's own
_NAMELESS: Final = frozenset({"part", "space", "member"})  # the name stands for something of other files too
_KINDS: Final = ("holder", "part", "module", "space", "scope", "member", "function", "value", "constant")
_UPPER_CASE: Final = re.compile(r"_*[A-Z][A-Z0-9_]*")
_BEFORE: Final = re.compile(rb"[^{}();\n]*")  # what may stand before a definition and belong to it: `export default`
_PADDED: Final = re.compile(r"(?<=[(\[])\s+|\s+(?=[)\]])")  # where a list over several lines was joined
# The macro in `class QT_EXPORT Widget : public Base {`.
_CLASS_MACRO: Final = re.compile(
    rb"\b((?:class|struct)\s+)([A-Z][A-Z0-9_]{2,})(?=\s+\w+(?:\s+final)?\s*(?::[^;{}()]{,400})?\{)"
)
_TRAILING: Final = re.compile(r"(?:=>|[\s:{};=,\\])+\Z")


@dataclass(frozen=True, slots=True)
class Outline:
    """Of one file. Deterministic.

    `text`: a line per definition, `<line number>: <signature>`, as it stands in the source without its body; two
    spaces for each level of nesting; no line feed at the end. Empty where nothing is defined. `defines`: names of its
    top-level definitions, in their order, each once. `mentions`: identifiers that it uses in its code.
    """

    text: str
    defines: tuple[str, ...]
    mentions: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Found:
    """A node that the query names, and the bytes that it spans. `body`: where its signature ends."""

    kind: str
    node: Node
    start: int
    end: int
    body: int


def language_of(name: str) -> str | None:
    """Of the file `name`, by its suffix. None: it has no outline."""
    return LANGUAGE_OF_SUFFIX.get(PurePosixPath(name).suffix.lower())


def outline(name: str, data: bytes) -> Outline | None:
    """Of the bytes `data` of the file `name`. Never fails.

    None: no grammar for it, no text, larger than 1 MB (dense code: than about 400 kB), not written by a person, too
    damaged to be read in bounded time, or nothing in it to tell.
    """
    language = language_of(name)
    source = _source(data) if language and len(data) <= _SIZE_LIMIT else None
    if language is None or source is None or _machine_made(source):
        return None
    grammar, query = load(language)
    tree = _parse(Parser(grammar), _without_macros(source) if language in ("c", "cpp") else source)
    if tree is None or _too_damaged(tree):
        return None
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(_TREE_DEPTH)
    captures = cursor.captures(tree.root_node)
    signatures = _Signatures(source, [node.byte_range for node in captures.get("leave", ())])
    used = Counter(source[node.start_byte : node.end_byte].decode() for node in captures.get("mention", ()))
    lines: list[str] = []
    defines: dict[str, None] = {}
    for found, depth, top in _told(captures):
        defined = _name(source, found.node)
        if found.kind == "constant" and not _UPPER_CASE.fullmatch(defined):
            continue
        lines.append(signatures.line(found, depth))
        used[defined] -= 1
        if top and found.kind not in _NAMELESS:
            defines[defined] = None
    mentions = frozenset(name for name, times in used.items() if times > 0)
    if not lines and not mentions:
        return None
    return Outline("\n".join(lines), tuple(defines), mentions)


def _source(data: bytes) -> bytes | None:
    """`data` as UTF-8 with line feeds between lines, so that neither encoding nor line ends show. None: no text."""
    for mark, codec in MARKS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(codec, errors="replace")
            break
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("cp1252", errors="replace")
    if "\0" in text:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n").encode()


def _machine_made(source: bytes) -> bool:
    return 2 * sum(len(line) for line in source.split(b"\n") if len(line) > _LONG_LINE) > len(source)


def _without_macros(source: bytes) -> bytes:
    """As long as `source`; without the preprocessor the grammar takes such a class for a function."""
    return _CLASS_MACRO.sub(lambda match: match[1] + b" " * len(match[2]), source)


def _parse(parser: Parser, source: bytes) -> Tree | None:
    """None: given up."""
    reports = 0

    def give_up(offset: int, _error: bool) -> bool:
        nonlocal reports
        reports += 1  # held against what was read, not against the whole: some takes 2 MB of memory for each
        return reports > min(_REPORTS_MIN + offset // _BYTES_PER_REPORT, _REPORTS_MAX)

    def read(offset: int, _point: Point) -> bytes:
        return source[offset : offset + _PIECE]

    try:
        return parser.parse(read, progress_callback=give_up)
    except ValueError:  # what the binding raises when it was told to give up
        return None


def _too_damaged(tree: Tree) -> bool:
    """Only what holds errors is looked at."""
    cursor = tree.walk()
    while True:
        node = cursor.node
        damaged = node is not None and node.has_error
        if node is not None and damaged and node.is_error and node.child_count > _DAMAGE_LIMIT:
            return True
        if damaged and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False


def _told(captures: dict[str, list[Node]]) -> Iterator[tuple[_Found, int, bool]]:
    """Definitions in the order of the source, each with its depth and whether it is the file's own (not a class's).

    No recursion and no look at a node's parent, which would cost as much as the tree is deep.
    """
    found = [_Found(kind, node, *node.byte_range, _body(node)) for kind in _KINDS for node in captures.get(kind, ())]
    found.sort(key=lambda one: (one.start, -one.end))
    around: list[_Found] = []
    hidden = 0  # up to this byte everything is inside of something whose inside is not told
    for one in found:
        while around and around[-1].end <= one.start:
            around.pop()
        # What begins in a signature belongs to it, such as the struct of a typedef.
        if one.start < hidden or len(around) == _DEEPEST or (around and one.start < around[-1].body):
            continue
        if one.kind != "scope":
            depth = sum(outer.kind != "scope" for outer in around)
            yield one, depth, all(outer.kind in _TRANSPARENT for outer in around)
        # A module may be wrapped in a nameless function; deeper ones are the bodies of callbacks.
        if one.kind in _OPENERS and not (one.kind == "scope" and any(outer.kind == "scope" for outer in around)):
            around.append(one)
        else:
            hidden = one.end


def _body(node: Node) -> int:
    """Where the signature of `node` ends: at its body, or at that of the function or struct that it names."""
    inner: Node | None = node
    for field in ("body", "value", "right", "type"):
        inner = node.child_by_field_name(field)
        body = inner.child_by_field_name("body") if inner and field != "body" else inner
        if body:
            return body.start_byte
    return node.end_byte


def _name(source: bytes, node: Node) -> str:
    """The name that `node` defines, without what qualifies it: `bar` of `void Foo::bar()`."""
    while True:
        for field in ("name", "declarator", "left", "property"):
            inner = node.child_by_field_name(field)
            if inner:
                node = inner
                break
        else:
            first = node.named_child(0) if node.named_child_count else None
            if first is None:
                return source[node.start_byte : node.end_byte].decode()
            node = first


class _Signatures:
    """Lines of the outline. `leave`: spans of bytes that no signature tells."""

    def __init__(self, source: bytes, leave: list[tuple[int, int]]) -> None:
        self._source = source
        self._leave = sorted(leave)

    def line(self, found: _Found, depth: int) -> str:
        start = self._first(found)
        text = self._between(start, min(found.body, start + _LOOK), found).decode(errors="ignore")
        if found.kind in ("value", "constant"):
            text = text.partition("\n")[0]
        text = _TRAILING.sub("", show_name(_PADDED.sub("", " ".join(text.split()))[: 2 * _WIDTH]))
        if found.node.type == "type_definition" and found.body < found.end:
            text = f"{text} {{…}} {_name(self._source, found.node)}"
        cut = f"{text[: _WIDTH - 1]}…" if len(text) > _WIDTH else text
        back, on = min(start, found.start), max(start, found.start)
        number = found.node.start_point.row + 1 + (self._source.count(b"\n", back, on))
        return f"{number}: {'  ' * depth}{cut}"

    def _first(self, found: _Found) -> int:
        """Where the signature begins: with the `export` or `const` before it on its line, after its annotations."""
        line = self._source.rfind(b"\n", max(0, found.start - _WIDTH), found.start) + 1
        start = line if (line or found.start <= _WIDTH) and self._joins(line, found.start) else found.start
        at = bisect_left(self._leave, (start, 0))
        while True:
            start = self._end_of_blanks(start, found.body)
            while at < len(self._leave) and self._leave[at][0] < start:
                at += 1
            if at == len(self._leave) or self._leave[at][0] != start or self._leave[at][1] >= found.body:
                return start
            start = self._leave[at][1]

    def _joins(self, start: int, end: int) -> bool:
        return _BEFORE.fullmatch(self._source, start, end) is not None

    def _end_of_blanks(self, start: int, end: int) -> int:
        return end - len(self._source[start:end].lstrip()) if start < end else start

    def _between(self, start: int, end: int, found: _Found) -> bytes:
        pieces = []
        at = start
        for first, last in self._leave[bisect_left(self._leave, (start, 0)) :]:
            if first >= end:
                break
            if first >= at and (first, last) != (found.start, found.end):
                pieces.append(self._source[at:first])
                at = last
        return b"".join([*pieces, self._source[at:end]])
