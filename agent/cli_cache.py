"""`agent cache …`: what the prompt cache did and holds, and what it would have cost otherwise. Nothing is sent."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agent.cli_parts import chosen_session, print_json
from agent.complete import session_ids
from agent.config import Folders, load
from agent.errors import USAGE, UserError

if TYPE_CHECKING:
    from agent.bill import Pricing
    from backends.catalog import ModelInfo

_MOST_GB: Final = 1e9  # more than any disk has; infinity is no whole number

cache_app: Final = typer.Typer(help="The prompt cache: what it did, and why not more.", no_args_is_help=True)


@cache_app.command("explain")
def explain_command(
    session: Annotated[
        str | None,
        typer.Argument(autocompletion=session_ids, help="A session; the last one of this directory when left out."),
    ] = None,
    call: Annotated[int | None, typer.Argument(help="The number of a call; all when left out.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/cost.md).")] = False,
) -> None:
    """What each call was forecast to read from the cache, what was billed, and why not all of it was read."""
    from agent.ledger import Ledger
    from agent.reports.explain import explain, print_explanations

    with Ledger.open(Folders.find(os.environ).ledger) as ledger:
        row = chosen_session(ledger, session)
        found = explain(ledger, row, call)
    if call is not None and not found:
        raise UserError(f"Session {row.id} has no call {call}. `agent cost {row.id}` lists them.", USAGE)
    if as_json:
        print_json({"session": row.id, "calls": [each.to_json() for each in found]})
    else:
        print_explanations(row, found)


@cache_app.command("status")
def status_command(
    session: Annotated[
        str | None,
        typer.Argument(autocompletion=session_ids, help="A session; the last one of this directory when left out."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Count down until interrupted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/cost.md).")] = False,
) -> None:
    """What of a session is warm, for how long, and what the next turn costs warm and cold. It sends nothing."""
    from agent.backend_choice import find_model, load_catalog, pricing
    from agent.clock import SystemClock
    from agent.ledger import Ledger
    from agent.reports.cache_status import cache_status, show
    from agent.reports.console import report_console

    folders, clock = Folders.find(os.environ), SystemClock()
    catalog, settings = load_catalog(folders), load(folders, os.environ, {})

    def known(name: str) -> "tuple[ModelInfo, Pricing]":
        info = find_model(name, catalog)
        return info, pricing(info)

    with Ledger.open(folders.ledger) as ledger:
        row = chosen_session(ledger, session)
        status = cache_status(ledger, row, known, settings, clock.now())
        if status is None:
            raise UserError(f"Nothing of session {row.id} has been answered yet, so nothing of it is cached.", USAGE)
        if as_json:
            print_json(status.to_json())
        elif watch and sys.stdout.isatty():
            from rich.live import Live

            with Live(show(status), console=report_console(), refresh_per_second=4) as live:
                while status is not None:
                    live.update(show(status))
                    time.sleep(1)  # a clock for the eye: nothing waits for it
                    status = cache_status(ledger, row, known, settings, clock.now())
        else:
            report_console().print(show(status))


@cache_app.command("ls")
def ls_command(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """KV states of local models on disk, which let a new process start warm."""
    from agent.reports.kv import print_kept, to_json
    from backends.llama.kv_store import kept

    folders = Folders.find(os.environ)
    found = kept(folders.kv)
    if as_json:
        print_json(to_json(found))
    else:
        print_kept(found, folders.kv, load(folders, os.environ, {}).kv_disk)


@cache_app.command("prune")
def prune_command(
    keep: Annotated[float, typer.Option(help="GB to keep, of what was used last.", min=0)] = 0,
) -> None:
    """Remove KV states of local models from disk. The next start is cold; nothing else is lost."""
    from backends.llama.kv_store import prune
    from backends.llama.models import megabytes

    freed = prune(Folders.find(os.environ).kv, int(min(keep, _MOST_GB) * 1_000_000_000))
    sys.stdout.write(f"{megabytes(freed)} freed.\n")


@cache_app.command("replay")
def replay_command(
    session: Annotated[
        str | None,
        typer.Argument(autocompletion=session_ids, help="A session; the last one of this directory when left out."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="none, fixed:N, always, 1h, auto, clairvoyant; several are compared.",
        ),
    ] = None,
    gaps: Annotated[
        Path | None,
        typer.Option(help="A file with the pauses between the turns in seconds, one a line, instead of the real ones."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/keepalive.md).")] = False,
) -> None:
    """What a recorded session would have cost under another policy of keeping the cache warm."""
    from agent.backend_choice import find_model, load_catalog, pricing
    from agent.ledger import Ledger
    from agent.reports.replay import print_replay, read_gaps, replays

    folders = Folders.find(os.environ)
    settings, catalog = load(folders, os.environ, {}), load_catalog(folders)
    pauses = None if gaps is None else read_gaps(gaps)
    with Ledger.open(folders.ledger) as ledger:
        row = chosen_session(ledger, session)
        last = ledger.last_answered(row.id)
        if last is None:
            raise UserError(f"Nothing of session {row.id} has been answered yet, so nothing was billed.", USAGE)
        info = find_model(last.model, catalog)
        report = replays(ledger, row, info, pricing(info), settings, policy or (), pauses)
    if as_json:
        print_json(report.to_json())
    else:
        print_replay(report)
