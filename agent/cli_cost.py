"""`agent cost …`: what sessions cost, and why. Nothing is sent."""

import os
from typing import Annotated, Final

import typer
from typer.core import TyperCommand, TyperGroup

from agent.cli_parts import chosen_session, print_json
from agent.complete import session_ids
from agent.config import Folders

_REPORT: Final = ""
"""The command that `agent cost` is without another word: it is called like its group."""


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
