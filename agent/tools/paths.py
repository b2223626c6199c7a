"""Paths as a model gives them and as it sees them: resolved for the permissions, printable for the prompt.

File names are bytes. Python holds names that are not UTF-8 as text with surrogate escapes, which no wire format can
carry; names may also hold newlines or codes that command a terminal. `show` writes such bytes as escapes (`\\xe9`,
`\\n`), and `resolve` finds the file again by what was shown.
"""

import difflib
import os
import unicodedata
from pathlib import Path
from typing import Final

from agent.tools.base import ToolContext, ToolError
from context.names import show_name
from context.repo.files import list_files

_MOST_SUGGESTIONS: Final = 3


def resolve(given: str, context: ToolContext) -> Path:
    """The absolute path that `given` leads to, with symlinks and `..` followed; it need not exist.

    Relative paths start at the root, `~` is the home directory of `context.env`. Below the root, a name that does not
    exist as given is taken for the one entry that is shown that way. Raises ToolError for what cannot be a path.
    """
    if not given.strip():
        raise ToolError("The path is empty.")
    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise ToolError("The path holds half a surrogate pair, which no file name can.") from None
    if "\0" in given:
        raise ToolError("The path holds a NUL character, which no file name can.")
    path = context.root / _expand_home(given, context)
    try:
        if path.is_relative_to(context.root) and not os.path.lexists(path):
            path = _named_as_shown(path, context.root)
        return path.resolve()
    except RuntimeError:  # what Python before 3.13 raises for a loop of symlinks
        raise ToolError(f"{show_name(given)}: the symlinks form a loop.") from None
    except OSError as error:
        raise failure(error, show_name(given)) from None


def show(path: Path, root: Path) -> str:
    """`path` for people and models: relative to `root` where it lies inside, in printable characters only."""
    return show_name(str(path.relative_to(root) if path.is_relative_to(root) else path))


def failure(error: OSError, name: str) -> ToolError:
    """A ToolError that says in one line what the operating system refused."""
    reason = (error.strerror or str(error)).lower()
    return ToolError(f"{name}: {reason}.")


def existing(given: str, context: ToolContext) -> Path:
    """`resolve`, for what must exist. Raises ToolError with the paths that may have been meant."""
    path = resolve(given, context)
    if not os.path.exists(path):
        raise missing(path, context)
    return path


def missing(path: Path, context: ToolContext) -> ToolError:
    """A ToolError for a file that does not exist, with the paths that may have been meant."""
    likely = _likely(path, context)
    hint = f" Did you mean {' or '.join(show_name(name) for name in likely)}?" if likely else ""
    return ToolError(f"{show(path, context.root)}: no such file.{hint}")


def _likely(path: Path, context: ToolContext) -> list[str]:
    names = list_files(context.root, context.env).paths
    tail = str(path).lstrip("/")  # models take the root of the repository for that of the file system
    if tail in names:
        return [tail]
    same = [name for name in names if os.path.basename(name) == path.name]
    return same[:_MOST_SUGGESTIONS] or difflib.get_close_matches(
        os.path.relpath(path, context.root), names[:5_000], n=_MOST_SUGGESTIONS, cutoff=0.75
    )


def _expand_home(given: str, context: ToolContext) -> str:
    home = context.env.get("HOME")
    if home and (given == "~" or given.startswith("~/")):
        return home + given[1:]
    return given


def _named_as_shown(path: Path, root: Path) -> Path:
    found = root
    for part in path.relative_to(root).parts:
        candidate = found / part
        if part != ".." and not os.path.lexists(candidate):
            entries = os.listdir(found) if found.is_dir() else []
            named = [entry for entry in entries if _nfc(part) in _spellings(entry)]
            if len(named) != 1:
                return path
            candidate = found / named[0]
        found = candidate
    return found


def _spellings(entry: str) -> set[str]:
    """Ways in which a model may write the name of a directory entry that it has been shown, or has guessed."""
    ways = {entry, show_name(entry)}
    if _has_surrogates(entry):
        raw = os.fsencode(entry)
        ways |= {raw.decode("utf-8", "replace"), raw.decode("latin-1")}
    return {_nfc(way) for way in ways}


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
