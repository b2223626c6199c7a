"""What a tool is: a spec for the model, an effect for the permissions, and a coroutine that does the work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from context.block import ToolSpec


class Effect(StrEnum):
    """What a call can do; permissions decide by it.

    READ calls may run side by side, the others run one after another.
    """

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


@dataclass(frozen=True, slots=True)
class Access:
    """What one call is about to touch.

    `paths` as resolved (symlinks and `..` followed); `summary` is one line for a person.
    """

    effect: Effect
    summary: str
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """`text` goes to the model, already trimmed (rule R8).

    `summary` is one line for the screen. `full` is where the whole output lies.
    """

    text: str
    summary: str
    is_error: bool = False
    full: Path | None = None


class ToolError(Exception):
    """The call could not be carried out.

    `str(error)` tells the model what is wrong and what to try; nothing was changed.
    """


@dataclass(slots=True)
class ToolContext:
    """What tools share in one session.

    `root`: the working directory (resolved). `spill`: folder for full outputs. `seen`: digest of each file as the
    model last saw it, by resolved path (rebuilt from the ledger on resume). `on_output` receives live output. `env`
    is the environment of commands.
    """

    root: Path
    spill: Path
    env: Mapping[str, str]
    seen: dict[Path, str] = field(default_factory=dict)
    on_output: Callable[[str], None] = lambda _: None


class Tool(Protocol):
    """One module under agent/tools/ holds one tool.

    `spec` is part of the SYSTEM layer: the same bytes for everyone (rule R3).
    """

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def compact(self) -> ToolSpec | None:
        """The spec in the compact profile of small local models: a subset of `spec`; None where the tool is left out."""
        ...

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        """What the call would touch, without touching it. Raises ToolError for arguments that make no sense."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it. Raises ToolError; cancellation must leave no child process and no half-written file behind."""
        ...
