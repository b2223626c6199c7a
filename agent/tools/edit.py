"""The tool `edit`: a piece of a file is replaced by another, and every byte outside of it stays."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.redact import Redactor
from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.change import unified
from agent.tools.matching import Match, exact_matches, overlaps, tolerant_matches, too_much
from agent.tools.nearest import nearest
from agent.tools.pages import covers_all
from agent.tools.paths import missing, resolve, show
from agent.tools.splice import splice
from agent.tools.syntax import syntax_problem
from agent.tools.textfile import TextFile, load, replace
from agent.tools.write import tool as write
from context.block import ToolSpec
from context.canonical import digest

_NEAREST_LINES: Final = 30  # shown of the nearest match
_PLACES: Final = 10  # line numbers in a message
_ECHO: Final = 80  # characters of new text in a message

_SPEC: Final = ToolSpec(
    "edit",
    "Replace text in a file. `old` is copied exactly from the file and occurs once, unless `all` is set. "
    "Line ends and encoding are kept.",
    """{"type":"object","properties":{"path":{"type":"string"},\
"old":{"type":"string"},"new":{"type":"string"},\
"all":{"type":"boolean","description":"replace every occurrence"}},\
"required":["path","old","new"],"additionalProperties":false}""",
)
_COMPACT: Final = ToolSpec(
    "edit",
    "Replace text in a file. `old`: copied exactly from the file; empty for a new file.",
    """{"type":"object","properties":{"path":{"type":"string"},\
"old":{"type":"string"},"new":{"type":"string"}},\
"required":["path","old","new"],"additionalProperties":false}""",
)


class _Edit:
    spec = _SPEC
    compact = _COMPACT

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        path = resolve(arguments["path"], context)
        if _lf(arguments["old"]) == _lf(arguments["new"]):
            some = "Put only the lines to change into `old`; " if "\n" in arguments["old"].strip("\n") else ""
            raise ToolError(
                f"`old` and `new` are the same, so nothing would change. {some}`new` must be the changed text.",
                argument="new",
            )
        hidden = Redactor(context.env).placeholder_in(arguments["old"] + arguments["new"])
        if hidden is not None:
            raise ToolError(f"{hidden} stands for a value that is hidden from you. Edit only the text around it.")

        def diff() -> str | None:
            if not arguments["old"] and not os.path.exists(path):
                made = write.access({"path": arguments["path"], "content": arguments["new"]}, context)
                return made.diff() if made.diff is not None else None
            plan = _plan(path, arguments, context)
            return unified(plan.name, plan.file.text, plan.after, context.env)

        return Access(Effect.WRITE, f"edit {show(path, context.root)}", (path,), diff=diff)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        path = resolve(arguments["path"], context)
        if not arguments["old"] and not await asyncio.to_thread(os.path.exists, path):
            return await write.run({"path": arguments["path"], "content": arguments["new"]}, context)
        plan = await asyncio.to_thread(_plan, path, arguments, context)
        # From here to the end nothing is awaited: a cancelled edit has happened completely or not at all.
        replace(plan.file.path, plan.name, plan.data, plan.file.stat)
        _remember(plan, context)
        return ToolOutput(plan.report, plan.report)


tool: Tool = _Edit()


def check(arguments: Mapping[str, Any], context: ToolContext) -> None:
    """Raises the ToolError that the edit would end with as things stand. Changes nothing."""
    tool.access(arguments, context)
    path = resolve(arguments["path"], context)
    if arguments["old"] or os.path.exists(path):
        _plan(path, arguments, context)


@dataclass(frozen=True, slots=True)
class _Plan:
    file: TextFile
    name: str
    after: str
    data: bytes
    report: str


def _plan(path: Path, arguments: Mapping[str, Any], context: ToolContext) -> _Plan:
    """What the edit will do. Reads, but changes nothing."""
    name = show(path, context.root)
    try:
        file = load(path, name)
    except FileNotFoundError:
        raise missing(path, context) from None
    known = context.seen.get(path)
    if known is not None and known != file.digest:
        raise ToolError(f"{name} has changed on disk since you read it. Read it again before you edit it.")
    old, new, every = _lf(arguments["old"]), _lf(arguments["new"]), bool(arguments.get("all", False))
    if old:
        matches = _matches(file, name, old, new, every, tolerant=known is not None)
    else:
        matches = [_at_the_end(file.view, new)]
    after, lines = _apply(file, matches)
    if after == file.text:
        raise ToolError(f"{name} has this text already, so nothing would change.")
    _refuse_broken_syntax(file, name, after)
    return _Plan(file, name, after, file.encode(after), _report(name, matches, lines))


def _at_the_end(text: str, new: str) -> Match:
    """`new` behind the text, or in its place if it holds all of its lines and more."""
    rest = iter(new.split("\n"))
    if text.strip() and all(line in rest for line in text.rstrip("\n").split("\n")):
        return Match(0, len(text), text, new)
    end = "" if not text or text.endswith("\n") else "\n"
    lead = new[: len(new) - len(new.lstrip("\n"))] or ("\n\n" if text.strip() else "")
    return Match(len(text), len(text), "", f"{end}{lead}{new.strip(chr(10))}\n")


def _matches(file: TextFile, name: str, old: str, new: str, every: bool, *, tolerant: bool) -> list[Match]:
    matches = exact_matches(file.view, old, new) or (tolerant_matches(file.view, old, new) if tolerant else [])
    if not matches:
        raise _not_found(file, name, old)
    if not every and (len(matches) > 1 or overlaps(file.view, old, matches[0].start)):
        places = _places([_line(file.view, match.start) for match in matches])
        raise ToolError(
            f"{name}: `old` occurs more than once, at {places}. Nothing was changed. Copy more of the text around "
            "the right place into `old` and `new`, or set `all`."
        )
    return matches


def _not_found(file: TextFile, name: str, old: str) -> ToolError:
    window = nearest(file.view, old)
    if window is None:
        exactly = " (looked for exactly only: both are very long)" if too_much(file.view, old) else ""
        return ToolError(
            f"{name}: `old` was not found{exactly}. Nothing was changed. Read the file and copy `old` from it.",
            argument="old",
        )
    first, last = window
    lines = file.view.split("\n")[first - 1 : last]
    cut = "\n[…]" if len(lines) > _NEAREST_LINES else ""
    text = "\n".join(line[:500] for line in lines[:_NEAREST_LINES])
    where = f"line {first}" if first == last else f"lines {first}-{last}"
    return ToolError(
        f"{name}: `old` was not found. Nothing was changed. Copy `old` exactly from the file. Nearest is {where}:\n"
        f"{text}{cut}",
        argument="old",
    )


def _apply(file: TextFile, matches: Sequence[Match]) -> tuple[str, list[int]]:
    """The text after the edit, and the line of each replacement in it."""
    pieces, lines, done, line = list[str](), list[int](), 0, 1
    for match in matches:
        start, end = file.offset(match.start), file.offset(match.end)
        if len(file.line_ends) < 2 and not match.tolerated:
            fresh = match.new.replace("\n", next(iter(file.line_ends), "\n"))
        else:
            fresh = splice(file.text[start:end], match.old, match.new, _line_end_at(file.text, end))
        line += file.text.count("\n", done, start)
        lines.append(line)
        line += fresh.count("\n")
        pieces += [file.text[done:start], fresh]
        done = end
    return "".join([*pieces, file.text[done:]]), lines


def _line_end_at(text: str, position: int) -> str:
    """The line end of the line at `position`, or the nearest before it."""
    found = text.find("\n", position)
    if found < 0:
        found = text.rfind("\n", 0, position)
    return "\r\n" if found > 0 and text[found - 1] == "\r" else "\n"


def _refuse_broken_syntax(file: TextFile, name: str, after: str) -> None:
    problem = syntax_problem(file.path, after)
    if problem is not None and syntax_problem(file.path, file.text) is None:
        raise ToolError(
            f"{name}: nothing was changed, because the file would no longer parse. {problem}", argument="new"
        )


def _report(name: str, matches: Sequence[Match], lines: Sequence[int]) -> str:
    count = len(matches)
    report = f"{name}: {count} replacement{'' if count == 1 else 's'} at {_places(lines)}"
    tolerated = sorted({difference for match in matches for difference in match.tolerated})
    if tolerated:
        report += f" (`old` differed from the file in: {', '.join(tolerated)})"
    if count > 1:
        echo = " ".join(matches[0].new.split())
        report += f"; each is now `{echo[:_ECHO]}{'…' if len(echo) > _ECHO else ''}`" if echo else "; each was removed"
    return report


def _places(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - _PLACES} more" if len(lines) > _PLACES else ""
    numbers = ", ".join(str(line) for line in lines[:_PLACES])
    return f"line{'' if len(lines) == 1 else 's'} {numbers}{more}"


def _remember(plan: _Plan, context: ToolContext) -> None:
    """The model knows the new content as far as it knew the old one; no page of it is in the prompt."""
    path, pages = plan.file.path, context.shown.get(plan.file.path)
    knew_all = path in context.seen and (pages is None or covers_all(pages, plan.file.view))
    context.seen[path] = digest(plan.data)
    if knew_all:
        context.shown.pop(path, None)
    else:
        context.shown[path] = []


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")
