"""The tool `search`: lines that match a regular expression, by ripgrep."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.paths import existing, resolve, show
from agent.tools.ripgrep import COMMON, NOT_GIT, ripgrep
from context.block import ToolSpec

_LONGEST_LINE: Final = 300  # bytes shown of one line
_MOST_PER_FILE: Final = 20  # matches, where several files are searched
_MOST_CONTEXT: Final = 20  # lines

_SPEC: Final = ToolSpec(
    "search",
    "Search file contents by regular expression (Rust syntax). Files ignored by git are left out.",
    """{"type":"object","properties":{"pattern":{"type":"string"},\
"path":{"type":"string","description":"file or folder"},\
"glob":{"type":"string","description":"such as *.py"},\
"context":{"type":"integer","minimum":0,"description":"lines around each match"},\
"ignore_case":{"type":"boolean"}},\
"required":["pattern"],"additionalProperties":false}""",
)
_COMPACT: Final = ToolSpec(
    "search",
    "Search all files by regular expression.",
    """{"type":"object","properties":{"pattern":{"type":"string"}},"required":["pattern"],"additionalProperties":false}""",
)

# With --null a line is `path NUL number : text`, or `-` for `:` around a match. A path may hold line ends, a text not.
_RECORD: Final = re.compile(rb"([^\0]*)\0(\d+)([:-])([^\n]*)\n")
# ripgrep's remark on a file that turned out to be binary after a match.
_BINARY_REMARK: Final = re.compile(rb"[^\n\0]*: (?:WARNING: stopped searching binary|binary file matches)[^\n]*\n")


class _Search:
    spec = _SPEC
    compact = _COMPACT

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        pattern = arguments["pattern"]
        if not pattern or "\0" in pattern + arguments.get("glob", ""):
            raise ToolError("The pattern is empty." if not pattern else "The pattern holds a NUL character.")
        path = resolve(arguments.get("path", "."), context)
        return Access(Effect.READ, f"search {pattern!r} in {show(path, context.root)}", (path,))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        target = await asyncio.to_thread(existing, arguments.get("path", "."), context)
        if not (target.is_file() or target.is_dir()):
            raise ToolError(f"{show(target, context.root)} is no regular file and no folder.")
        found = _Found(context, context.limits.matches if target.is_file() else _MOST_PER_FILE)
        async with ripgrep(_arguments(arguments, target, context), context.root, context.env) as running:
            async for line in _lines(running.chunks()):
                if not found.take(line):
                    break
        if running.error:
            raise ToolError(f"Not valid: {running.error}. For plain text, write \\ before special characters.")
        return found.output(arguments["pattern"])


tool: Tool = _Search()


@dataclass(frozen=True, slots=True)
class _Line:
    path: bytes
    number: int
    is_match: bool
    text: str


@dataclass(slots=True)
class _Found:
    """Collects lines until one of the limits is reached."""

    context: ToolContext
    most_per_file: int
    groups: list[tuple[bytes, list[str]]] = field(default_factory=list)
    matches: int = 0
    chars: int = 0
    in_file: int = 0
    number: int = 0
    more: bool = False

    def take(self, line: _Line) -> bool:
        """Add a line; False when there is no room for more."""
        limits = self.context.limits
        if (self.matches == limits.matches and line.is_match) or self.chars > limits.output_chars:
            self.more = True
            return False
        if not self.groups or self.groups[-1][0] != line.path:
            self.groups.append((line.path, []))
            self.in_file = self.number = 0
        lines = self.groups[-1][1]
        if self.in_file > self.most_per_file:
            return True
        if line.is_match:
            self.in_file += 1
            if self.in_file > self.most_per_file:
                lines.append("[more in this file]")
                return True
            self.matches += 1
        if self.number and line.number > self.number + 1 and not line.is_match:
            lines.append("--")
        self.number = line.number
        lines.append(f"{line.number}{':' if line.is_match else '-'} {line.text}")
        self.chars += len(lines[-1]) + 1
        return True

    def output(self, pattern: str) -> ToolOutput:
        if not self.matches:
            return ToolOutput("no matches", f"no matches for {pattern!r}")
        pieces = []
        for path, lines in self.groups:
            name = show(self.context.root / os.fsdecode(path), self.context.root)
            pieces += [f"{name}:{lines[0]}"] if len(lines) == 1 else [f"{name}:", *lines]
        if self.more:
            pieces.append("[there are more; narrow the pattern, path or glob]")
        count = f"{self.matches}{'+' if self.more else ''} match{'' if self.matches == 1 else 'es'}"
        files = f"{len(self.groups)} file{'' if len(self.groups) == 1 else 's'}"
        return ToolOutput("\n".join(pieces), f"{count} in {files}")


def _arguments(arguments: Mapping[str, Any], target: Path, context: ToolContext) -> list[str]:
    pattern = arguments["pattern"]
    flags = [*COMMON, "--no-heading", "--with-filename", "--line-number", "--no-context-separator", "--crlf"]
    flags += [f"--max-columns={_LONGEST_LINE}", "--max-columns-preview", f"--context={_lines_around(arguments)}"]
    if "\n" in pattern or "\\n" in pattern:
        flags.append("--multiline")
    if arguments.get("ignore_case", False):
        flags.append("--ignore-case")
    if glob := arguments.get("glob"):
        # A file that matches is searched even when .gitignore names it: whoever asks for `*.log` means it.
        flags.append(f"--glob={glob.removeprefix('./')}")
    where = f"./{target.relative_to(context.root)}" if target.is_relative_to(context.root) else str(target)
    return [*flags, NOT_GIT, f"--regexp={pattern}", "--", where]


def _lines_around(arguments: Mapping[str, Any]) -> int:
    return min(int(arguments.get("context", 0)), _MOST_CONTEXT)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[_Line]:
    rest = b""
    async for chunk in chunks:
        rest += chunk
        done = 0
        while True:
            if remark := _BINARY_REMARK.match(rest, done):
                done = remark.end()
            record = _RECORD.match(rest, done)
            if record is None:
                break
            path, number, mark, text = record.groups()
            yield _Line(path, int(number), mark == b":", _text(text.removesuffix(b"\r")))
            done = record.end()
        rest = rest[done:]


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")
