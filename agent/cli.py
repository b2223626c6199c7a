"""The command line.

Each command reads its flags, calls one function and turns errors into one line and an exit code.
"""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from agent import cli_options as options
from agent.cli_cache import cache_app
from agent.cli_chat import ChatGroup, chat_command
from agent.cli_config import config_app
from agent.cli_cost import cost_app
from agent.cli_keys import keys_app, warn_of_keys
from agent.cli_lens import lens_command
from agent.cli_models import models_app
from agent.cli_parts import (
    errors_of_a_person,
    exit_code_of,
    given_text,
    print_json,
    run_to_end,
    surroundings,
)
from agent.cli_sessions import export_command, sessions_command
from agent.complete import model_names, session_ids
from agent.config import Folders, load
from agent.errors import FAILED, USAGE, UserError
from context.names import show_name

app: Final = typer.Typer(
    name="agent",
    cls=ChatGroup,
    invoke_without_command=True,
    rich_markup_mode=None,  # plain help: drawing it with rich takes longer than all else
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(chat_command)
app.add_typer(models_app, name="models")
app.add_typer(cost_app, name="cost")
app.add_typer(cache_app, name="cache")
app.add_typer(config_app, name="config")
app.add_typer(keys_app, name="keys")
app.command("lens")(lens_command)
app.command("sessions")(sessions_command)
app.command("export")(export_command)


def run() -> None:
    """Entry point behind keepwarm.main()."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character must not end the work
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except SystemExit:  # the usual end; the next line imports what it would not need
        raise
    except errors_of_a_person() as error:
        _fail(str(error), exit_code_of(error))
    except BrokenPipeError:  # `agent cost | head -1`: the reader has seen enough
        _fail(None, FAILED)
    except OSError as error:
        place = f": {show_name(os.fsdecode(error.filename))}" if error.filename else ""
        _fail(f"{error.strerror or error}{place}. What was recorded is kept.", FAILED)


def _fail(message: str | None, exit_code: int) -> None:
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:  # nobody reads it: what is left would be tried, and complained of, once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if message is not None and sys.stderr is not None:
        sys.stderr.write(f"agent: {message}\n")
    raise SystemExit(exit_code)


@app.command("run")
def run_command(
    options_given: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(help="What to do. Left out, or '-': read from standard input.")
    ] = None,
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
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON event a line (docs/events.md).")] = False,
) -> None:
    """Do one task in the current directory.

    The answer goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 usage, 3
    limit reached, 130 interrupted.
    """
    from agent.oneshot import run_once
    from agent.opening import Task
    from agent.terminal import Terminal

    env, here = dict(os.environ), Path.cwd().resolve()
    folders = Folders.find(env)
    settings = options.settings_in_force(folders, env, here, options_given.params)
    command = _read_prompt(prompt)
    options.check_session_options(go_on=go_on, resume=resume, fork=fork, at_turn=at_turn)
    shown = options.given_files(files, here)
    task = Task(command, here, again=go_on, session=resume, fork=fork, at_turn=at_turn, files=shown)
    terminal = Terminal(json_lines=json_lines)
    around = surroundings(terminal, env, folders)
    try:
        code = run_to_end(lambda: run_once(task, settings, folders, around))
    finally:
        terminal.close()
    raise typer.Exit(code)


def _read_prompt(argument: str | None) -> str:
    if argument is not None and argument != "-":
        return given_text(argument)
    if argument is None and (sys.stdin is None or sys.stdin.isatty()):
        raise UserError('There is no prompt. Nothing was sent. Say what to do: agent run "…"', USAGE)
    if sys.stdin is None:
        return ""
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


@app.command("compact")
def compact_command(
    session: Annotated[
        str | None,
        typer.Argument(autocompletion=session_ids, help="A session; the last one of this directory when left out."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            autocompletion=model_names,
            help="Who makes the summary; the session's last model when left out.",
        ),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON event a line (docs/events.md).")] = False,
) -> None:
    """Put a summary in the place of a session's history. The session's next turn goes on from it.

    Everything that was sent stays on record. Exit codes: 0 done, 1 refused or failed (nothing was changed), 2 usage.
    """
    from agent.oneshot import compact_once
    from agent.terminal import Terminal

    env = dict(os.environ)
    folders = Folders.find(env)
    settings = load(folders, env, {} if model is None else {"model": model}, Path.cwd())
    terminal = Terminal(json_lines=json_lines)
    around = surroundings(terminal, env, folders)
    try:
        code = run_to_end(lambda: compact_once(session, Path.cwd().resolve(), settings, folders, around))
    finally:
        terminal.close()
    raise typer.Exit(code)


@app.command("context")
def context_command(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            autocompletion=model_names,
            help="Small local models get less; the usual model when left out.",
        ),
    ] = None,
    files: Annotated[list[str] | None, typer.Option("--file", help="As for `agent run`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/repository.md).")] = False,
) -> None:
    """Where the tokens of this repository go ahead of the first command, and what was left out and why."""
    from datetime import date

    from agent.backend_choice import choose_model, find_model, load_catalog
    from agent.head import make_head
    from agent.keys import stored_keys
    from agent.redact import Redactor
    from agent.reports.context import context_report, print_context
    from backends.llama.models import is_local

    here, folders = Path.cwd().resolve(), Folders.find(os.environ)
    env = {**stored_keys(folders, os.environ, warn_of_keys), **os.environ}
    settings = load(folders, env, {} if model is None else {"model": model}, here)
    name = find_model(choose_model(settings, env), load_catalog(folders)).name
    profile = "compact" if is_local(name) else "cloud"
    pinned = options.given_files(files, here)
    head = make_head(here, profile, settings, folders, Redactor(env), pinned, env, lambda: date.today().isoformat())
    report = context_report(head)
    if as_json:
        print_json(report.to_json())
    else:
        print_context(report)


@app.command()
def doctor(
    endpoint: Annotated[
        str | None, typer.Option(help="Try this one with two or three small requests: does it cache, and say so?")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", autocompletion=model_names, help="The model to try it with.")
    ] = None,
) -> None:
    """What works on this machine, what does not, and why. Nothing is sent anywhere without --endpoint."""
    from agent.keys import stored_keys

    env = {**stored_keys(Folders.find(os.environ), os.environ, warn_of_keys), **os.environ}
    if endpoint is None:
        if model is not None:
            raise UserError("--model is for --endpoint. Nothing was sent. Name one: --endpoint NAME", USAGE)
        from agent.reports.doctor import print_checks

        raise typer.Exit(print_checks(env))
    from agent.reports.probe import print_probe

    name = endpoint
    raise typer.Exit(run_to_end(lambda: print_probe(name, model, env)))
