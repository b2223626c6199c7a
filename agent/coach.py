"""What small local models are told beside a tool's own result: where to look next, and questions back.

Models of one or two billion parameters change the test instead of the code, give up after a search that found nothing,
and answer without having looked (docs/local-models.md). The coach adds the next sensible step to a result, asks back
before a doubtful edit, and asks back once when the model wants to end too early. It decides nothing for the model: each
question can be answered by doing the same again. Large models need none of it and do not see it.
"""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.tools import edit, search
from agent.tools.arguments import parse_arguments
from agent.tools.base import Page, ToolContext, ToolError, ToolOutput
from agent.tools.paths import resolve
from agent.tools.textfile import load
from agent.tools.under_test import Source, code_called, definition_at, failing_code, is_test, tested_files
from context.block import ToolCall
from context.canonical import digest
from context.repo.files import list_files

_MOST_FUNCTIONS: Final = 2
_MOST_LINES: Final = 40  # of one function
_MOST_WORDS: Final = 8  # of a text that are looked for one by one
_MOST_LOOSE: Final = 15  # lines that hold one of them
_MOST_FILES: Final = 5_000  # that are looked at to tell whether one was changed
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_KINDS: Final = "export|public|static|const|let|var|final|def|class|function|fn|func|struct|interface|type"
# Words that say nothing of where to look.
_COMMON: Final = frozenset(
    (
        "about",
        "again",
        "also",
        "change",
        "code",
        "correct",
        "does",
        "each",
        "else",
        "every",
        "everywhere",
        "exactly",
        "fail",
        "fails",
        "file",
        "find",
        "fixed",
        "from",
        "function",
        "into",
        "line",
        "lines",
        "long",
        "make",
        "method",
        "must",
        "name",
        "nothing",
        "only",
        "otherwise",
        "please",
        "project",
        "should",
        "some",
        "test",
        "tests",
        "that",
        "them",
        "then",
        "there",
        "they",
        "this",
        "value",
        "what",
        "when",
        "where",
        "which",
        "with",
        "your",
    )
)
_TEST_RUN: Final = re.compile(r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|node --test|\w+ (?:run )?test)\b")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_MOST_NAMES: Final = 40  # words of a command that are looked up
_MOST_DEFINITIONS: Final = 6
# A line of search results: in a file of its own, or below the file's name.
_FOUND: Final = re.compile(r"(?:(\S[^:]*):)?(\d+): (.*)")
_DEFINED: Final = re.compile(r"^\s*(?:async\s+)?(?:def|class|function|fn|func)\s+(\w+)", re.MULTILINE)
_OVERVIEW_CHARS: Final = 1_500
_FAILS: Final = re.compile(r"\bfail(?:s|ed|ing|ure|ures)?\b", re.IGNORECASE)
_WANTS_TEST: Final = re.compile(r"\b(?:add|write)\b[^.?!]*\btests?\b", re.IGNORECASE)
_TASK_CHARS: Final = 500
_MOST_OBJECTIONS: Final = 3
_QUESTION: Final = re.compile(
    r"\?\s*$|^(?:what|where|which|who|when|why|how|does|do|is|are|can|explain|describe|list|show|tell)\b", re.IGNORECASE
)
_CODE: Final = (".py", ".js", ".mjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".c", ".cc", ".cpp", ".java", ".rb")


@dataclass(slots=True)
class _Turn:
    """What has happened since the command."""

    command: str = ""
    files: Mapping[str, tuple[int, int]] | None = None  # as they were
    looked: bool = False  # a file or a match was seen, or a command ran
    changed: set[str] = field(default_factory=set)
    ran_tests: bool = False
    untested: bool = False  # code was changed after the last test run
    failed: str | None = None  # why the last edit or test run failed
    objections: int = 0
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
        self._turn = _Turn(command, files=await asyncio.to_thread(self._files))
        names = [word for word in dict.fromkeys(_NAME.findall(command)) if len(word) > 2][:_MOST_NAMES]
        pieces = []
        if names:
            found = await self._search(rf"\b(?:{_KINDS})\s+(?:{'|'.join(names)})\b")
            pieces = await asyncio.to_thread(self._definitions, found)
        if words := _words(command):
            some = "|".join(words)
            named = rf"^(?:(?:{_KINDS})\s+)*\w*(?:{some})\w*\s*[:=]|^\s*\"\w*(?:{some})\w*\"\s*:"
            pieces += [
                f"{path}:{number}: {text}" for path, number, text in _found(await self._search(named, loose=True))
            ]
        if pieces:
            return ["\n".join(["Named in the task:", *dict.fromkeys(pieces[:_MOST_DEFINITIONS])])]
        return await asyncio.to_thread(self._overview) if _QUESTION.search(command.strip()) else []

    def _overview(self) -> list[str]:
        """The beginning of the README, for a question that names nothing in the code: it is about the whole."""
        name = self._readme()
        try:
            text = (self._context.root / name).read_text(errors="replace") if name else ""
        except OSError:
            return []
        return [f"{name} begins:\n{text[:_OVERVIEW_CHARS].strip()}"] if text.strip() else []

    async def _search(self, pattern: str, *, loose: bool = False) -> str:
        """What the tool `search` finds; empty for nothing. `loose`: in upper or lower case."""
        try:
            output = await search.tool.run({"pattern": pattern, "ignore_case": loose}, self._context)
        except ToolError:
            return ""
        return "" if output.summary.startswith("no matches") else output.text

    def _definitions(self, found: str) -> list[str]:
        """What a search for definitions found, with the source where it can be told."""
        pieces: list[str] = []
        for path, number, text in _found(found):
            source = definition_at(self._context.root, path, number)
            if len(pieces) >= _MOST_FUNCTIONS or source is None:
                pieces.append(f"{path}:{number}: {text}")
                continue
            called = code_called(self._context.root, path, source.first) if is_test(path) else []
            for each in (source, *called[:_MOST_FUNCTIONS]):
                self._remember(each)
                pieces.append(_shown(each))
        return pieces

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
        if name == "edit":
            if _FAILS.search(self._turn.command) and not self._turn.ran_tests and self._first("reproduce"):
                return "Not done yet: you have not seen it fail. Run the test first."
            if doubt := self._repeats(path, arguments["old"], arguments["new"]):
                return doubt
            if doubt := await self._still_used(arguments["old"], arguments["new"]):
                return doubt
        if name != "edit" or not is_test(path) or _only_adds(arguments["old"], arguments["new"]):
            return None
        turn = self._turn
        if not os.path.exists(resolve(path, self._context)):
            return None
        if arguments["new"].count("assert") < arguments["old"].count("assert"):
            asked = (
                f"test:{path}:{arguments['old']}"  # each time: a test is not made to pass by taking out what it says
            )
        elif turn.changed and turn.failed is None:
            return None
        else:
            asked = f"test:{path}"
        if not self._first(asked):
            return None
        tested = await asyncio.to_thread(tested_files, self._context.root, path)
        where = f" It tests {' and '.join(tested)}: read and edit that." if tested else ""
        return f"Not done yet: {path} is a test.{where} Send this edit again only if the test itself is wrong."

    def _repeats(self, path: str, old: str, new: str) -> str | None:
        """A question about new text that ends with lines which stand behind the old text already."""
        if not old:  # `new` goes to the end of the file: nothing stands behind it
            return None
        try:
            _, found, behind = load(resolve(path, self._context), path).view.partition(old)
        except (ToolError, OSError):  # the edit itself says what is wrong
            return None
        lines = [line.strip() for line in new.splitlines()[len(old.splitlines()) :] if line.strip()]
        following = [line.strip() for line in behind.splitlines() if line.strip()][: len(lines) + 2]
        if not found or len(lines) < 2 or not all(line in following for line in lines[-2:]):
            return None
        if not self._first(f"repeats:{path}:{old}"):
            return None
        return (
            f"Not done yet: `{lines[-1]}` and the line before it stand behind `old` in {path} already and would be "
            "there twice. Change only the line that is wrong, or send this edit again."
        )

    async def _still_used(self, old: str, new: str) -> str | None:
        """A question about a definition that an edit replaces by another one while it is still used."""
        before, after = _DEFINED.findall(old), _DEFINED.findall(new)
        for name in before if len(after) >= len(before) else ():
            if name in after or not self._first(f"lost:{name}"):
                continue
            users = [path for path, _, text in _found(await self._search(rf"\b{name}\b")) if text.strip() not in old]
            if users:
                where = " and ".join(list(dict.fromkeys(users))[:2])
                return (
                    f"Not done yet: this would remove {name}, which is used in {where}. To add something new, leave "
                    "`old` empty: `new` goes to the end of the file. To rename it, send this edit again."
                )
        return None

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
        """Why the turn should not end yet; None when it may. With the task, which small models lose sight of.

        Each reason is given once in a turn, but that nothing was changed as long as it is so.
        """
        reason = next((reason for name, reason in self._reasons() if self._first(name)), None)
        self._turn.objections += 1
        if self._turn.objections > _MOST_OBJECTIONS:
            return None
        return None if reason is None else f"{reason}\nThe task was: {self._turn.command[:_TASK_CHARS]}"

    def _reasons(self) -> Iterator[tuple[str, str]]:
        turn = self._turn
        is_question = _QUESTION.search(turn.command.strip()) is not None
        if not turn.looked:
            yield "looked", f"You have not looked at any file yet. Read {self._readme() or 'or search'}, then answer."
        if is_question:
            return
        if turn.files is not None and self._files() == turn.files:
            yield f"changed {turn.objections}", "Not done: no file was changed. Make the change with edit, then answer."
        if turn.failed is not None:
            yield "failed", f"Not done: {turn.failed} Read the code and make the right edit."
        if turn.untested and self._has_tests():
            yield "tests", "The tests were not run after the last change. Run them, then answer."
        if _WANTS_TEST.search(turn.command) and not any(is_test(path) for path in turn.changed):
            yield "new test", "Not done: no test was added. Read a test file and add the test there with edit."

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
        for words in (_words(pattern), _words(self._turn.command)):
            if words and (found := await self._search("|".join(words), loose=True)):
                lines = [f"{path}:{number}: {text}" for path, number, text in _found(found)][:_MOST_LOOSE]
                return "\n".join([f"Lines with {' or '.join(words)}:", *lines])
        return f"Read {self._readme() or 'a file that may hold it'}."

    def _after_change(self, path: str) -> None:
        turn = self._turn
        turn.changed.add(path)
        turn.failed = None
        turn.untested = turn.untested or Path(path).suffix in _CODE

    async def _after_shell(self, command: str, output: ToolOutput) -> str:
        turn = self._turn
        turn.looked = True
        if not output.summary.startswith("exit 0") and (wrong := await asyncio.to_thread(self._wrong_path, command)):
            return wrong
        if _TEST_RUN.search(command) is None:
            return ""
        turn.ran_tests = True
        turn.untested = False
        if output.summary.startswith("exit 0"):
            turn.failed = None
            return ""
        turn.failed = "the tests fail."
        found = await asyncio.to_thread(failing_code, self._context.root, output.text, _MOST_FUNCTIONS)
        for source in found:
            self._remember(source)
        return "\n".join(["The code under test:", *map(_shown, found)]) if found else ""

    def _readme(self) -> str | None:
        """The file that says what the project is, if there is one at the top."""
        return next((path for path in list_files(self._context.root).paths if path.lower().startswith("readme")), None)

    def _wrong_path(self, command: str) -> str:
        """The right path for one in `command` that does not exist while a file of the same name does."""
        root = self._context.root
        for word in command.split():
            name = word.partition("::")[0].strip("'\"")
            if "." in name[1:-1] and not os.path.exists(root / name):
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

    def _files(self) -> Mapping[str, tuple[int, int]] | None:
        """Time and size of each file, to tell whether any was changed; None for a repository that is too large."""
        paths = list_files(self._context.root).paths
        if len(paths) > _MOST_FILES:
            return None
        stats = {}
        for path in paths:
            try:
                stat = (self._context.root / path).stat()
            except OSError:
                continue
            stats[path] = (stat.st_mtime_ns, stat.st_size)
        return stats

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


def _words(text: str) -> list[str]:
    """The words of `text` that may tell where to look, in lower case."""
    return [word for word in dict.fromkeys(_WORD.findall(text.lower())) if word not in _COMMON][:_MOST_WORDS]


def _found(text: str) -> Iterator[tuple[str, int, str]]:
    """Path, line and text of each line that the tool `search` found."""
    path = ""
    for line in text.splitlines():
        if match := _FOUND.fullmatch(line):
            path = match[1] or path
            yield path, int(match[2]), match[3]
        elif line.endswith(":"):
            path = line[:-1]
