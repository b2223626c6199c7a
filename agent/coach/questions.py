"""Questions back, asked instead of making an edit that rarely is right. The same edit sent again is made."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from agent.coach.repository import Repository
from agent.coach.turn import Turn
from agent.tools.under_test import is_test

_DEFINED: Final = re.compile(r"^\s*(?:async\s+)?(?:def|class|function|fn|func)\s+(\w+)", re.MULTILINE)
_CASE: Final = re.compile(r"^\s*(?:test|it|describe)\s*\(", re.MULTILINE)  # of a test in JavaScript


async def before_edit(arguments: Mapping[str, Any], turn: Turn, repository: Repository) -> str | None:
    """What to ask before the edit is made; None to make it."""
    path, old, new = arguments["path"], arguments["old"], arguments["new"]
    if turn.is_about_failure and not turn.ran_tests and turn.first("reproduce"):
        return "Not done yet: you have not seen it fail. Run the test first."
    return (
        await asyncio.to_thread(_repeats, path, old, new, turn, repository)
        or await _still_used(old, new, turn, repository)
        or await _changes_test(path, old, new, turn, repository)
    )


def _repeats(path: str, old: str, new: str, turn: Turn, repository: Repository) -> str | None:
    """A question about new text that ends with lines which stand behind the old text already."""
    behind = repository.behind(path, old) if old else None  # behind an empty one, at the file's end, stands nothing
    if behind is None:
        return None
    lines = [line.strip() for line in new.splitlines()[len(old.splitlines()) :] if line.strip()]
    following = [line.strip() for line in behind.splitlines() if line.strip()][: len(lines) + 2]
    if len(lines) < 2 or not all(line in following for line in lines[-2:]):
        return None
    if not turn.first(f"repeats:{path}:{old}"):
        return None
    return (
        f"Not done yet: `{lines[-1]}` and the line before it stand behind `old` in {path} already and would be "
        "there twice. Change only the line that is wrong, or send this edit again."
    )


async def _still_used(old: str, new: str, turn: Turn, repository: Repository) -> str | None:
    """A question about a definition that an edit replaces by another one while it is still used."""
    before, after = _DEFINED.findall(old), _DEFINED.findall(new)
    for name in before if len(after) >= len(before) else ():
        if name in after or not turn.first(f"lost:{name}"):
            continue
        users = [line.path for line in await repository.search(rf"\b{name}\b") if line.text.strip() not in old]
        if users:
            where = " and ".join(list(dict.fromkeys(users))[:2])
            return (
                f"Not done yet: this would remove {name}, which is used in {where}. To add something new, leave "
                "`old` empty: `new` goes to the end of the file. To rename it, send this edit again."
            )
    return None


async def _changes_test(path: str, old: str, new: str, turn: Turn, repository: Repository) -> str | None:
    """A question about a test that is changed instead of the code, or that loses an assertion."""
    if not is_test(path) or _adds_definition(old, new) or not await asyncio.to_thread(repository.exists, path):
        return None
    if new.count("assert") < old.count("assert"):
        asked = f"test:{path}:{old}"  # each time: a test is not made to pass by taking out what it says
    elif turn.changed and turn.failed is None:
        return None
    else:
        asked = f"test:{path}"
    if not turn.first(asked):
        return None
    tested = await repository.tested_by(path)
    where = f" It tests {' and '.join(tested)}: read and edit that." if tested else ""
    return f"Not done yet: {path} is a test.{where} Send this edit again only if the test itself is wrong."


def _adds_definition(old: str, new: str) -> bool:
    """Whether every line of `old` is still there in `new`, in order, and there is a further function or the like."""
    if old and not any(len(kind.findall(new)) > len(kind.findall(old)) for kind in (_DEFINED, _CASE)):
        return False
    lines = iter(line.strip() for line in new.splitlines())
    return all(line.strip() in lines for line in old.splitlines() if line.strip())
