"""Options that the chat and `agent run` share, and the settings that follow from them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from agent.complete import model_names, session_ids
from agent.config import EFFORTS, MODES, Folders, Settings, load
from agent.errors import USAGE, UserError
from context.names import show_name

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        autocompletion=model_names,
        help="anthropic/…, openai/…, ENDPOINT/…, local/… or local:/path.gguf",
    ),
]
Mode = Annotated[str | None, typer.Option(help=f"What runs without asking: {', '.join(MODES)}.")]
GoOn = Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last session of this directory.")]
Resume = Annotated[
    str | None, typer.Option(autocompletion=session_ids, help="Go on with this session (see `agent sessions`).")
]
Fork = Annotated[
    bool, typer.Option("--fork", help="With --continue or --resume: go on in a copy, the session stays as it is.")
]
AtTurn = Annotated[
    int | None, typer.Option(help="With --fork: go on from the end of this turn (`agent sessions --turns`).", min=1)
]
Effort = Annotated[str | None, typer.Option(help=f"How much the model thinks: {', '.join(EFFORTS)}.")]
MaxTurns = Annotated[int | None, typer.Option(help="Most calls to the model for one command.")]
MaxCost = Annotated[str | None, typer.Option(help="Most USD to spend for one command.")]
MaxCostSession = Annotated[str | None, typer.Option(help="Most USD to spend in the session; off: no limit.")]
MaxCostDay = Annotated[str | None, typer.Option(help="Most USD to spend today, in all sessions; off: no limit.")]
ContextWindow = Annotated[int | None, typer.Option("--context", help="Context window of a local model, in tokens.")]
Threads = Annotated[int | None, typer.Option(help="Threads of a local model.")]
Temperature = Annotated[float | None, typer.Option(help="Of a local model; 0: always the likeliest token.")]
Lens = Annotated[
    bool, typer.Option("--lens", help="With a local model: a page for each reply, how every token came about.")
]
Exact = Annotated[
    bool, typer.Option("--exact", help="With a local model: reuse only what makes no difference to the last bit.")
]
NoCompact = Annotated[
    bool, typer.Option("--no-compact", help="When the context window is full, stop: make no summary.")
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", help="Show the model this file from the start; again for another one."),
]


_SETTINGS: Final[Mapping[str, str]] = {
    "context_window": "context",
    **{name: name for name in ("model", "mode", "effort", "max_turns", "threads", "temperature")},
    **{name: name for name in ("max_cost", "max_cost_session", "max_cost_day")},
    **{name: name for name in ("lens", "exact")},
}
"""Which option, by its parameter, is which setting."""


def settings_in_force(folders: Folders, env: Mapping[str, str], here: Path, given: Mapping[str, object]) -> Settings:
    """With the options that were given: those that are neither None nor False. Raises UserError."""
    options = {_SETTINGS[name]: value for name, value in given.items() if name in _SETTINGS}
    if given.get("no_compact"):
        options["compact"] = "off"
    flags = {name: value for name, value in options.items() if value is not None and value is not False}
    return load(folders, env, flags, here)


def check_session_options(*, go_on: bool, resume: str | None, fork: bool, at_turn: int | None) -> None:
    """Raises UserError for options that do not go together."""
    if fork and not go_on and resume is None:
        raise UserError("--fork needs a session: --continue, or --resume SESSION. Nothing was sent.", USAGE)
    if at_turn is not None and not fork:
        raise UserError("--at-turn is for --fork. Nothing was sent.", USAGE)
    if go_on and resume is not None:
        raise UserError("--continue and --resume name two sessions; give one of them. Nothing was sent.", USAGE)


def given_files(given: list[str] | None, here: Path) -> tuple[str, ...]:
    """Paths relative to `here` of files that exist. Raises UserError."""
    found = []
    for name in given or []:
        path = Path(os.path.expanduser(name)).resolve()
        if not path.is_file():
            raise UserError(f"--file {show_name(name)}: there is no such file. Nothing was sent.", USAGE)
        found.append(os.path.relpath(path, here))
    return tuple(found)
