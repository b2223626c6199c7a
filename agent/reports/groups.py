"""What many calls have cost, in groups: by session, turn, call, layer, model, day, repository or tool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from agent.cost_record import Selection
from agent.ledger_rows import SessionRow
from agent.rates import RateBook
from agent.reports.layers import PINGS, by_tool, layer_report
from agent.reports.spend import Spend, cell_of, is_billed
from agent.speed import decode_tps

if TYPE_CHECKING:
    from agent.ledger import Ledger

BY: Final = ("session", "turn", "call", "layer", "model", "day", "repository", "tool")
_FROM_CELLS: Final = ("session", "model", "day", "repository")
NO_TURN: Final = "in no turn"
NO_TOOL: Final = "all else"


@dataclass(slots=True)
class Group:
    """`ttft` in seconds and `tps` in tokens a second, of the calls that were timed."""

    key: str
    label: str
    spend: Spend = field(default_factory=Spend)
    ttft: list[float] = field(default_factory=list)
    tps: list[float] = field(default_factory=list)

    def time(self, ttft_s: float | None, tps: float | None) -> None:
        if ttft_s is not None:
            self.ttft.append(ttft_s)
        if tps is not None:
            self.tps.append(tps)

    def merge(self, other: "Group") -> None:
        """Add all of `other`."""
        self.spend.merge(other.spend)
        self.ttft += other.ttft
        self.tps += other.tps


@dataclass(slots=True)
class GroupedReport:
    """`sessions`: how many there are in it. `prices`: where they are from. `opaque`: sessions of other agents, whose
    layers and tools cannot be told.
    """

    by: str
    groups: list[Group]
    total: Group
    sessions: int
    prices: list[str]
    opaque: int = 0


def grouped(ledger: "Ledger", selection: Selection, by: str, book: RateBook) -> GroupedReport:
    """Raises LedgerError."""
    sessions = {row.id: row for row in ledger.costs.sessions(selection)}
    report = GroupedReport(by, [], Group("total", "total"), 0, [])
    groups: dict[str, Group] = {}
    key = by if by in _FROM_CELLS else "session"
    labels = {row.id: row.title for row in sessions.values()} if key == "session" else {}
    prices: set[str] = set()
    for name, cell in ledger.costs.cells(selection, key, book.by_hour):
        rates = book.of(cell.model, cell.at, cell.input // max(cell.calls, 1), cell.tier)
        _group(groups, name, labels).spend.add(cell, rates)
        prices |= {cell.price} if cell.price else set()
    for pings in ledger.costs.pings(selection, key):
        _group(groups, pings.key, labels).spend.add_pings(pings.calls, pings.usd, pings.unpriced)
    for speed in ledger.costs.speeds(selection, key):
        _group(groups, speed.key, labels).time(speed.ttft_s, decode_tps(speed.output, speed.ttft_s, speed.duration_s))
    for group in groups.values():
        report.total.merge(group)
    report.sessions = ledger.costs.count(selection)
    if by not in _FROM_CELLS:
        looked_into = [row for row in sessions.values() if row.id in groups]
        groups = {}
        for row in looked_into:
            _look_into(ledger, row, selection, by, book, groups)
        report.opaque = sum(row.origin is not None for row in looked_into) if by in ("layer", "tool") else 0
    report.groups, report.prices = list(groups.values()), sorted(prices)
    return report


def _group(groups: dict[str, Group], key: str, labels: Mapping[str, str]) -> Group:
    if key not in groups:
        groups[key] = Group(key, labels.get(key, key))
    return groups[key]


def _look_into(
    ledger: "Ledger", row: SessionRow, selection: Selection, by: str, book: RateBook, groups: dict[str, Group]
) -> None:
    """One session by its calls, or by what was in their prompts."""
    if by in ("turn", "call"):
        _by_call(ledger, row, selection, by, book, groups)
        return
    found = layer_report(ledger, row, book, selection.covers)
    if by == "layer":
        for name, spend in found.layers.items():
            _group(groups, name, {}).spend.merge(spend)
        return
    total = sum((spend.cost.known for spend in found.layers.values()), Decimal(0))
    unknown = sum(spend.cost.unknown for spend in found.layers.values())
    for tool, (outputs, usd) in by_tool(found, total).items():
        spend = _group(groups, tool or NO_TOOL, {}).spend
        spend.calls += outputs
        spend.cost = spend.cost.plus(usd, 0 if tool else unknown)


def _by_call(
    ledger: "Ledger", row: SessionRow, selection: Selection, by: str, book: RateBook, groups: dict[str, Group]
) -> None:
    for call in ledger.calls(row.id):
        cell = cell_of(call)
        if not is_billed(call) or not selection.covers(cell.at):
            continue
        if by == "call":
            key, label = f"{row.id}/{call.number}", f"call {call.number}"
        else:
            key, label = f"{row.id}/{call.turn}", NO_TURN if call.turn is None else f"turn {call.turn}"
        group = _group(groups, key, {key: label})
        group.spend.add(cell, book.of(call.model, call.started, cell.input, cell.tier))
        group.time(call.ttft_s, decode_tps(call.usage.output, call.ttft_s, call.duration_s))
    for ping in ledger.pings.of(row.id):
        if selection.covers(ping.at):
            _group(groups, f"{row.id}/{PINGS}", {f"{row.id}/{PINGS}": PINGS}).spend.add_ping(ping)
