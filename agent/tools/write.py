"""The tool `write`: a new file, or the whole content of one that the model knows."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.redact import Redactor
from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.change import unified
from agent.tools.pages import covers_all
from agent.tools.paths import failure, resolve, show
from agent.tools.splice import splice
from agent.tools.syntax import syntax_problem
from agent.tools.textfile import UTF8, TextFile, encode, load, replace
from context.block import ToolSpec
from context.canonical import digest

_SPEC: Final = ToolSpec(
    "write",
    "Create a file, or replace all of one that you have read. Folders are made as needed.",
    """{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},\
"required":["path","content"],"additionalProperties":false}""",
)


class _Write:
    spec = _SPEC
    compact = None  # small models rewrite from imagination what they should read and edit; `edit` makes new files too

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        path = resolve(arguments["path"], context)
        hidden = Redactor(context.env).placeholder_in(arguments["content"])
        if hidden is not None:
            raise ToolError(f"{hidden} stands for a value that is hidden from you and cannot be written. Use `edit`.")

        def diff() -> str | None:
            plan = _plan(path, arguments["content"], context)
            return unified(plan.name, None if plan.before is None else plan.before.text, plan.after, context.env)

        return Access(Effect.WRITE, f"write {show(path, context.root)}", (path,), diff=diff)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        path = resolve(arguments["path"], context)
        plan = await asyncio.to_thread(_plan, path, arguments["content"], context)
        # From here to the end nothing is awaited: a cancelled write has happened completely or not at all.
        if plan.before is None or plan.before.digest != plan.digest:
            _store(path, plan)
        context.seen[path] = plan.digest
        context.shown.pop(path, None)
        return ToolOutput(plan.report, plan.report.partition("\n")[0])


tool: Tool = _Write()


@dataclass(frozen=True, slots=True)
class _Plan:
    name: str
    before: TextFile | None
    after: str
    data: bytes
    digest: str
    report: str


def _plan(path: Path, content: str, context: ToolContext) -> _Plan:
    """What the write will do. Reads, but changes nothing."""
    name = show(path, context.root)
    try:
        before = load(path, name)
    except FileNotFoundError:
        before = None
    after = content if before is None else _with_line_ends_of(before, content)
    data = encode(after, UTF8) if before is None else before.encode(after)
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    size = f"{lines:,} line{'' if lines == 1 else 's'}"
    if before is None:
        report = f"{name}: created, {size}"
    elif before.digest == digest(data):
        report = f"{name}: has this content already"
    else:
        _refuse_unseen(path, name, before, context)
        report = f"{name}: replaced, {size}"
    problem = syntax_problem(path, content)
    if problem is not None:
        report += f"\nIt does not parse: {problem}"
    return _Plan(name, before, after, data, digest(data), report)


def _refuse_unseen(path: Path, name: str, before: TextFile, context: ToolContext) -> None:
    known, pages = context.seen.get(path), context.shown.get(path)
    if not before.text:
        return
    if known is None:
        raise ToolError(f"{name} exists and you have not read it. Nothing was changed. Read it first, or use `edit`.")
    if known != before.digest:
        raise ToolError(f"{name} has changed on disk since you read it. Nothing was changed. Read it again first.")
    if pages is not None and not covers_all(pages, before.view):
        raise ToolError(f"You have read only a part of {name}. Nothing was changed. Read all of it, or use `edit`.")


def _with_line_ends_of(before: TextFile, content: str) -> str:
    content = content.replace("\r\n", "\n")
    if len(before.line_ends) > 1:
        return splice(before.text, before.view, content, "\n")
    return content.replace("\n", next(iter(before.line_ends), "\n"))


def _store(path: Path, plan: _Plan) -> None:
    made: list[Path] = []
    try:
        _make_folders(path.parent, plan.name, made)
        replace(path, plan.name, plan.data, None if plan.before is None else plan.before.stat)
    except ToolError:
        for folder in reversed(made):
            folder.rmdir()
        raise


def _make_folders(folder: Path, name: str, made: list[Path]) -> None:
    """Create `folder` and what is missing above it; each goes into `made` as soon as it exists."""
    try:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            made.append(parent)
    except OSError as error:
        raise failure(error, name) from None
