"""What many calls have cost, in groups: by session, turn, call, layer, model, day, repository or tool."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from agent.cost_record import Selection
from agent.ledger_rows import SessionRow
from agent.ping_record import Ping
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
    total = Group("total", "total")
    report = GroupedReport(by, [], total, 0, [])
    prices: set[str] = set()
    seen: set[str] = set()
    groups: dict[str, Group] = {}
    key_of = _KEYS.get(by)
    for session, cell in ledger.costs.cells(selection):
        rates = book.of(cell.model, cell.at, cell.input // max(cell.calls, 1))
        total.spend.add(cell, rates)
        seen.add(session)
        prices |= {cell.price} if cell.price else set()
        if key_of is not None:
            _group(groups, key_of(sessions[session], cell.model, cell.at)).spend.add(cell, rates)
    for speed in ledger.costs.speeds(selection):
        tps = decode_tps(speed.output, speed.ttft_s, speed.duration_s)
        total.time(speed.ttft_s, tps)
        if key_of is not None:
            _group(groups, key_of(sessions[speed.session], speed.model, speed.at)).time(speed.ttft_s, tps)
    for ping in _pings(ledger, selection, sessions):
        total.spend.add_ping(ping)
        if key_of is not None:
            _group(groups, key_of(sessions[ping.session], ping.model, ping.at)).spend.add_ping(ping)
    if key_of is None:
        looked_into = sorted((sessions[session] for session in seen), key=lambda row: (row.created, row.id))
        for row in looked_into:
            _look_into(ledger, row, selection, by, book, groups)
        report.opaque = sum(row.origin is not None for row in looked_into) if by in ("layer", "tool") else 0
    report.groups, report.sessions, report.prices = list(groups.values()), len(seen), sorted(prices)
    return report


def _pings(ledger: "Ledger", selection: Selection, sessions: dict[str, SessionRow]) -> Iterator[Ping]:
    pings = ledger.pings.of(selection.session) if selection.session is not None else ledger.pings.all()
    return (ping for ping in pings if ping.session in sessions and selection.covers(ping.at))


def _group(groups: dict[str, Group], key: tuple[str, str]) -> Group:
    return groups.setdefault(key[0], Group(*key))


Key = Callable[[SessionRow, str, float], tuple[str, str]]
"""From a session, a model and a time to a group's key and its label."""


def _day(session: SessionRow, model: str, at: float) -> tuple[str, str]:
    day = datetime.fromtimestamp(at).date().isoformat()
    return day, day


_KEYS: Final[dict[str, Key]] = {
    "session": lambda session, _, __: (session.id, session.title),
    "model": lambda _, model, __: (model, model),
    "day": _day,
    "repository": lambda session, _, __: (session.directory, session.directory),
}


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
            _group(groups, (name, name)).spend.merge(spend)
        return
    total = sum((spend.cost.known for spend in found.layers.values()), Decimal(0))
    unknown = sum(spend.cost.unknown for spend in found.layers.values())
    for tool, (outputs, usd) in by_tool(found, total).items():
        spend = _group(groups, (tool or NO_TOOL, tool or NO_TOOL)).spend
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
            key = (f"{row.id}/{call.number}", f"call {call.number}")
        else:
            key = (
                (f"{row.id}/{call.turn}", NO_TURN)
                if call.turn is None
                else (f"{row.id}/{call.turn}", f"turn {call.turn}")
            )
        group = _group(groups, key)
        group.spend.add(cell, book.of(call.model, call.started, cell.input))
        group.time(call.ttft_s, decode_tps(call.usage.output, call.ttft_s, call.duration_s))
    for ping in ledger.pings.of(row.id):
        if selection.covers(ping.at):
            _group(groups, (f"{row.id}/{PINGS}", PINGS)).spend.add_ping(ping)
