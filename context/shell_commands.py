"""The simple commands of a piece of bash, wherever they stand in it: lists, pipes, subshells, functions, substitutions.

Two questions are asked of it, and they err in opposite directions. `commands` holds all that may run, rather too many:
nothing that a rule denies may hide. `plain` is set only where the whole text is understood beyond doubt: nothing that
no rule allows may slip through. The parser is tree-sitter's; it is no bash, so `plain` also takes a second reading.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from context.shell_words import HOLE, literal

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MOST_CHARS: Final = 100_000  # of a command line; what is longer is not understood
_CONTINUED: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
_HARMLESS_TARGETS: Final = frozenset({"/dev/null", "1", "2"})
_LISTS: Final = frozenset({"program", "list", "pipeline", "command", "command_name", "redirected_statement"})
_WORDS: Final = frozenset({"word", "string", "string_content", "raw_string", "number", "concatenation"})
_SIGNS: Final = frozenset({"&&", "||", ";", "|", "&", "\n", '"', "'", "-", "--"})
_SEPARATORS: Final = re.compile(r"^[;&|\n]+$")

Words = tuple[str, ...]
UNKNOWN: Final[Words] = (HOLE,)
"""A command of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Script:
    """`commands`: the words of every simple command in the text, in order; UNKNOWN among them for what was not
    understood. `plain`: the same, if the text is nothing but simple commands of known words in lists and pipes.
    """

    commands: tuple[Words, ...]
    plain: tuple[Words, ...] | None


@cache
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def read_script(text: str) -> Script:
    """What `text` runs."""
    if len(text) > _MOST_CHARS:
        return Script((UNKNOWN,), None)
    commands, plain, understood = _parsed(text)
    if _CONTINUED.search(text):
        # tree-sitter ends a word where a line is continued. In a comment a line is not continued, hence both readings.
        joined, _, also = _parsed(_CONTINUED.sub(r"\1", text))
        commands, plain, understood = [*commands, *joined], False, understood and also
    if not understood:
        commands.append(UNKNOWN)
    read_twice = plain and understood and _second_reading(text) == commands
    return Script(tuple(commands), tuple(commands) if read_twice else None)


def _parsed(text: str) -> tuple[list[Words], bool, bool]:
    """The commands, whether the text is plain, and whether it was understood."""
    data = text.encode("utf-8", "surrogateescape")
    root = _parser().parse(data).root_node
    commands, plain = list[Words](), True
    for node in _nodes(root):
        if node.type == "command":
            commands.append(_words(node, data))
        elif node.type == "declaration_command":
            commands.append(tuple(literal(_text(child, data)) for child in node.children))
        plain = plain and _is_plain(node, data)
    return commands, plain, not root.has_error


def _nodes(root: "Node") -> Iterator["Node"]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _is_plain(node: "Node", data: bytes) -> bool:
    if node.type == "file_redirect":
        return _text(node.children[-1], data) in _HARMLESS_TARGETS
    if node.parent is not None and node.parent.type == "file_redirect":
        return node.type in {">", ">>", ">&", "&>", "&>>", "file_descriptor", "word", "number"}
    return node.type in _LISTS | _WORDS | _SIGNS


def _words(command: "Node", data: bytes) -> Words:
    """The words of a command, also those that stand behind a redirection."""
    pieces = list[tuple[int, int]]()  # where each word begins and ends
    for node in _word_nodes(command):
        if pieces and pieces[-1][1] == node.start_byte:  # what the parser has cut in two
            pieces[-1] = (pieces[-1][0], node.end_byte)
        else:
            pieces.append((node.start_byte, node.end_byte))
    return tuple(literal(data[start:end].decode("utf-8", "surrogateescape")) for start, end in pieces) or UNKNOWN


def _word_nodes(command: "Node") -> Iterator["Node"]:
    redirected = command.parent is not None and command.parent.type == "redirected_statement"
    around = command.parent.children if redirected and command.parent is not None else []
    for node in (*command.children, *(other for other in around if other != command)):
        match node.type:
            case "variable_assignment" | "variable_assignments":
                continue
            case "file_redirect":
                yield from node.children_by_field_name("destination")[1:]
            case "heredoc_redirect":
                yield from (child for child in node.children if child.type in _WORDS)
            case "herestring_redirect":
                yield from node.named_children[1:]
            case _:
                yield node


def _text(node: "Node", data: bytes) -> str:
    return data[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")


def _second_reading(text: str) -> list[Words] | None:
    """The commands of a plain text as Python's lexer of shell words sees them; None where it is not plain."""
    if "\\\n" in text or "#" in text or "\r" in text:
        return None
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.commenters, lexer.whitespace = "", " \t"
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if _SEPARATORS.match(token):
            commands.append([])
        elif set(token) <= set("<>&") and token:
            if at + 1 == len(tokens) or tokens[at + 1] not in _HARMLESS_TARGETS:
                return None
            if commands[-1] and commands[-1][-1] in ("1", "2"):
                commands[-1].pop()
            at += 1
        else:
            commands[-1].append(token)
        at += 1
    return [tuple(words) for words in commands if words]
