"""`agent sessions` and `agent export`: what there is to go on with, and one of them as a document. Nothing is sent."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.cli_parts import chosen_session, print_json
from agent.config import Folders
from agent.errors import USAGE, UserError
from context.names import show_name


def sessions_command(
    here: Annotated[bool, typer.Option("--here", help="Only those of this directory.")] = False,
    search: Annotated[
        str | None, typer.Option("--search", help="Only those with this in title, directory or a command.")
    ] = None,
    of: Annotated[str | None, typer.Option("--turns", help="The turns of this session, to fork at.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/sessions.md).")] = False,
) -> None:
    """The sessions there are, newest first."""
    from agent.ledger import Ledger
    from agent.reports.sessions import find, print_sessions, print_turns, summarise, to_json, turns_json
    from agent.turns import turns

    with Ledger.open(Folders.find(os.environ).ledger) as ledger:
        if of is not None:
            found = turns(ledger, chosen_session(ledger, of).id)
            if as_json:
                print_json(turns_json(found))
            else:
                print_turns(found)
            return
        rows = ledger.sessions(show_name(os.getcwd()) if here else None)
        summaries = summarise(ledger, rows if search is None else find(ledger, rows, search))
    if as_json:
        print_json(to_json(summaries))
    elif summaries:
        print_sessions(summaries)
    else:
        where = " in this directory" if here else ""
        what = f"There are no sessions{where} yet. Start one" if search is None else f"No session{where} has that in it"
        sys.stdout.write(f'{what}: agent run "…"\n' if search is None else f"{what}.\n")


def export_command(
    session: Annotated[
        str | None, typer.Argument(help="A session; the last one of this directory when left out.")
    ] = None,
    kind: Annotated[str, typer.Option("--format", "-f", help="markdown, json or html.")] = "markdown",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this file, which must not be there yet.")
    ] = None,
) -> None:
    """A session as a document: commands, replies, thinking, tool calls and their results, cost."""
    from agent.export import FORMATS, export, to_text, write_new
    from agent.ledger import Ledger

    if kind not in FORMATS:
        raise UserError(f"--format {kind!r} is none of {', '.join(FORMATS)}. Nothing was written.", USAGE)
    with Ledger.open(Folders.find(os.environ).ledger) as ledger:
        text = to_text(export(ledger, chosen_session(ledger, session)), kind)
    if output is None:
        sys.stdout.write(text)
        return
    write_new(output, text)
