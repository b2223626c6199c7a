"""Paths outside the working directory that a command line names, as far as they can be seen without running it.

This is a courtesy that catches slips, not a fence: a command can build any path while it runs.
"""

import os
import re
from pathlib import Path
from typing import Final

from agent.tools.base import ToolContext

_SEPARATORS: Final = re.compile(r"""[\s;|&()<>"'`=,:]+""")
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|\$\(\([^()]*\)\)""")
_REDIRECTED: Final = re.compile(r""">\s*["']?(/[^\s;|&()<>"'`/]+)""")
_HOME: Final = re.compile(r"^(?:~(?=/|$)|\$HOME\b|\$\{HOME\})")
_MOST_WORDS: Final = 1_000
_HARMLESS: Final = frozenset(
    map(Path, ("/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/urandom"))
)


def paths_in(command: str, context: ToolContext) -> tuple[Path, ...]:
    """Resolved paths outside the root that words of `command` name, through `..`, `~`, symlinks or an absolute path.

    Programs (what is in a folder of PATH, or is executable) and devices such as /dev/null do not count. An absolute
    word counts if it exists or could be created in an existing folder: `/api/v1` in a search pattern is no path. What
    could be created in `/` itself counts behind a redirection only, and slashes alone only outside of quotes and
    arithmetic: `$1 / $2` is a division.
    """
    programs = {Path(folder) for folder in context.env.get("PATH", "").split(os.pathsep) if folder.startswith("/")}
    unquoted = frozenset(_SEPARATORS.split(_QUOTED.sub(" ", command)))
    redirected = frozenset(_REDIRECTED.findall(command))
    found: dict[Path, None] = {}
    for word in _SEPARATORS.split(command)[:_MOST_WORDS]:
        if not word.strip("/") and word not in unquoted:
            continue
        path = context.root / word if word in redirected else _path(word, context)
        if path is None or path in _HARMLESS or path.parent in programs or _is_program(path):
            continue
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError):
            continue
        if not resolved.is_relative_to(context.root):
            found[resolved] = None
    return tuple(found)


def _is_program(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except OSError:
        return False


def _path(word: str, context: ToolContext) -> Path | None:
    """The path that `word` stands for, if it looks like one."""
    home = context.env.get("HOME")
    if home:
        word = _HOME.sub(lambda _: home, word)
    if not word:
        return None
    path = context.root / word
    if word.startswith("/") and not os.path.lexists(path):
        return path if path.parent != Path("/") and os.path.isdir(path.parent) else None
    return path
