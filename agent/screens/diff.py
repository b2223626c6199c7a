"""A unified diff on a terminal: coloured, without what could command the terminal, and folded when it is long."""

from typing import Final

from rich.text import Text

from context.names import show_name

LINES: Final = 40  # of a diff that are shown when it is longer
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


def show_diff(diff: str, lines: int | None = LINES) -> Text:
    """`diff` as text for rich, with a line feed at its end. Of more than `lines` lines the middle is only counted."""
    shown = Text()
    rows = diff.split("\n")
    hidden = range(0) if lines is None or len(rows) <= lines + 1 else range(lines * 2 // 3, len(rows) - lines // 3)
    for number, row in enumerate(rows):
        if number == hidden.start and hidden:
            shown.append(f"[… {len(hidden):,} more lines]\n", "dim")
        if number not in hidden:
            shown.append(f"{_printable(row)}\n", "bold" if number < 2 else _STYLES.get(row[:1], ""))
    return shown


def _printable(row: str) -> str:
    """Tabs stay; every other control character, and what turns the direction of writing, is shown as an escape."""
    return "\t".join(show_name(part) for part in row.split("\t"))
