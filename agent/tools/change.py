"""What a call will change, as a unified diff for the person who is asked."""

import difflib
from collections.abc import Mapping
from io import StringIO
from typing import Final

from agent.redact import Redactor

_LARGEST: Final = 1 << 20  # characters of both texts: the time that a diff takes grows faster than they do
_NO_LINE_END: Final = "\\ No newline at end of file"


def unified(name: str, before: str | None, after: str, env: Mapping[str, str]) -> str | None:
    """The diff from `before` (None: there is no file yet) to `after`, without the secrets of `env` (rule R10).

    None where the texts are equal, or too large. A line that ends with CRLF keeps its CR, so that a change of line ends
    shows. The name and the text hold what they hold: whoever shows the diff takes care of control characters.
    """
    if len(before or "") + len(after) > _LARGEST:
        return None
    source = "/dev/null" if before is None else f"a/{name}"
    lines = list[str]()
    for line in difflib.unified_diff(_lines(before or ""), _lines(after), source, f"b/{name}"):
        lines += [line[:-1]] if line.endswith("\n") else [line, _NO_LINE_END]
    return Redactor(env)("\n".join(lines)) or None


def _lines(text: str) -> list[str]:
    """Lines with their line feeds. (`str.splitlines` also splits at form feeds and the like.)"""
    return list(StringIO(text, newline="\n"))
