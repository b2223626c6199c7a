"""The table of `agent cost --what-if`."""

from decimal import Decimal

from agent.reports.console import report_console
from agent.reports.totals import money, percent, tokens
from agent.reports.whatif import Row, WhatIf


def print_what_if(report: WhatIf) -> None:
    """On standard output."""
    from rich.table import Table

    console = report_console()
    console.print(f"Session {report.session} · {report.title}", markup=False, highlight=False)
    console.print(f"{', '.join(report.models)} · paid {money(report.paid_usd)}", markup=False, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what if")
    for name in ("cost", "difference", "hit rate", "written", "pings"):
        table.add_column(name, justify="right")
    table.add_column("")
    group = None
    for row in report.rows:
        if group is not None and row.group != group:
            table.add_section()
        group = row.group
        table.add_row(*_cells(row, report.paid_usd), style="bold" if row.cheapest else None)
    console.print(table)
    for output in report.outputs:
        console.print(
            f"  {output.name}: {tokens(output.tokens)} tokens, carried by {output.requests} requests",
            style="dim",
            markup=False,
            highlight=False,
        )
    if report.left_out:
        console.print(f"In no row: {report.left_out} calls whose bill is not known.", style="dim")
    for note in report.rests_on:
        console.print(note, style="dim", markup=False, highlight=False)


def _cells(row: Row, paid: Decimal | None) -> tuple[str, ...]:
    notes = ["cheapest"] if row.cheapest else []
    if not row.recomputed:
        notes.append("as it was")
    return (
        row.label,
        money(row.usd),
        _difference(row.usd, paid),
        percent(row.calls.hit_rate),
        tokens(row.calls.cache_write),
        f"{row.pings} for {money(row.pings_usd)}" if row.pings else "",
        ", ".join(notes),
    )


def _difference(usd: Decimal | None, paid: Decimal | None) -> str:
    if usd is None or paid is None:
        return "unknown"
    change = usd - paid
    share = f" ({change / paid:+.0%})" if paid and change else ""
    return f"{'-' if change < 0 else '+' if change else ''}{money(abs(change))}{share}"
