"""A unified diff on a terminal: coloured, without what could command the terminal, and folded when it is long."""

import difflib
import json
from typing import Final

from rich.text import Text

from context.names import show_name

_CONTEXT: Final = 2  # lines around a change of a call
LINES: Final = 40  # of a diff that are shown when it is longer
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


def show_diff(diff: str, lines: int | None = LINES) -> Text:
    """`diff` as text for rich. Of more than `lines` lines the middle is only counted."""
    shown = Text(overflow="fold")
    rows = diff.removesuffix("\n").split("\n")
    head = 2 if [row[:4] for row in rows[:2]] == ["--- ", "+++ "] else 0
    hidden = range(0) if lines is None or len(rows) <= lines + 1 else range(lines * 2 // 3, len(rows) - lines // 3)
    for number, row in enumerate(rows):
        if number == hidden.start and hidden:
            shown.append(f"[… {len(hidden):,} more lines]\n", "dim")
        if number not in hidden:
            shown.append(f"{_printable(row)}\n", "bold" if number < head else _STYLES.get(row[:1], ""))
    shown.right_crop(1)
    return shown


def edit_diff(arguments: str) -> str | None:
    """What a call of `edit` changes, from its arguments as the model wrote them; None where they do not say.

    Without line numbers: they are known only once the place is found.
    """
    try:
        given = json.loads(arguments)
        old, new = given["old"].splitlines(), given["new"].splitlines()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    lines = list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]
    hunks = "\n".join("…" if line.startswith("@@") else line for line in lines)
    return hunks.removeprefix("…\n") or None


def _printable(row: str) -> str:
    """Tabs stay; every other control character, and what turns the direction of writing, is shown as an escape."""
    return "\t".join(show_name(part) for part in row.split("\t"))
