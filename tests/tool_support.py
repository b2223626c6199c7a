"""What the tests of the tools share: a context in a temporary folder, and calls as the loop makes them."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from agent.tools import registry
from agent.tools.arguments import parse_arguments
from agent.tools.base import OutputLimits, Tool, ToolContext, ToolOutput

PATH = "/usr/local/bin:/usr/bin:/bin"


def _may_read_everything() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0)
        return os.access(file.name, os.R_OK)


needs_permission_bits = pytest.mark.skipif(_may_read_everything(), reason="root may read and write everything")


def make_context(folder: Path, *, limits: OutputLimits | None = None, **env: str) -> ToolContext:
    """A context whose root is `folder/repo` (made if needed), with a minimal environment."""
    root = folder.resolve() / "repo"
    root.mkdir(exist_ok=True)
    environment = {"PATH": PATH, "HOME": str(folder.resolve()), **env}
    return ToolContext(root, folder.resolve() / "spill", environment, limits=limits or OutputLimits())


def tool(name: str) -> Tool:
    return next(tool for tool in registry() if tool.spec.name == name)


async def call(name: str, context: ToolContext, /, **arguments: object) -> ToolOutput:
    """Validate, look at what would be touched, and run: the way of every call. Raises ToolError."""
    parsed = parse_arguments(tool(name).spec, json.dumps(arguments))
    tool(name).access(parsed, context)
    return await tool(name).run(parsed, context)
