"""The command line.

Each command reads its flags, calls one function and turns errors into one line and an exit code.
"""

import io
import os
import random
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from agent.cli_cache import cache_app
from agent.cli_lens import lens_command
from agent.cli_models import models_app
from agent.cli_parts import chosen_session, given_text, print_json, run_to_end
from agent.config import EFFORTS, MODES, Folders, load
from agent.errors import FAILED, USAGE, UserError
from backends.base import BackendError
from context.names import show_name

app: Final = typer.Typer(
    name="agent",
    help="A coding agent for the terminal that keeps its prompt cache warm and accounts for every token.",
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models_app, name="models")
app.add_typer(cache_app, name="cache")
app.command("lens")(lens_command)


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
    except (UserError, BackendError) as error:
        _fail(str(error), error.exit_code if isinstance(error, UserError) else FAILED)
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


@app.callback()
def chat_command(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="anthropic/…, openai/…, ENDPOINT/…, local/… or local:/path.gguf")
    ] = None,
    mode: Annotated[str | None, typer.Option(help=f"What runs without asking: {', '.join(MODES)}.")] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the last session of this directory.")
    ] = False,
    resume: Annotated[str | None, typer.Option(help="Go on with this session (see `agent sessions`).")] = None,
    effort: Annotated[str | None, typer.Option(help=f"How much the model thinks: {', '.join(EFFORTS)}.")] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", help="Show the model this file from the start; again for another one."),
    ] = None,
) -> None:
    """A coding agent for the terminal that keeps its prompt cache warm and accounts for every token.

    Without a command: a chat in the current directory.
    """
    if context.invoked_subcommand is not None:
        return
    from agent.chat.context import Opening
    from agent.chat.start import require_terminal, run_chat
    from agent.conversation import Task

    require_terminal()
    env, here = dict(os.environ), Path.cwd().resolve()
    folders = Folders.find(env)
    flags = {"model": model, "mode": mode, "effort": effort}
    settings = load(folders, env, {name: value for name, value in flags.items() if value is not None})
    if go_on and resume:
        raise UserError("--continue and --resume name two sessions; give one of them. Nothing was sent.", USAGE)
    task = Task("", here, again=go_on, session=resume, files=_given_files(files or [], here))
    raise typer.Exit(run_to_end(lambda: run_chat(Opening(task, settings), folders, env)))


@app.command("run")
def run_command(
    prompt: Annotated[
        str | None, typer.Argument(help="What to do. Left out, or '-': read from standard input.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="anthropic/…, openai/…, ENDPOINT/…, local/… or local:/path.gguf")
    ] = None,
    mode: Annotated[str | None, typer.Option(help=f"What runs without asking: {', '.join(MODES)}.")] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the last session of this directory.")
    ] = False,
    resume: Annotated[str | None, typer.Option(help="Go on with this session (see `agent sessions`).")] = None,
    fork: Annotated[
        bool, typer.Option("--fork", help="With --continue or --resume: go on in a copy, the session stays as it is.")
    ] = False,
    effort: Annotated[str | None, typer.Option(help=f"How much the model thinks: {', '.join(EFFORTS)}.")] = None,
    max_turns: Annotated[int | None, typer.Option(help="Most calls to the model.")] = None,
    max_cost: Annotated[str | None, typer.Option(help="Most USD to spend.")] = None,
    context: Annotated[int | None, typer.Option(help="Context window of a local model, in tokens.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of a local model.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of a local model; 0: always the likeliest token.")] = None,
    lens: Annotated[
        bool, typer.Option("--lens", help="With a local model: a page for each reply, how every token came about.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="With a local model: reuse only what makes no difference to the last bit.")
    ] = False,
    no_compact: Annotated[
        bool, typer.Option("--no-compact", help="When the context window is full, stop: make no summary.")
    ] = False,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", help="Show the model this file from the start; again for another one."),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON event a line (docs/events.md).")] = False,
) -> None:
    """Do one task in the current directory.

    The answer goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 usage, 3
    limit reached, 130 interrupted.
    """
    from agent.conversation import Surroundings, Task
    from agent.oneshot import run_once
    from agent.terminal import Terminal

    env = dict(os.environ)
    folders = Folders.find(env)
    flags = {
        "model": model,
        "mode": mode,
        "effort": effort,
        "max_turns": max_turns,
        "max_cost": max_cost,
        "context": context,
        "threads": threads,
        "temperature": temperature,
        "lens": lens or None,
        "exact": exact or None,
        "compact": "off" if no_compact else None,
    }
    settings = load(folders, env, {name: value for name, value in flags.items() if value is not None})
    command = _read_prompt(prompt)
    if fork and not (go_on or resume):
        raise UserError("--fork needs a session: --continue, or --resume SESSION. Nothing was sent.", USAGE)
    if go_on and resume:
        raise UserError("--continue and --resume name two sessions; give one of them. Nothing was sent.", USAGE)
    here = Path.cwd().resolve()
    task = Task(command, here, again=go_on, session=resume, fork=fork, files=_given_files(files or [], here))
    terminal = Terminal(json_lines=json_lines)
    around = Surroundings(env, terminal.clock, random.random, terminal.listener, terminal.downloads, terminal.asker)
    try:
        code = run_to_end(lambda: run_once(task, settings, folders, around))
    finally:
        terminal.close()
    raise typer.Exit(code)


