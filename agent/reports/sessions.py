"""`agent sessions`: what there is to go on with."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.reports.console import print_rows, report_console
from agent.reports.totals import Totals, money, percent, total_of
from agent.turns import Turn, said
from context.fold import is_command


def summarise(ledger: Ledger, rows: list[SessionRow]) -> list[tuple[SessionRow, Totals]]:
    """Each session with the totals of its calls; what its pings cost is in the sum."""
    pings: dict[str, list[Decimal | None]] = {}
    for ping in ledger.pings.all():
        if ping.status == "done":
            pings.setdefault(ping.session, []).append(ping.cost_usd)
    return [(row, _with(total_of(ledger.calls(row.id)), pings.get(row.id, []))) for row in rows]


def _with(totals: Totals, pings: list[Decimal | None]) -> Totals:
    known = [usd for usd in pings if usd is not None]
    if totals.cost_usd is None or len(known) < len(pings):
        return replace(totals, cost_usd=None)
    return replace(totals, cost_usd=totals.cost_usd + sum(known, Decimal(0)))


def find(ledger: Ledger, rows: list[SessionRow], text: str) -> list[SessionRow]:
    """Those of `rows` that have `text` in their title, directory or a command, whatever its case."""
    wanted = text.casefold()
    return [row for row in rows if any(wanted in part.casefold() for part in _texts(ledger, row))]


def _texts(ledger: Ledger, row: SessionRow) -> Iterator[str]:
    yield row.title
    yield row.directory
    yield from (said(block) for block in ledger.prompt(row.id) if is_command(block))


def turns_json(found: Sequence[Turn]) -> list[dict[str, Any]]:
    """Documented in docs/sessions.md. Unknown is null."""
    return [
        {
            "turn": turn.number,
            "command": turn.command,
            "started": turn.started,
            "cost_usd": None if turn.cost_usd is None else str(turn.cost_usd),
        }
        for turn in found
    ]


def print_turns(found: Sequence[Turn]) -> None:
    print_rows(
        (
            str(turn.number),
            f"{datetime.fromtimestamp(turn.started):%Y-%m-%d %H:%M}  {money(turn.cost_usd)}  {turn.command}",
        )
        for turn in found
    )


def to_json(summaries: list[tuple[SessionRow, Totals]]) -> list[dict[str, Any]]:
    """Documented in docs/cost.md. Unknown is null."""
    return [
        {
            "session": row.id,
            "created": row.created,
            "directory": row.directory,
            "title": row.title,
            "calls": total.calls,
            "hit_rate": total.hit_rate,
            "cost_usd": None if total.cost_usd is None else str(total.cost_usd),
        }
        for row, total in summaries
    ]


def print_sessions(summaries: list[tuple[SessionRow, Totals]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("session", "started", "calls", "hit rate", "cost"):
        table.add_column(name, justify="left" if name in ("session", "started") else "right", no_wrap=True)
    table.add_column("first command", no_wrap=True, overflow="ellipsis")
    for row, total in summaries:
        started = f"{datetime.fromtimestamp(row.created):%Y-%m-%d %H:%M}"
        table.add_row(
            *(row.id, started, str(total.calls), percent(total.hit_rate) if total.calls else ""),
            *(money(total.cost_usd) if total.calls else "", Text(row.title)),
        )
    report_console().print(table)
