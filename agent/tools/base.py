"""What a tool is: a spec for the model, an effect for the permissions, and a coroutine that does the work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

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

    `paths` as resolved (symlinks and `..` followed); `summary` is one line for a person; `command` is the whole text
    that an EXECUTE call runs. `diff` reads and works out the unified diff of exactly what a WRITE call will change;
    None where there is nothing to show. It raises the ToolError that the call would end with.
    """

    effect: Effect
    summary: str
    paths: tuple[Path, ...] = ()
    command: str = ""
    diff: Callable[[], str | None] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """`text` goes to the model, already trimmed (rule R8).

    `summary` is one line for the screen. `full` is where the whole output lies. `complains`: it is a failure that says
    what is wrong, though the tool itself did its work (a command that failed).
    """

    text: str
    summary: str
    is_error: bool = False
    full: Path | None = None
    complains: bool = False


class ToolError(Exception):
    """The call could not be carried out.

    `str(error)` tells the model what is wrong and what to try; nothing was changed. `argument` names the one that is
    to blame, where that is known.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much one call may bring into the prompt (rule R8), in characters, lines, matches and file names."""

    page_chars: int = 50_000
    page_lines: int = 2_000
    output_chars: int = 30_000
    output_lines: int = 400
    matches: int = 100
    names: int = 200


SMALL_OUTPUT: Final = OutputLimits(
    page_chars=12_000, page_lines=300, output_chars=4_000, output_lines=80, matches=30, names=60
)
"""For small local models: their context is short, and each thousand tokens of prefill takes seconds."""


@dataclass(frozen=True, slots=True)
class Page:
    """Lines `first` to `last` of a file, counted from 1.

    `numbers`: with line numbers. `cut`: long lines lost their end.
    """

    first: int
    last: int
    numbers: bool = False
    cut: bool = False


@dataclass(slots=True)
class ToolContext:
    """What tools share in one session.

    `root`: the working directory (resolved). `spill`: folder for full outputs. `seen`: digest of each file as the
    model last saw it, by resolved path (rebuilt from the ledger on resume). `shown`: which pages of that content are in
    the prompt; a file in `seen` that has no entry here was seen as a whole, at a time that is no longer known. Whoever
    takes blocks out of the prompt (compaction, a new epoch) clears `shown`. `on_output` receives live output. `env` is
    the environment of commands.
    """

    root: Path
    spill: Path
    env: Mapping[str, str]
    seen: dict[Path, str] = field(default_factory=dict)
    shown: dict[Path, list[Page]] = field(default_factory=dict)
    limits: OutputLimits = OutputLimits()
    on_output: Callable[[str], None] = lambda _: None


class Tool(Protocol):
    """One module under agent/tools/ holds one tool.

    `spec` is part of the SYSTEM layer: the same bytes for everyone (rule R3).
    """

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def compact(self) -> ToolSpec | None:
        """The spec in the compact profile of small local models: a subset of `spec`; None where the tool is left
        out.
        """
        ...

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        """What the call would touch, without touching it. Raises ToolError for arguments that make no sense."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it. Raises ToolError; cancellation must leave no child process and no half-written file behind."""
        ...
