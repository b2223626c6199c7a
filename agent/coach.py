"""What small local models are told beside a tool's own result: where to look next, and questions back.

Models of one or two billion parameters change the test instead of the code, give up after a search that found nothing,
and answer without having looked (docs/local-models.md). The coach adds the next sensible step to a result, asks back
before a doubtful edit, and asks back once when the model wants to end too early. It decides nothing for the model: each
question can be answered by doing the same again. Large models need none of it and do not see it.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.tools import edit, search
from agent.tools.arguments import parse_arguments
from agent.tools.base import Page, ToolContext, ToolError, ToolOutput
from agent.tools.under_test import Source, code_called, definition_at, failing_code, is_test, tested_files
from context.block import ToolCall
from context.canonical import digest
from context.repo.files import list_files

_MOST_FUNCTIONS: Final = 2
_MOST_LINES: Final = 40  # of one function
_MOST_WORDS: Final = 6  # of a search that is tried again word by word
_WORD: Final = re.compile(r"[^\W_]{3,}")
_TEST_RUN: Final = re.compile(r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|node --test|\w+ (?:run )?test)\b")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_MOST_NAMES: Final = 40  # words of a command that are looked up
_MOST_DEFINITIONS: Final = 6
# A line of search results: in a file of its own, or below the file's name.
_FOUND: Final = re.compile(r"(?:(\S[^:]*):)?(\d+): (.*)")
_QUESTION: Final = re.compile(
    r"\?\s*$|^(?:what|where|which|who|when|why|how|does|do|is|are|can|explain|describe|list|show|tell)\b", re.IGNORECASE
)
_CODE: Final = (".py", ".js", ".mjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".c", ".cc", ".cpp", ".java", ".rb")


@dataclass(slots=True)
class _Turn:
    """What has happened since the command."""

    command: str = ""
    looked: bool = False  # a file or a match was seen, or a command ran
    changed: set[str] = field(default_factory=set)
    ran_command: bool = False
    untested: bool = False  # code was changed after the last test run
    failed: str | None = None  # why the last edit or test run failed
    asked: set[str] = field(default_factory=set)  # questions that were asked already


class Coach:
    """One session's coach. Call `begin` with each command, `question` before and `hint` after each call, `objection`
    before the turn ends.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._turn = _Turn()

    async def begin(self, command: str) -> list[str]:
        """Notices to go with the command: where the things that it names are defined."""
        self._turn = _Turn(command)
        words = [word for word in dict.fromkeys(_NAME.findall(command)) if len(word) > 2][:_MOST_NAMES]
        if not words:
            return []
        defined = rf"\b(?:def|class|function|fn|func|struct|interface|type)\s+(?:{'|'.join(words)})\b"
        try:
            output = await search.tool.run({"pattern": defined}, self._context)
        except ToolError:
            return []
        return [text] if (text := await asyncio.to_thread(self._definitions, output.text)) else []

    def _definitions(self, found: str) -> str:
        """What a search for definitions found, with the source where it can be told."""
        pieces: list[str] = []
        path = ""
        for line in found.splitlines():
            if match := _FOUND.fullmatch(line):
                path = match[1] or path
                source = definition_at(self._context.root, path, int(match[2]))
                if len(pieces) < _MOST_FUNCTIONS and source is not None:
                    called = code_called(self._context.root, path, source.first) if is_test(path) else []
                    for each in (source, *called[:_MOST_FUNCTIONS]):
                        self._remember(each)
                        pieces.append(_shown(each))
                else:
                    pieces.append(f"{path}:{match[2]}: {match[3]}")
            elif line.endswith(":"):
                path = line[:-1]
        return "\n".join(["Named in the task:", *pieces[:_MOST_DEFINITIONS]]) if pieces else ""

    def veto(self, call: ToolCall) -> int | None:
        """Where an edit that is sure to be refused must come out otherwise: from the argument on that is to blame."""
        if call.name != edit.tool.spec.name:
            return None
        try:
            edit.check(parse_arguments(edit.tool.spec, call.arguments), self._context)
        except ToolError as error:
            at = call.arguments.find(f'"{error.argument}"')
            return at if at >= 0 else None
        return None

    async def question(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """What to ask the model instead of running the call; None to run it."""
        path = arguments.get("path", "")
        if name != "edit" or not is_test(path) or _only_adds(arguments["old"], arguments["new"]):
            return None
        turn = self._turn
        if not (self._context.root / path).exists():
            return None
        if (turn.changed and turn.failed is None) or not self._first(f"test:{path}"):
            return None
        tested = await asyncio.to_thread(tested_files, self._context.root, path)
        where = f" It tests {' and '.join(tested)}: read and edit that." if tested else ""
        return f"Not done yet: {path} is a test.{where} Send this edit again only if the test itself is wrong."

    async def hint(self, name: str, arguments: Mapping[str, Any], output: ToolOutput) -> str:
        """What to add to the call's result; empty for nothing."""
        match name:
            case "read":
                return await self._after_read(str(arguments["path"]))
            case "search":
                return await self._after_search(str(arguments["pattern"]), output)
            case "edit" | "write":
                self._after_change(str(arguments["path"]))
            case "shell":
                return await self._after_shell(str(arguments["command"]), output)
        return ""

    def failure(self, name: str, message: str) -> None:
        """Note that a call was refused or failed."""
        if name in ("edit", "write"):
            self._turn.failed = message.partition("\n")[0]

    def objection(self) -> str | None:
        """Why the turn should not end yet; None when it may. Each reason is given once in a turn."""
        turn = self._turn
        is_question = _QUESTION.search(turn.command.strip()) is not None
        if not turn.looked and self._first("looked"):
            return "You have not looked at any file yet. Search or read first, then answer."
        if turn.failed is not None and not is_question and self._first("failed"):
            return f"This is not done: {turn.failed} Read the code and make the right edit."
        if not is_question and not turn.changed and not turn.ran_command and self._first("changed"):
            return "No file was changed. If the task asks for a change, make it with edit; otherwise answer again."
        if turn.untested and self._has_tests() and self._first("tests"):
            return "The tests were not run after the last change. Run them, then answer."
        return None

    async def _after_read(self, path: str) -> str:
        self._turn.looked = True
        if not is_test(path):
            return ""
        tested = await asyncio.to_thread(tested_files, self._context.root, path)
        return f"[it tests {' and '.join(tested)}]" if tested else ""

    async def _after_search(self, pattern: str, output: ToolOutput) -> str:
        if not output.summary.startswith("no matches"):
            self._turn.looked = True
            return ""
        words = list(dict.fromkeys(word.lower() for word in _WORD.findall(pattern)))[:_MOST_WORDS]
        if not words:
            return ""
        try:
            loose = await search.tool.run({"pattern": "|".join(words), "ignore_case": True}, self._context)
        except ToolError:
            return ""
        if loose.summary.startswith("no matches"):
            return "Read a file that may hold it."
        self._turn.looked = True
        return f"Lines with {' or '.join(words)}:\n{loose.text}"

    def _after_change(self, path: str) -> None:
        turn = self._turn
        turn.changed.add(path)
        turn.failed = None
        turn.untested = turn.untested or Path(path).suffix in _CODE

    async def _after_shell(self, command: str, output: ToolOutput) -> str:
        turn = self._turn
        turn.looked = turn.ran_command = True
        if not output.summary.startswith("exit 0") and (wrong := await asyncio.to_thread(self._wrong_path, command)):
            return wrong
        if _TEST_RUN.search(command) is None:
            return ""
        turn.untested = False
        if output.summary.startswith("exit 0"):
            turn.failed = None
            return ""
        turn.failed = "the tests fail."
        found = await asyncio.to_thread(failing_code, self._context.root, output.text, _MOST_FUNCTIONS)
        for source in found:
            self._remember(source)
        return "\n".join(["The code under test:", *map(_shown, found)]) if found else ""

    def _wrong_path(self, command: str) -> str:
        """The right path for one in `command` that does not exist while a file of the same name does."""
        root = self._context.root
        for word in command.split():
            name = word.partition("::")[0].strip("'\"")
            if "." in name[1:-1] and not (root / name).exists():
                same = [path for path in list_files(root).paths if path.rpartition("/")[2] == name.rpartition("/")[2]]
                if len(same) == 1:
                    return f"There is no {name}, but {same[0]}."
        return ""

    def _remember(self, source: Source) -> None:
        """The model sees these lines now, as if it had read them."""
        path = (self._context.root / source.path).resolve()
        try:
            current = digest(path.read_bytes())
        except OSError:
            return
        if self._context.seen.get(path) is None:
            self._context.seen[path], self._context.shown[path] = current, [Page(source.first, source.last)]

    def _has_tests(self) -> bool:
        return any(is_test(path) for path in list_files(self._context.root).paths)

    def _first(self, question: str) -> bool:
        if question in self._turn.asked:
            return False
        self._turn.asked.add(question)
        return True


def _only_adds(old: str, new: str) -> bool:
    """Whether every line of `old` is still there in `new`, in order."""
    lines = iter(line.strip() for line in new.splitlines())
    return all(line.strip() in lines for line in old.splitlines() if line.strip())


def _shown(source: Source) -> str:
    lines = source.text.split("\n")
    cut = ["[…]"] if len(lines) > _MOST_LINES else []
    return "\n".join([f"{source.path}, lines {source.first}-{source.last}:", *lines[:_MOST_LINES], *cut])
