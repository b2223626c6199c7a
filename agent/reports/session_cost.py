"""`agent cost`: one session, where its money went."""

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.cost_record import Selection
from agent.ledger_rows import SessionRow
from agent.rates import RateBook
from agent.reports.console import report_console
from agent.reports.cost import CostReport, print_calls
from agent.reports.cost_json import machine_cost, plain_usd, spend_json
from agent.reports.cost_words import NAMES, cause_text, share, tokens_text, usd_text, where_it_went
from agent.reports.groups import GroupedReport, grouped
from agent.reports.layers import LAYERS, LayerReport, layer_report
from agent.reports.spend import Spend
from agent.reports.totals import money
from context.names import show_name

if TYPE_CHECKING:
    from agent.ledger import Ledger

_DEAR: Final = 5  # of what was carried
_CALLS: Final = 20  # a longer list says nothing to anybody
_BAR: Final = 30
_TURNS: Final = 24  # bars; of more turns several are one bar
_FILLS: Final = ("█", "▓", "▒", "░")  # of SYSTEM, PROJECT, HISTORY, new input: told apart without colours as well


@dataclass(frozen=True, slots=True)
class SessionCost:
    """`report`: its calls; `total` and `turns` of the same calls and pings; `layers` None: not known."""

    report: CostReport
    total: Spend
    turns: GroupedReport
    layers: LayerReport | None


def session_cost(ledger: "Ledger", row: SessionRow, book: RateBook) -> SessionCost:
    """Raises LedgerError."""
    turns = grouped(ledger, Selection(session=row.id), "turn", book)
    report = CostReport.of(row, ledger.calls(row.id), ledger.pings.of(row.id))
    layers = None if row.origin is not None else layer_report(ledger, row, book)
    return SessionCost(report, turns.total.spend, turns, layers)


def session_json(cost: SessionCost, machine_usd: Decimal | None = None) -> dict[str, Any]:
    """Documented in docs/cost.md. Unknown is null; money is a decimal number of USD as a string."""
    told = cost.report.to_json()
    told["total"] |= {
        name: value for name, value in spend_json(cost.total, machine_usd).items() if name not in told["total"]
    }
    told["layers"] = None
    told["carried"] = None
    if cost.layers is not None:
        told["layers"] = {name: spend_json(spend) for name, spend in cost.layers.layers.items()}
        told["carried"] = [
            {
                "name": burden.name,
                "layer": burden.layer,
                "tool": burden.tool,
                "tokens": burden.tokens,
                "calls": burden.calls,
                "usd": plain_usd(burden.usd.quantize(Decimal("1e-9"))),
            }
            for burden in cost.layers.burdens
        ]
    return told


def print_session(cost: SessionCost, machine_usd: Decimal | None = None) -> None:
    """On standard output."""
    console, report = report_console(), cost.report
    row = report.session
    whose = "" if row.origin is None else f" · {row.origin}"
    console.print(f"Session {row.id}{whose} · {show_name(row.title)}", markup=False, highlight=False)
    layers = None if cost.layers is None else cost.layers.layers
    if not report.local:
        console.print(where_it_went(cost.total, layers), markup=False, highlight=False)
    elif machine_usd is not None:
        spent = money(machine_cost(cost.total, machine_usd))
        console.print(f"The model worked for {cost.total.local_s:,.0f} s: {spent} of this machine.", highlight=False)
    if cost.layers is not None and layers is not None and not report.local and cost.total.cost.known:
        _print_layers(console, layers, cost.total.cost.known)
    if cost.layers is not None:
        _print_turns(console, cost.layers, cost.turns)
    if cost.layers is not None and not report.local:
        _print_carried(console, cost.layers)
    _print_lost(console, cost.total)
    console.print()
    print_calls(report, _CALLS)


def _print_layers(console: Console, layers: dict[str, Spend], total: Decimal) -> None:
    table = _table("layer")
    for name in ("read", "write", "fresh", "output", "cost", ""):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name, spend in layers.items():
        write = spend.tokens["write_short"].plus(spend.tokens["write_long"].known, spend.tokens["write_long"].unknown)
        each = (spend.tokens["cache_read"], write, spend.tokens["fresh"], spend.tokens["output"])
        bar = "█" * round(_BAR * spend.cost.known / total)
        table.add_row(
            NAMES[name],
            *("" if not count.known and not count.unknown else tokens_text(count) for count in each),
            *(usd_text(spend.cost), share(spend.cost.known, total), bar),
        )
    console.print()
    console.print(table)


def _print_turns(console: Console, layers: LayerReport, turns: GroupedReport) -> None:
    """Tokens of the last call of each turn by layer, and what the session had cost by its end."""
    last = {call.turn: call for call in layers.calls if call.turn is not None}
    if len(last) < 2:
        return
    costs = {group.label: group.spend.cost.known for group in turns.groups}
    step = -(-len(last) // _TURNS)
    shown = [turn for at, turn in enumerate(last, 1) if at % step == 0 or at == len(last)]
    most = max(sum(last[turn].tokens) for turn in shown)
    table = _table("turn")
    for name in ("tokens", "cost so far"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("".join(f"{fill} {NAMES[name]} " for fill, name in zip(_FILLS, LAYERS, strict=True)), no_wrap=True)
    so_far = Decimal(0)
    for turn in last:
        so_far += costs.get(f"turn {turn}", Decimal(0))
        if turn in shown:
            tokens = last[turn].tokens
            bar = "".join(fill * round(_BAR * count / most) for fill, count in zip(_FILLS, tokens, strict=True) if most)
            table.add_row(str(turn), f"{sum(tokens):,}", money(so_far), bar)
    console.print()
    console.print(table)


def _print_carried(console: Console, layers: LayerReport) -> None:
    dear = [burden for burden in layers.burdens if burden.usd > 0][:_DEAR]
    if not dear:
        return
    table = _table("dear to carry")
    for name in ("tokens", "in calls", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for burden in dear:
        cost = money(burden.usd)
        table.add_row(Text(show_name(burden.name)), f"{burden.tokens:,}", f"{burden.calls:,}", cost)
    console.print()
    console.print(table)


def _print_lost(console: Console, total: Spend) -> None:
    if not total.lost:
        return
    table = _table("lost to misses")
    for name in ("tokens", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for cause, (tokens, lost) in sorted(total.lost.items(), key=lambda item: -item[1][1].known):
        table.add_row(cause_text(cause), f"{tokens:,}", usd_text(lost))
    console.print()
    console.print(table)


def _table(first: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first, overflow="ellipsis", no_wrap=True)
    return table
