"""Where a piece of text stands in a file: exactly, or but for differences that models introduce without meaning them.

All texts here have LF line ends. Tolerated are, in this order: blanks at the ends of lines and look-alike characters
(dashes, quotes, spaces that a model writes as ASCII); then, for whole lines, an indentation that is shifted or has
tabs for spaces; then the other kind of quotes. A match says what was tolerated, and `new` is adapted the same way as
`old` had to be.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

# One character for one, so that places in the folded text are places in the text.
_LOOK_ALIKES: Final = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033"), '"'),
    **dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "),
}
_BLANKS: Final = " \t"
_MOST_WORK: Final = 200_000_000  # lines of the text times characters of what is looked for: at most seconds
_INDENT_UNITS: Final = (4, 2, 8)  # spaces that a tab may stand for

LOOK_ALIKE: Final = "look-alike characters"
TRAILING: Final = "blanks at line ends"
INDENTATION: Final = "indentation"
FINAL_END: Final = "no line end at the end of the file"

Reindent = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Match:
    """`text[start:end]` is where the old text stands. `old` and `new` are adapted to it, line for line."""

    start: int
    end: int
    old: str
    new: str
    tolerated: tuple[str, ...] = ()


def exact_matches(text: str, old: str, new: str) -> list[Match]:
    """The occurrences that do not overlap, from the left, as `str.replace` takes them."""
    matches, start = [], 0
    while (found := text.find(old, start)) >= 0:
        matches.append(Match(found, found + len(old), old, new))
        start = found + len(old)
    return matches


def overlaps(text: str, old: str, first: int) -> bool:
    """Whether `old` occurs a second time, overlapping its occurrence at `first`."""
    return 0 <= text.find(old, first + 1) < first + len(old)


def tolerant_matches(text: str, old: str, new: str) -> list[Match]:
    """Occurrences but for tolerated differences. Text of blanks only is not looked for, nor what is `too_much`."""
    if not old.strip() or too_much(text, old):
        return []
    found = list(_blanks_and_look_alikes(text, old, new)) or list(_indentation(text, old, new))
    found = found or list(_within_a_line(text, old, new)) or list(_at_the_end(text, old, new))
    # Last: a model that writes JSON avoids to escape `"` and takes `'`.
    return found or list(_blanks_and_look_alikes(text, old, new, quotes=True))


def too_much(text: str, old: str) -> bool:
    """Whether looking for `old` tolerantly could take minutes, in a thread that nothing can stop."""
    return text.count("\n") * len(old) > _MOST_WORK


def fold(text: str, *, quotes: bool = False) -> str:
    """`text` with look-alike characters as ASCII, of the same length. `quotes`: with one kind of quotes, too."""
    folded = text.translate(_LOOK_ALIKES)
    return folded.replace('"', "'") if quotes else folded


def _blanks_and_look_alikes(text: str, old: str, new: str, *, quotes: bool = False) -> Iterator[Match]:
    *lines, last = fold(old, quotes=quotes).split("\n")
    pattern = "".join(re.escape(line.rstrip(_BLANKS)) + "[ \t]*\n" for line in lines)
    stripped = last.rstrip(_BLANKS)
    # Blanks at the very end of `old` are blanks at the end of a line only where a line ends.
    pattern += re.escape(stripped) + ("[ \t]*(?=\n|\\Z)" if stripped != last else "")
    for found in re.finditer(pattern, fold(text, quotes=quotes)):
        actual = text[found.start() : found.end()]
        yield Match(found.start(), found.end(), old, new, _differences(actual, old))


def _indentation(text: str, old: str, new: str) -> Iterator[Match]:
    whole = old.endswith("\n")
    wanted, lines = old.removesuffix("\n").split("\n"), text.split("\n")
    wanted_bare, bare = _bare(wanted), _bare(lines)
    starts = _starts(lines)
    index = 0
    while (end := index + len(wanted)) <= len(lines):
        if bare[index:end] == wanted_bare and (end < len(lines) or not whole):
            there = lines[index:end]
            pairs = [
                (_indent(mine), _indent(line)) for mine, line in zip(wanted, there, strict=True) if mine.strip(_BLANKS)
            ]
            if (adapted := _adapted(old, new, pairs)) is not None:
                stop = starts[end] if whole else starts[end - 1] + len(there[-1])
                differences = _differences(text[starts[index] : stop], adapted[0])
                yield Match(starts[index], stop, *adapted, (INDENTATION, *differences))
                index = end
                continue
        index += 1


def _within_a_line(text: str, old: str, new: str) -> Iterator[Match]:
    """`old` and `new` begin with the same line without its indentation, as if within it, and the other lines are
    shifted.
    """
    (first, _, old_rest), (new_first, _, new_rest) = old.partition("\n"), new.partition("\n")
    if first != new_first or _indent(first) or not first or not old_rest.strip():
        return
    for match in _indentation(text, old_rest, new_rest):
        begin = text.rfind("\n", 0, max(match.start - 1, 0)) + 1
        line = text[begin : max(match.start - 1, 0)]
        if line.strip(_BLANKS) == first.rstrip(_BLANKS):
            bare = line.lstrip(_BLANKS)
            start = begin + len(line) - len(bare)
            yield replace(match, start=start, old=f"{bare}\n{match.old}", new=f"{bare}\n{match.new}")


def _at_the_end(text: str, old: str, new: str) -> Iterator[Match]:
    """`old` ends with a line end and the file does not."""
    if not old.endswith("\n"):
        return
    old, new = old[:-1], new.removesuffix("\n")
    for match in exact_matches(text, old, new) or _blanks_and_look_alikes(text, old, new):
        if match.end == len(text):
            yield replace(match, tolerated=(FINAL_END, *match.tolerated))


def _bare(lines: list[str]) -> list[str]:
    return [fold(line).strip(_BLANKS) for line in lines]


def _starts(lines: list[str]) -> list[int]:
    starts, position = [], 0
    for line in lines:
        starts.append(position)
        position += len(line) + 1
    return starts


def _adapted(old: str, new: str, pairs: list[tuple[str, str]]) -> tuple[str, str] | None:
    """`old` and `new` with the one change of indentation that turns the first of each pair into the second."""
    for change in _changes(pairs):
        if all(change(mine) == theirs for mine, theirs in pairs):
            old_lines, new_lines = _reindented(old, change), _reindented(new, change)
            if old_lines is not None and new_lines is not None:
                return old_lines, new_lines
    return None


def _changes(pairs: list[tuple[str, str]]) -> Iterator[Reindent]:
    mine, theirs = pairs[0]
    if theirs.endswith(mine):
        yield _deeper(theirs[: len(theirs) - len(mine)])
    elif mine.endswith(theirs):
        yield _shallower(mine[: len(mine) - len(theirs)])
    for unit in _INDENT_UNITS:
        yield _exchanged(" " * unit, "\t")
        yield _exchanged("\t", " " * unit)


def _deeper(by: str) -> Reindent:
    return lambda indent: by + indent


def _shallower(by: str) -> Reindent:
    return lambda indent: indent.removeprefix(by) if indent.startswith(by) else None


def _exchanged(one: str, other: str) -> Reindent:
    return lambda indent: indent.replace(one, other)


def _reindented(text: str, change: Reindent) -> str | None:
    lines = []
    for line in text.split("\n"):
        indent = _indent(line)
        if indent == line:  # a blank line has no indentation to keep
            lines.append("" if indent == "" else change(indent) or "")
            continue
        changed = change(indent)
        if changed is None:
            return None
        lines.append(changed + line[len(indent) :])
    return "\n".join(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_BLANKS))]


def _differences(actual: str, old: str) -> tuple[str, ...]:
    found = []
    pairs = list(zip(actual.split("\n"), old.split("\n"), strict=True))
    if any(mine.rstrip(_BLANKS) != theirs.rstrip(_BLANKS) for mine, theirs in pairs):
        found.append(LOOK_ALIKE)
    if any(_trailing(mine) != _trailing(theirs) for mine, theirs in pairs):
        found.append(TRAILING)
    return tuple(found)


def _trailing(line: str) -> str:
    return line[len(line.rstrip(_BLANKS)) :]
