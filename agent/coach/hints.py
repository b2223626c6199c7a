"""Hints: where the things are that a task names, and what to look at after a result."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from agent.coach.repository import Repository
from agent.coach.turn import Turn
from agent.tools.base import ToolOutput
from agent.tools.under_test import is_test

_MOST_WORDS: Final = 8  # of a text that are looked for one by one
_MOST_LOOSE: Final = 15  # lines that hold one of them
_MOST_NAMES: Final = 40  # words of a command that are looked up
_MOST_DEFINITIONS: Final = 6
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_KINDS: Final = "export|public|static|const|let|var|final|def|class|function|fn|func|struct|interface|type"
# Words that say nothing of where to look.
_COMMON_WORDS: Final = """
about add again all also and any are but can change code correct does each else every everywhere exactly fail fails
file find fix fixed for from function has how its into line lines long make method must name new not nothing now old
one only otherwise please project read run should some tell test tests that the them then there they this two use
value was what when where which why with you your
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
_EVERYWHERE: Final = re.compile(
    r"\b(?:everywhere|throughout|rename\w*|(?:all|each|every) (?:places?|files?))\b", re.IGNORECASE
)
_TOKEN: Final = re.compile(r"\w(?:[\w.-]*\w)?")
_MOST_GONE: Final = 3  # tokens that an edit takes out, to be looked for elsewhere
_NONE_RAN: Final = re.compile(r"^(?:=+ )?(?:no tests ran|Ran 0 tests)", re.MULTILINE)
_NO_RUNNER: Final = re.compile(r"No module named '?(pytest|tox|nox)\b")
_TEST_RUN: Final = re.compile(r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|node --test|\w+ (?:run )?test)\b")


async def at_start(turn: Turn, repository: Repository) -> list[str]:
    """Notices to go with the command: where the things that it names are defined."""
    named = dict.fromkeys(_NAME.findall(turn.command))
    names = [word for word in named if len(word) > 2 and word.lower() not in _COMMON][:_MOST_NAMES]
    pieces: list[str] = []
    if names:
        defined = await repository.search(rf"\b(?:{_KINDS})\s+(?:{'|'.join(names)})\b")
        pieces = await asyncio.to_thread(repository.definitions, defined)
        turn.looked = turn.looked or bool(pieces)
    if words := _words(turn.command):
        some = "|".join(words)
        pattern = rf"^(?:(?:{_KINDS})\s+)*\w*(?:{some})\w*\s*[:=]|^\s*\"\w*(?:{some})\w*\"\s*:"
        pieces += map(str, await repository.search(pattern, loose=True))
    if pieces:
        return ["\n".join(["Named in the task:", *dict.fromkeys(pieces[:_MOST_DEFINITIONS])])]
    # A question that names nothing in the code is about the whole.
    overview = await asyncio.to_thread(repository.overview) if turn.is_question and not turn.looked else None
    return [] if overview is None else [overview]


async def after_call(
    name: str, arguments: Mapping[str, Any], output: ToolOutput, turn: Turn, repository: Repository
) -> str:
    """What to add to the result of a call; empty for nothing. Notes in `turn` what the call has done."""
    match name:
        case "read":
            turn.looked = True
            return await _after_read(str(arguments["path"]), repository)
        case "search" if output.summary.startswith("no matches"):
            return await _after_no_matches(str(arguments["pattern"]), turn, repository)
        case "search":
            turn.looked = True
        case "edit":
            turn.changed_file(str(arguments["path"]), arguments["old"], arguments["new"])
            return await _after_edit(arguments["old"], arguments["new"], turn, repository)
        case "write":
            turn.changed_file(str(arguments["path"]), "", arguments["content"])
        case "shell":
            turn.looked = True
            passed = output.summary.startswith("exit 0")
            return await _after_shell(str(arguments["command"]), output.text, turn, repository, passed=passed)
    return ""


async def _after_read(path: str, repository: Repository) -> str:
    tested = await repository.tested_by(path) if is_test(path) else []
    return f"[it tests {' and '.join(tested)}]" if tested else ""


async def _after_edit(old: str, new: str, turn: Turn, repository: Repository) -> str:
    """Where what the edit took out still stands, if the task is about all places."""
    kept = set(_TOKEN.findall(new))
    gone = [token for token in dict.fromkeys(_TOKEN.findall(old)) if token not in kept]
    if not 0 < len(gone) <= _MOST_GONE or _EVERYWHERE.search(turn.command) is None:
        return ""
    found = await repository.search(rf"\b(?:{'|'.join(map(re.escape, gone))})\b")
    return "\n".join(["Still to change:", *map(str, found[:_MOST_LOOSE])]) if found else ""


async def _after_no_matches(pattern: str, turn: Turn, repository: Repository) -> str:
    for words in (_words(pattern), _words(turn.command)):
        if words and (found := await repository.search("|".join(words), loose=True)):
            return "\n".join([f"Lines with {' or '.join(words)}:", *map(str, found[:_MOST_LOOSE])])
    return f"Read {repository.readme() or 'a file that may hold it'}."


async def _after_shell(command: str, output: str, turn: Turn, repository: Repository, *, passed: bool) -> str:
    tests = _TEST_RUN.search(command) is not None
    if not passed and (wrong := await asyncio.to_thread(_wrong_path, command, repository, tests=tests)):
        return wrong
    if not tests:
        return ""
    if not passed and (missing := _NO_RUNNER.search(output)):
        turn.untested = False  # nothing can be done about it here
        return f"{missing[1]} is not installed here, so the tests cannot be run. Answer without them."
    if not passed and _NONE_RAN.search(output):
        return f"No test ran. {await asyncio.to_thread(_all_tests, repository)}"
    turn.tested(passed=passed)
    if passed and turn.is_about_failure and not turn.changed:
        return await asyncio.to_thread(_all_tests, repository)
    code = [] if passed else await asyncio.to_thread(repository.code_behind, output)
    return "\n".join(["The code under test:", *code]) if code else ""


def _wrong_path(command: str, repository: Repository, *, tests: bool) -> str:
    """The right path for one in `command` that does not exist while a file of the same name does; for a run of `tests`
    that do not exist at all, that of all tests.
    """
    for word in command.split():
        name = word.partition("::")[0].strip("'\"")
        if "." in name[1:-1] and (right := repository.right_path(name)):
            return f"There is no {name}, but {right}."
        if tests and "." in name[1:-1] and is_test(name) and not repository.exists(name):
            return f"There is no {name}. {_all_tests(repository)}"
    return ""


def _all_tests(repository: Repository) -> str:
    return f"Run all tests{': python -m pytest -q' if repository.has_tests('.py') else '.'}"


def _words(text: str) -> list[str]:
    """The words of `text` that may tell where to look, in lower case."""
    return [word for word in dict.fromkeys(_WORD.findall(text.lower())) if word not in _COMMON][:_MOST_WORDS]
