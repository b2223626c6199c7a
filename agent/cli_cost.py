"""`agent cost …`: what sessions cost, and why. Nothing is sent."""

import os
import sys
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperCommand, TyperGroup

from agent.cli_parts import chosen_session, print_json
from agent.complete import session_ids
from agent.config import Folders
from agent.errors import USAGE, UserError

if TYPE_CHECKING:
    from agent.ledger import Ledger
    from agent.ledger_rows import SessionRow

_REPORT: Final = ""
"""The command that `agent cost` is without another word: it is called like its group."""
_BY: Final = "session, turn, call, layer, model, day, repository or tool"


class CostGroup(TyperGroup):
    """Commands beside the report. A first word that is none of them is a session's id."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [_REPORT, *args])

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        return super().get_command(ctx, cmd_name or "report")  # type: ignore[return-value]


cost_app: Final = typer.Typer(cls=CostGroup, help="What sessions cost: tokens, hit rate, money, speed.")


@cost_app.command("report", hidden=True)
def report_command(
    session: Annotated[
        str | None,
        typer.Argument(autocompletion=session_ids, help="A session; the last one of this directory when left out."),
    ] = None,
    since: Annotated[str | None, typer.Option(help="All calls from then on: 2026-12-01, 36h, 7d, 2w.")] = None,
    days: Annotated[int | None, typer.Option(help="All calls of the last days; 1 is today.", min=1)] = None,
    repository: Annotated[str | None, typer.Option(help="All sessions that were started in this directory.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    origin: Annotated[
        str, typer.Option(help="Whose: ours, all, or another agent whose logs were read (docs/import.md).")
    ] = "ours",
    by: Annotated[str | None, typer.Option(help=f"Sum up by {_BY}.")] = None,
    machine_cost: Annotated[
        str | None, typer.Option(help="USD per hour of this machine, for what local models have cost.")
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="One session under other policies and on other models."),
    ] = False,
    against: Annotated[
        list[str] | None,
        typer.Option(help="With --what-if: also this policy, model, or outputs:N; again for another one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/cost.md).")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, a row for each group.")] = False,
) -> None:
    """What a session cost and where it went; or many of them, summed up by what you like.

    `agent cost --days 7 --by model`, `agent cost --all --by repository`, `agent cost SESSION --by turn`.
    """
    import time

    from agent.backend_choice import load_catalog
    from agent.cost_record import Selection
    from agent.ledger import Ledger
    from agent.rates import RateBook
    from agent.reports.chosen_calls import chosen, session_called
    from agent.reports.cost_json import report_csv, report_json
    from agent.reports.cost_table import print_grouped
    from agent.reports.groups import BY, grouped
    from agent.reports.session_cost import print_session, session_cost, session_json

    if by is not None and by not in BY:
        raise UserError(f"--by takes {_BY}; not {by!r}.", USAGE)
    machine = _usd(machine_cost)
    selection = chosen(time.time(), since=since, days=days, repository=repository, everything=everything, origin=origin)
    if session is not None and selection is not None:
        raise UserError("Say a session, or which ones: --since, --days, --repository, --all, --origin.", USAGE)
    if (what_if or against) and (by or as_csv or selection is not None):
        raise UserError("--what-if is for one session, as a table or --json.", USAGE)
    folders = Folders.find(os.environ)
    with Ledger.open(folders.ledger) as ledger:
        book = RateBook(load_catalog(folders))
        if selection is None:
            row = chosen_session(ledger, None) if session is None else session_called(ledger, session)
            if what_if or against:
                _tell_what_if(ledger, row, folders, against or [], as_json=as_json)
                return
            if by is None and not as_csv:
                report = session_cost(ledger, row, book)
                if as_json:
                    print_json(session_json(report, machine))
                else:
                    print_session(report, machine)
                return
            selection = Selection(session=row.id)
            by = by or "call"
        found = grouped(ledger, selection, by or "session", book)
    if as_json:
        print_json(report_json(found, machine))
    elif as_csv:
        sys.stdout.write(report_csv(found, machine))
    elif not found.groups:
        raise UserError("No call is in that. `agent sessions` lists the sessions there are.", USAGE)
    else:
        print_grouped(found, machine)


def _tell_what_if(ledger: "Ledger", row: "SessionRow", folders: Folders, against: list[str], *, as_json: bool) -> None:
    import time
    from pathlib import Path

    from agent.backend_choice import load_catalog
    from agent.config import load
    from agent.reports.whatif import what_if
    from agent.reports.whatif_text import print_what_if

    settings = load(folders, os.environ, {}, Path.cwd())
    report = what_if(ledger, row, load_catalog(folders), settings, time.time(), against)
    if as_json:
        print_json(report.to_json())
    else:
        print_what_if(report)


def _usd(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        usd = Decimal(text)
    except InvalidOperation:
        usd = Decimal(-1)
    if not usd.is_finite() or usd < 0:
        raise UserError(f"--machine-cost takes USD per hour, such as 0.35; not {text!r}.", USAGE)
    return usd
