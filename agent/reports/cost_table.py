"""Grouped reports as a table, with the columns for which there is room."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from agent.reports.console import report_console
from agent.reports.cost_json import machine_cost, spread
from agent.reports.cost_words import NAMES, tokens_text, usd_text, where_it_went
from agent.reports.groups import Group, GroupedReport
from agent.reports.totals import money, percent
from context.names import show_name

_MOST_ROWS: Final = 200
_LABEL: Final = 12  # the narrowest that a label may be


@dataclass(frozen=True, slots=True)
class _Column:
    """The one of the lowest `rank` goes first where there is no room. Empty in all rows: it is not shown."""

    name: str
    rank: int
    text: Callable[[Group], str]


def _columns(machine_usd: Decimal | None) -> list[_Column]:
    def sum_of(name: str) -> Callable[[Group], str]:
        return lambda group: _nothing(tokens_text(group.spend.tokens[name]))

    columns = [
        _Column("calls", 8, lambda group: _nothing(f"{group.spend.calls:,}")),
        _Column("fresh", 5, sum_of("fresh")),
        _Column("read", 6, sum_of("cache_read")),
        _Column("write", 4, sum_of("write_short")),
        _Column("write long", 2, sum_of("write_long")),
        _Column("output", 5, sum_of("output")),
        _Column("reasoning", 1, sum_of("reasoning")),
        _Column("hit rate", 9, lambda group: "" if not group.spend.input.known else percent(group.spend.hit_rate)),
        _Column(
            "pings",
            3,
            lambda group: "" if not group.spend.pings else f"{group.spend.pings} {usd_text(group.spend.pings_usd)}",
        ),
        _Column("saved", 7, lambda group: _nothing(usd_text(group.spend.saved))),
        _Column("lost", 7, lambda group: _nothing(usd_text(group.spend.lost_usd))),
        _Column("TTFT", 3, lambda group: _spread(group.ttft, "{:.1f}", " s")),
        _Column("TPS", 2, lambda group: _spread(group.tps, "{:.0f}", "")),
        _Column("local", 4, lambda group: _nothing(f"{group.spend.local_s:,.0f} s")),
        _Column("cost", 10, lambda group: usd_text(group.spend.cost)),
    ]
    if machine_usd is not None:
        columns.append(_Column("machine", 9, lambda group: _nothing(money(machine_cost(group.spend, machine_usd)))))
    return columns


def print_grouped(report: GroupedReport, machine_usd: Decimal | None = None) -> None:
    """On standard output."""
    console = report_console()
    layers = {group.key: group.spend for group in report.groups} if report.by == "layer" else None
    console.print(where_it_went(report.total.spend, layers), markup=False, highlight=False)
    shown = _shown(report)
    rows = [*shown, report.total]
    columns = [column for column in _columns(machine_usd) if any(column.text(group) for group in rows)]
    columns = _fitting(
        columns, rows, console.width, max((cell_len(_label(report, group)) for group in rows), default=0)
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(report.by, overflow="ellipsis", no_wrap=True, min_width=_LABEL)
    for column in columns:
        table.add_column(column.name, justify="right", no_wrap=True)
    for group in shown:
        table.add_row(Text(_label(report, group)), *(column.text(group) for column in columns))
    table.add_section()
    table.add_row("total", *(column.text(report.total) for column in columns))
    console.print(table)
    if (left := len(report.groups) - len(shown)) > 0:
        console.print(f"{left:,} more; --json and --csv have all of them.", style="dim")
    if report.opaque:
        console.print(f"Of {report.opaque} sessions of other agents the prompts are not known.", style="dim")
    if report.prices:
        console.print(f"Prices: {prices_text(report.prices)}.", style="dim", markup=False, highlight=False)


def prices_text(prices: Sequence[str]) -> str:
    """Sources, each with the first and the last day whose prices were applied."""
    days: dict[str, list[str]] = {}
    for price in prices:
        source, _, day = price.rpartition(", ")
        days.setdefault(source or price, []).append(day)
    return "; ".join(
        f"{source}, {min(found)}" + (f" to {max(found)}" if max(found) != min(found) else "")
        for source, found in days.items()
    )


def _shown(report: GroupedReport) -> list[Group]:
    """In order of time, or the dearest first."""
    groups = report.groups
    if report.by in ("model", "repository", "tool"):
        groups = sorted(groups, key=lambda group: -group.spend.cost.known)
    elif report.by == "day":
        groups = sorted(groups, key=lambda group: group.key)
    return groups[-_MOST_ROWS:] if report.by in ("day", "session", "call", "turn") else groups[:_MOST_ROWS]


def _label(report: GroupedReport, group: Group) -> str:
    if report.by == "layer":
        return NAMES.get(group.key, group.key)
    if report.by == "session" and group is not report.total:
        return show_name(f"{group.key} {group.label}")
    if report.by in ("turn", "call") and report.sessions > 1 and group is not report.total:
        return show_name(f"{group.key.partition('/')[0]} {group.label}")
    return show_name(group.label)


def _fitting(columns: list[_Column], rows: Sequence[Group], width: int, label: int) -> list[_Column]:
    def needed(some: Sequence[_Column]) -> int:
        widths = [max(len(column.name), *(cell_len(column.text(row)) for row in rows)) for column in some]
        return min(label, 3 * _LABEL) + sum(each + 1 for each in widths)

    while len(columns) > 1 and needed(columns) > width:
        columns = [column for column in columns if column is not min(columns, key=lambda each: each.rank)]
    return columns


def _pings(group: Group) -> str:
    return f"{group.spend.pings} {usd_text(group.spend.pings_usd)}" if group.spend.pings else ""


def _nothing(text: str) -> str:
    """Of nothing there is nothing to show."""
    return "" if text in ("0", "$0.0000", "0 s") else text


def _spread(values: list[float], form: str, unit: str) -> str:
    found = spread(values)
    return "" if found is None else f"{form.format(found['median'])} ({form.format(found['p95'])}){unit}"
