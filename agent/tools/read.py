"""The tool `read`: a page of a text file, never the same page twice."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.tools.base import Access, Effect, Page, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.encoding import BinaryFileError
from agent.tools.pages import TextPage, covers, is_regular, read_page
from agent.tools.paths import failure, missing, resolve, show
from context.block import ToolSpec

_SPEC: Final = ToolSpec(
    "read",
    "Read a text file. A long file comes in pages; the end of a page says how to go on.",
    """{"type":"object","properties":{"path":{"type":"string"},\
"offset":{"type":"integer","minimum":1,"description":"first line"},\
"limit":{"type":"integer","minimum":1,"description":"number of lines"},\
"numbers":{"type":"boolean","description":"number the lines"}},\
"required":["path"],"additionalProperties":false}""",
)
_COMPACT: Final = ToolSpec(
    "read",
    "Read a file.",
    """{"type":"object","properties":{"path":{"type":"string"},\
"offset":{"type":"integer","minimum":1,"description":"first line"}},\
"required":["path"],"additionalProperties":false}""",
)


class _Read:
    spec = _SPEC
    compact = _COMPACT

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        path = resolve(arguments["path"], context)
        return Access(Effect.READ, f"read {show(path, context.root)}", (path,))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        path = resolve(arguments["path"], context)
        first = arguments.get("offset", 1)
        most_lines = min(arguments.get("limit", context.limits.page_lines), context.limits.page_lines)
        page = await asyncio.to_thread(_page, path, first, most_lines, context)
        return _output(page, path, bool(arguments.get("numbers", False)), context)


tool: Tool = _Read()


def _page(path: Path, first: int, most_lines: int, context: ToolContext) -> TextPage:
    name = show(path, context.root)
    try:
        if path.is_dir():
            raise ToolError(f"{name} is a directory. Use `find` to list its files.")
        if not is_regular(path):
            raise ToolError(f"{name} is no regular file (a device, pipe or socket) and is not read.")
        page = read_page(path, first, most_lines, context.limits.page_chars)
    except BinaryFileError as error:
        size = path.stat().st_size
        raise ToolError(f"{name} is no text: {error}, {size:,} bytes. It is not shown.") from None
    except FileNotFoundError:
        raise missing(path, context) from None
    except OSError as error:
        raise failure(error, name) from None
    if first > max(page.survey.lines, 1):
        raise ToolError(f"{name} has {page.survey.lines} lines; there is no line {first}.")
    return page


def _output(page: TextPage, path: Path, numbers: bool, context: ToolContext) -> ToolOutput:
    """Answer with the page and remember it, or say that the model has it already."""
    name, total = show(path, context.root), page.survey.lines
    wanted = Page(page.first, page.last, numbers, cut=page.trimmed > 0)
    whole = wanted.first == 1 and wanted.last >= total
    lines = name if whole else f"{name} lines {wanted.first}-{wanted.last}"
    same_content = context.seen.get(path) == page.survey.digest
    if total and same_content and covers(context.shown.get(path, ()), wanted):
        return ToolOutput(f"{lines}: unchanged since you read it.", f"{lines}: unchanged")
    pages = context.shown.get(path, []) if same_content else []
    context.seen[path] = page.survey.digest
    context.shown[path] = [*pages, wanted]
    return ToolOutput(_text(page, numbers, total), f"{lines} of {total}" if not whole else f"{name}, {total} lines")


def _text(page: TextPage, numbers: bool, total: int) -> str:
    if not total:
        return "[empty file]"
    lines = [f"{number}: {line}" for number, line in enumerate(page.lines, page.first)] if numbers else page.lines
    text = "\n".join(lines).replace("\0", "␀") + ("\n" if page.ends_line else "")
    notes = []
    if page.last < total:
        notes.append(f"lines {page.first}-{page.last} of {total:,}; go on with offset {page.last + 1}")
    if not page.survey.encoding.usual:
        notes.append(f"decoded from {page.survey.encoding.codec}")
    if not notes:
        return text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"
