"""New text in the place of old, line by line, so that what the model did not mean to change stays as it was."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

_LINE_END: Final = re.compile("(\r?\n)")
_MOST_WORK: Final = 1_000_000  # pairs of lines (or characters) that are compared to align old and new


def splice(actual: str, old: str, new: str, end_behind: str) -> str:
    """`new` as it replaces `actual`, which is `old` as the file has it (same lines, but for tolerated differences).

    A line that is the same in `old` and `new` stays as it is in `actual`, byte for byte. A changed line keeps the line
    end of the line that it replaces; an added one takes that of the line above it. `end_behind` is the line end that
    follows `actual` in the file. `old` and `new` have LF line ends.
    """
    was = _lines(actual, end_behind)
    old_lines, new_lines = old.split("\n"), new.split("\n")
    contents: list[str] = []
    ends: list[str] = []
    for index, source in enumerate(_sources(old_lines, new_lines)):
        if source is None:
            contents.append(new_lines[index])
            ends.append("")
        elif old_lines[source] == new_lines[index]:
            contents.append(was[source][0])
            ends.append(was[source][1])
        else:
            contents.append(_merged(was[source][0], old_lines[source], new_lines[index]))
            ends.append(was[source][1])
    return "".join(_joined(contents, ends, was[0][1]))


def _joined(contents: list[str], ends: list[str], above: str) -> Iterator[str]:
    for content, end in zip(contents[:-1], ends[:-1], strict=True):
        above = end or above
        yield content + above
    yield contents[-1]


def _sources(old: list[str], new: list[str]) -> list[int | None]:
    """For each new line the old line that it stems from: the same one, or the one that it replaces; None: added."""
    sources: list[int | None] = []
    for tag, start, stop, new_start, new_stop in _aligned(old, new):
        if tag in ("equal", "replace"):
            count = min(stop - start, new_stop - new_start)
            sources += [*range(start, start + count), *[None] * (new_stop - new_start - count)]
        elif tag == "insert":
            sources += [None] * (new_stop - new_start)
    return sources


def _merged(was: str, old: str, new: str) -> str:
    """One changed line: characters that `old` and `new` share stay as `was` has them (`old` but for look-alikes)."""
    body, old_body = was.rstrip(" \t"), old.rstrip(" \t")
    if body == old_body or len(body) != len(old_body):
        return new
    pieces = []
    for tag, start, stop, new_start, new_stop in _aligned(old_body, new):
        pieces.append(body[start:stop] if tag == "equal" else new[new_start:new_stop])
    return "".join(pieces)


def _aligned(old: list[str] | str, new: list[str] | str) -> list[tuple[str, int, int, int, int]]:
    if len(old) * len(new) > _MOST_WORK:
        return [("replace", 0, len(old), 0, len(new))]
    return list(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _lines(text: str, end_behind: str) -> list[tuple[str, str]]:
    """Pairs of a line and its end; that of the last line stands behind `text`."""
    pieces = _LINE_END.split(text)
    return list(zip(pieces[::2], [*pieces[1::2], end_behind], strict=True))
