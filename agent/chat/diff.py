"""Diffs in colours, with their signs, so that they can be read without colours too."""

import difflib
import json
from typing import Final

from rich.text import Text

from agent.screens.plain import plain

_CONTEXT: Final = 2  # lines around a change
_STYLES: Final = (("+++", "bold"), ("---", "bold"), ("+", "green"), ("-", "red"), ("@@", "cyan"))


def diff_view(diff: str, width: int, limit: int) -> Text:
    """A unified diff, `limit` lines of it at most. Lines longer than `width` go on in the next line."""
    lines = plain(diff).expandtabs(4).rstrip("\n").split("\n")
    shown, more = lines[:limit], len(lines) - limit
    text = Text(overflow="fold")
    for line in shown:
        text.append(f"{line}\n", _style(line))
    if more > 0:
        text.append(f"… {more:,} more line{'s' if more != 1 else ''}\n", "dim")
    text.right_crop(1)
    return text


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


def _style(line: str) -> str:
    return next((style for sign, style in _STYLES if line.startswith(sign)), "")
