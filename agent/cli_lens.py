"""`agent lens`: how a local model came to say what it says, token by token."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from agent.cli_parts import chosen_session, given_text, print_json
from agent.complete import model_names
from agent.config import Folders, load
from agent.errors import INTERRUPTED, USAGE, UserError


def lens_command(
    prompt: Annotated[str | None, typer.Argument(help="What to ask the model.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", autocompletion=model_names, help="local/… or local:/path.gguf")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="In place of a prompt: what a call of this session sent.")
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", help="With --session: the number of the call, else the last.", min=1)
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="K[:N]", help="Back to token K: take the N-th likeliest there, and go on."),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Most tokens of the reply.", min=1)] = 64,
    temperature: Annotated[float | None, typer.Option(help="0: the likeliest token each time.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw among those that together have this probability.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Draw among those of this share of the likeliest one's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/lens.md).")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with the heat map of doubt to this file.")] = None,
) -> None:
    """What a local model knew at each token: probabilities, what was cut, what was drawn, where it was in doubt."""
    from agent.ledger import Ledger
    from agent.lens import BranchAt, Question, look, recorded_call
    from agent.reports.console import report_console
    from agent.reports.lens_text import print_lens
    from agent.signals import run_cancellable
    from agent.terminal import Terminal
    from backends.base import MemoryWireStore, WireStore

    if (prompt is None) == (session is None) or (at is not None and session is None):
        raise UserError('Say what to look at: agent lens "…", or --session SESSION --at CALL. Nothing was done.', USAGE)
    if html is not None:
        try:
            html.open("a").close()  # asked before the model has worked for it
        except OSError as error:
            raise UserError(f"{html} cannot be written ({error.strerror}). Nothing was done.", USAGE) from error
    env = dict(os.environ)
    folders = Folders.find(env)
    flags = {"model": model, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    given = {name: value for name, value in flags.items() if value is not None}
    where = None if branch is None else BranchAt.parse(branch)
    terminal = Terminal(json_lines=False)
    with ExitStack() as stack:
        stack.callback(terminal.close)
        wires: WireStore = MemoryWireStore()
        question = Question(given_text(prompt or ""))
        if session is not None:
            wires = ledger = stack.enter_context(Ledger.open(folders.ledger))
            call = recorded_call(ledger, chosen_session(ledger, session).id, at)
            question = Question(prompt=ledger.prompt(call.session, call.blocks, call.epoch))
            given = {"model": call.model, **given}
        settings = load(folders, env, given, Path.cwd())
        work = (question, where, tokens, settings, folders, env, wires, terminal.downloads)
        import asyncio

        try:
            report = run_cancellable(lambda: look(*work))
        except (KeyboardInterrupt, asyncio.CancelledError):
            sys.stderr.write("agent: interrupted. Nothing was changed.\n")
            raise typer.Exit(INTERRUPTED) from None
    if html is not None:
        from agent.reports.lens_html import lens_page

        html.write_text(lens_page(report), encoding="utf-8")
    if as_json:
        print_json(report.to_json())
    elif html is None:
        print_lens(report, report_console())
    else:
        sys.stdout.write(f"{html}\n")
