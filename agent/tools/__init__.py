"""The tools of the agent. A tool is one module here with an object `tool`, and one line in `_NAMES`."""

from importlib import import_module
from typing import Final

from agent.tools.base import Tool
from context.block import ToolSpec

# The order is part of the SYSTEM layer: a new tool goes to the end.
_NAMES: Final = (
    "read",
    "edit",
    "write",
    "shell",
    "search",
    "find",
)


def registry() -> tuple[Tool, ...]:
    """All tools, in the order in which every model sees them."""
    return tuple(import_module(f"agent.tools.{name}").tool for name in _NAMES)


def specs(profile: str) -> tuple[ToolSpec, ...]:
    """What the SYSTEM layer of `profile` offers: `cloud` all tools, `compact` those with a compact spec.

    Raises KeyError for another profile.
    """
    match profile:
        case "cloud":
            return tuple(tool.spec for tool in registry())
        case "compact":
            return tuple(tool.compact for tool in registry() if tool.compact is not None)
        case _:
            raise KeyError(profile)
