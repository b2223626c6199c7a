"""The tool `find`: files by name, as ripgrep lists them."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.paths import existing, resolve, show
from agent.tools.ripgrep import COMMON, NOT_GIT, ripgrep
from context.block import ToolSpec

_SPEC: Final = ToolSpec(
    "find",
    "List files by glob (`src/**/*.py`) or part of the name. Files ignored by git are left out.",
    """{"type":"object","properties":{"pattern":{"type":"string"},\
"path":{"type":"string","description":"folder"}},\
"required":["pattern"],"additionalProperties":false}""",
)


class _Find:
    spec = _SPEC
    compact = None

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        pattern = arguments["pattern"]
        if not pattern.strip() or "\0" in pattern:
            raise ToolError("The pattern is empty." if "\0" not in pattern else "The pattern holds a NUL character.")
        path = resolve(arguments.get("path", "."), context)
        return Access(Effect.READ, f"find {pattern!r} in {show(path, context.root)}", (path,))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        folder = await asyncio.to_thread(existing, arguments.get("path", "."), context)
        if not folder.is_dir():
            raise ToolError(f"{show(folder, context.root)} is a file, not a folder.")
        names = await _matching(arguments["pattern"].strip(), folder, context)
        most = context.limits.names
        lines = [show(folder / name, context.root) for name in names[:most]]
        if len(names) > most:
            lines.append(f"[{len(names) - most:,} more; narrow the pattern or the path]")
        count = f"{len(names):,} file{'' if len(names) == 1 else 's'}"
        return ToolOutput("\n".join(lines) or "no files match", count if names else "no files match")


tool: Tool = _Find()


async def _matching(pattern: str, folder: Path, context: ToolContext) -> list[str]:
    """Names relative to `folder`, sorted."""
    names = await _listed(folder, context)
    if any(char in pattern for char in "*?[{"):
        # ripgrep lists a file that matches --glob even when .gitignore names it; only what is in both lists counts.
        matching = set(await _listed(folder, context, f"--glob={pattern.removeprefix('./')}"))
        return [name for name in names if name in matching]
    part = pattern.removeprefix("./").casefold()
    by_name = [name for name in names if part in os.path.basename(name).casefold()]
    return by_name or [name for name in names if part in name.casefold()]


async def _listed(folder: Path, context: ToolContext, *flags: str) -> list[str]:
    pieces = []
    async with ripgrep([*COMMON, "--files", *flags, NOT_GIT, "--", "./"], folder, context.env) as running:
        async for chunk in running.chunks():
            pieces.append(chunk)
    if running.error:
        raise ToolError(f"The pattern is not valid: {running.error}.")
    return [os.fsdecode(name.removeprefix(b"./")) for name in b"".join(pieces).split(b"\0") if name]
