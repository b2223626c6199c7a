"""The repository as the coach looks at it: searches, definitions, the code under test."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agent.tools import search
from agent.tools.base import Page, ToolContext, ToolError
from agent.tools.paths import resolve
from agent.tools.textfile import load
from agent.tools.under_test import Source, code_called, definition_at, failing_code, is_test, tested_files
from context.canonical import digest
from context.repo.files import list_files

_MOST_FUNCTIONS: Final = 2
_MOST_LINES: Final = 40  # of one function
_MOST_FILES: Final = 5_000  # that are looked at to tell whether one was changed
_FENCED: Final = re.compile(r"^```.*?(?:^```$|\Z)\n*", re.MULTILINE | re.DOTALL)
_OVERVIEW_CHARS: Final = 1_500
# A line of search results: in a file of its own, or below the file's name.
_FOUND: Final = re.compile(r"(?:(\S[^:]*):)?(\d+): (.*)")


class Found(NamedTuple):
    """A line that a search found; `str` of it is what the model sees."""

    path: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.text}"


class Repository:
    """The repository of `context`. Paths are relative to its root. What cannot be read counts as not there."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._root = context.root

    async def search(self, pattern: str, *, loose: bool = False) -> list[Found]:
        """What the tool `search` finds. `loose`: in upper or lower case."""
        try:
            output = await search.tool.run({"pattern": pattern, "ignore_case": loose}, self._context)
        except ToolError:
            return []
        return [] if output.summary.startswith("no matches") else list(_found(output.text))

    async def tested_by(self, test: str) -> list[str]:
        """The files that the test `test` is about."""
        return await asyncio.to_thread(lambda: tested_files(self._root, self._paths(), test))

    def exists(self, path: str) -> bool:
        return os.path.exists(resolve(path, self._context))

    def behind(self, path: str, text: str) -> str | None:
        """What stands behind the first `text`, which is not empty, in the file; None where it does not occur."""
        try:
            _, found, behind = load(resolve(path, self._context), path).view.partition(text)
        except (ToolError, OSError):
            return None
        return behind if found else None

    def definitions(self, lines: Sequence[Found]) -> list[str]:
        """The lines, in which something is defined, with the source where it can be told. For the model to see."""
        pieces: list[str] = []
        for line in lines:
            source = definition_at(self._root, line.path, line.number)
            if len(pieces) >= _MOST_FUNCTIONS or source is None:
                pieces.append(str(line))
                continue
            called = code_called(self._root, self._paths(), line.path, source.first) if is_test(line.path) else []
            pieces += [self._shown(each) for each in (source, *called[:_MOST_FUNCTIONS])]
        return pieces

    def code_behind(self, failures: str) -> list[str]:
        """The functions that the failures in the output of a test run lead to. For the model to see."""
        found = failing_code(self._root, self._paths(), failures, _MOST_FUNCTIONS)
        return [self._shown(source) for source in found]

    def overview(self) -> str | None:
        """The beginning of the README, without commands, which small models run. For the model to see."""
        name = self.readme()
        try:
            text = (self._root / name).read_text(errors="replace") if name else ""
        except OSError:
            return None
        prose = _FENCED.sub("", text)[:_OVERVIEW_CHARS].strip()
        return f"{name} begins:\n{prose}" if prose else None

    def readme(self) -> str | None:
        """The file that says what the project is, if there is one at the top."""
        return next((path for path in self._paths() if path.lower().startswith("readme")), None)

    def right_path(self, name: str) -> str | None:
        """The one file of the same name, where there is no `name`."""
        if os.path.exists(self._root / name):
            return None
        same = [path for path in self._paths() if path.rpartition("/")[2] == name.rpartition("/")[2]]
        return same[0] if len(same) == 1 else None

    def has_tests(self, ending: str = "") -> bool:
        """Whether there are tests, in files whose names end with `ending`."""
        return any(is_test(path) for path in self._paths() if path.endswith(ending))

    def stats(self) -> Mapping[str, tuple[int, int]] | None:
        """Time and size of each file, to tell whether any was changed; None for a repository that is too large."""
        paths = self._paths()
        if len(paths) > _MOST_FILES:
            return None
        stats = {}
        for path in paths:
            try:
                stat = (self._root / path).stat()
            except OSError:
                continue
            stats[path] = (stat.st_mtime_ns, stat.st_size)
        return stats

    def _paths(self) -> Sequence[str]:
        return list_files(self._root, self._context.env).paths

    def _shown(self, source: Source) -> str:
        """A definition as the model sees it. It counts as read from now on."""
        path = (self._root / source.path).resolve()
        try:
            current = digest(path.read_bytes())
        except OSError:
            current = None
        if current is not None and self._context.seen.get(path) is None:
            self._context.seen[path], self._context.shown[path] = current, [Page(source.first, source.last)]
        lines = source.text.split("\n")
        cut = ["[…]"] if len(lines) > _MOST_LINES else []
        return "\n".join([f"{source.path}, lines {source.first}-{source.last}:", *lines[:_MOST_LINES], *cut])


def _found(text: str) -> list[Found]:
    path, found = "", list[Found]()
    for line in text.splitlines():
        if match := _FOUND.fullmatch(line):
            path = match[1] or path
            found.append(Found(path, int(match[2]), match[3]))
        elif line.endswith(":"):
            path = line[:-1]
    return found