def _given_files(given: list[str], here: Path) -> tuple[str, ...]:
    """Paths relative to `here` of files that exist. Raises UserError."""
    found = []
    for name in given:
        path = Path(os.path.expanduser(name)).resolve()
        if not path.is_file():
            raise UserError(f"--file {show_name(name)}: there is no such file. Nothing was sent.", USAGE)
        found.append(os.path.relpath(path, here))
    return tuple(found)


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
        str | None, typer.Argument(help="A session; the last one of this directory when left out.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Who makes the summary; the session's last model when left out.")
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON event a line (docs/events.md).")] = False,
) -> None:
    """Put a summary in the place of a session's history. The session's next turn goes on from it.

    Everything that was sent stays on record. Exit codes: 0 done, 1 refused or failed (nothing was changed), 2 usage.
    """
    from agent.conversation import Surroundings
    from agent.oneshot import compact_once
    from agent.terminal import Terminal

    env = dict(os.environ)
    folders = Folders.find(env)
    settings = load(folders, env, {} if model is None else {"model": model})
    terminal = Terminal(json_lines=json_lines)
    around = Surroundings(env, terminal.clock, random.random, terminal.listener, terminal.downloads, terminal.asker)
    try:
        code = run_to_end(lambda: compact_once(session, Path.cwd().resolve(), settings, folders, around))
    finally:
        terminal.close()
    raise typer.Exit(code)


@app.command()
def cost(
    session: Annotated[
        str | None, typer.Argument(help="A session; the last one of this directory when left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/cost.md).")] = False,
) -> None:
    """What a session cost, call by call: fresh, read, written and output tokens, hit rate, money, speed."""
    from agent.ledger import Ledger
    from agent.reports.cost import CostReport, print_report

    with Ledger.open(Folders.find(os.environ).ledger) as ledger:
        row = chosen_session(ledger, session)
        report = CostReport.of(row, ledger.calls(row.id), ledger.pings.of(row.id))
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report)


@app.command("context")
def context_command(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Small local models get less; the usual model when left out.")
    ] = None,
    files: Annotated[list[str] | None, typer.Option("--file", help="As for `agent run`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/repository.md).")] = False,
) -> None:
    """Where the tokens of this repository go ahead of the first command, and what was left out and why."""
    from datetime import date

    from agent.backend_choice import choose_model, find_model, load_catalog
    from agent.head import make_head
    from agent.redact import Redactor
    from agent.reports.context import context_report, print_context
    from backends.llama.models import is_local

    env, here = dict(os.environ), Path.cwd().resolve()
    folders = Folders.find(env)
    settings = load(folders, env, {} if model is None else {"model": model})
    name = find_model(choose_model(settings, env), load_catalog(folders)).name
    profile = "compact" if is_local(name) else "cloud"
    pinned = _given_files(files or [], here)
    head = make_head(here, profile, settings, folders, Redactor(env), pinned, env, lambda: date.today().isoformat())
    report = context_report(head)
    if as_json:
        print_json(report.to_json())
    else:
        print_context(report)


@app.command()
def sessions(
    here: Annotated[bool, typer.Option("--here", help="Only those of this directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/cost.md).")] = False,
) -> None:
    """The sessions there are, newest first."""
    from agent.ledger import Ledger
    from agent.reports.sessions import print_sessions, summarise, to_json

    with Ledger.open(Folders.find(os.environ).ledger) as ledger:
        summaries = summarise(ledger, ledger.sessions(show_name(os.getcwd()) if here else None))
    if as_json:
        print_json(to_json(summaries))
    elif summaries:
        print_sessions(summaries)
    else:
        where = " in this directory" if here else ""
        sys.stdout.write(f'There are no sessions{where} yet. Start one: agent run "…"\n')


@app.command()
def doctor(
    endpoint: Annotated[
        str | None, typer.Option(help="Try this one with two or three small requests: does it cache, and say so?")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model to try it with.")] = None,
) -> None:
    """What works on this machine, what does not, and why. Nothing is sent anywhere without --endpoint."""
    env = dict(os.environ)
    if endpoint is None:
        if model is not None:
            raise UserError("--model is for --endpoint. Nothing was sent. Name one: --endpoint NAME", USAGE)
        from agent.reports.doctor import print_checks

        raise typer.Exit(print_checks(env))
    from agent.reports.probe import print_probe

    name = endpoint
    raise typer.Exit(run_to_end(lambda: print_probe(name, model, env)))
