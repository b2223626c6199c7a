"""`agent` without a command: the chat."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from typer.core import TyperGroup

from agent import cli_options as options
from agent.cli_parts import run_to_end
from agent.config import Folders
from agent.errors import USAGE, UserError

if TYPE_CHECKING:
    from agent.chat.context import Opening

PICK: Final = ""
"""What `--resume` without a name stands for: the person picks the session."""


class ChatGroup(TyperGroup):
    """The commands, with a `--resume` that needs no name: typer knows no option whose value may be left out."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        last = len(args) - 1
        named = [
            f"{arg}={PICK}" if arg == "--resume" and (at == last or args[at + 1].startswith("-")) else arg
            for at, arg in enumerate(args)
        ]
        commands = [at for at, arg in enumerate(args) if arg in self.commands]
        return super().parse_args(ctx, args if commands else named)


def chat_command(
    context: typer.Context,
    model: options.Model = None,
    mode: options.Mode = None,
    go_on: options.GoOn = False,
    resume: options.Resume = None,
    fork: options.Fork = False,
    at_turn: options.AtTurn = None,
    effort: options.Effort = None,
    max_turns: options.MaxTurns = None,
    max_cost: options.MaxCost = None,
    max_cost_session: options.MaxCostSession = None,
    max_cost_day: options.MaxCostDay = None,
    context_window: options.ContextWindow = None,
    threads: options.Threads = None,
    temperature: options.Temperature = None,
    lens: options.Lens = False,
    exact: options.Exact = False,
    no_compact: options.NoCompact = False,
    files: options.Files = None,
) -> None:
    """A coding agent for the terminal that keeps its prompt cache warm and accounts for every token.

    Without a command: a chat in the current directory. `--resume` without a session lets you pick one.
    """
    if context.invoked_subcommand is not None:
        _no_options_before_a_command(context)
        return
    from agent.chat.start import require_terminal, run_chat

    require_terminal()
    env, here = dict(os.environ), Path.cwd().resolve()
    folders = Folders.find(env)
    settings = options.settings_in_force(folders, env, here, context.params)
    options.check_session_options(go_on=go_on, resume=resume, fork=fork, at_turn=at_turn)
    session = resume if resume != PICK else None
    files_shown = options.given_files(files, here)

    def opening() -> "Opening":
        from agent.chat.context import Opening
        from agent.opening import Task

        task = Task("", here, again=go_on, session=session, fork=fork, at_turn=at_turn, files=files_shown)
        return Opening(task, settings, pick=resume == PICK)

    raise typer.Exit(run_to_end(lambda: run_chat(opening, here, folders, env)))


def _no_options_before_a_command(context: typer.Context) -> None:
    """Raises UserError: what was given to the chat would count for nothing."""
    sources = [context.get_parameter_source(name) for name in context.params]
    given = [source for source in sources if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise UserError(
            f"Options belong behind the command: agent {context.invoked_subcommand} … Nothing was sent.", USAGE
        )
