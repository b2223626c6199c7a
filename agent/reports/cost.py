"""`agent cost`: the calls of one session, each and in total."""

from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any

from agent.ledger_rows import CallRow, SessionRow
from agent.ping_record import Ping
from agent.reports.console import report_console
from agent.reports.totals import Totals, hit_rate, money, percent, tokens, total_of
from agent.speed import decode_tps

_MEASURABLE: int = 64  # tokens of prefill from which its speed can be told from the overhead of a call


@dataclass(frozen=True, slots=True)
class CostReport:
    """`pings`: calls that only renewed the cache.

    `seconds_saved`: what reading the reused tokens again would have taken a local model; None without a measurement.
    """

    session: SessionRow
    calls: tuple[CallRow, ...]
    total: Totals
    seconds_saved: float | None
    pings: tuple[Ping, ...] = ()

    @classmethod
    def of(cls, session: SessionRow, calls: list[CallRow], pings: list[Ping]) -> "CostReport":
        return cls(session, tuple(calls), total_of(calls), seconds_saved(calls), tuple(pings))

    @property
    def pings_usd(self) -> Decimal | None:
        """What the pings that were answered cost; None: unknown."""
        costs = [ping.cost_usd for ping in self.pings if ping.status == "done"]
        known = [cost for cost in costs if cost is not None]
        return sum(known, Decimal(0)) if len(known) == len(costs) else None

    @property
    def cost_usd(self) -> Decimal | None:
        """Calls and pings."""
        calls, pings = self.total.cost_usd, self.pings_usd
        return None if calls is None or pings is None else calls + pings

    @property
    def local(self) -> bool:
        return bool(self.calls) and all(is_local(call) for call in self.calls)

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/cost.md. Unknown is null; money is a decimal number of USD as a string."""
        total = self.total
        return {
            "session": self.session.id,
            "title": self.session.title,
            "directory": self.session.directory,
            "calls": [_call_json(call) for call in self.calls],
            "total": {
                "calls": total.calls,
                "fresh": total.fresh,
                "cache_read": total.cache_read,
                "cache_write": total.cache_write,
                "output": total.output,
                "hit_rate": total.hit_rate,
                "cost_usd": _usd(self.cost_usd),
                "pings": len(self.pings),
                "pings_usd": _usd(self.pings_usd),
                "ttft_s": _median([call.ttft_s for call in self.calls]),
                "tps": _median([tps(call) for call in self.calls]),
                "seconds_saved": self.seconds_saved,
            },
        }


def is_local(call: CallRow) -> bool:
    return call.dialect.startswith("local:")


def tps(call: CallRow) -> float | None:
    """Output tokens per second of decode."""
    return decode_tps(call.usage.output, call.ttft_s, call.duration_s)


def seconds_saved(calls: list[CallRow]) -> float | None:
    """Reused tokens over the prefill speed of the session's longest prefill, in which the overhead of a call shows
    least. Local calls only.
    """
    measured = [
        (call.usage.fresh, call.ttft_s)
        for call in calls
        if is_local(call) and call.ttft_s and call.usage.fresh is not None and call.usage.fresh >= _MEASURABLE
    ]
    reused = sum(call.usage.cache_read or 0 for call in calls if is_local(call))
    fresh, seconds = max(measured, default=(0, 0.0))
    return reused * seconds / fresh if fresh else None


def _call_json(call: CallRow) -> dict[str, Any]:
    usage = call.usage
    return {
        "call": call.number,
        "model": call.model,
        "status": call.status,
        "started": call.started,
        "fresh": usage.fresh,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "cache_write_long": usage.cache_write_long,
        "output": usage.output,
        "reasoning": usage.reasoning,
        "hit_rate": hit_rate(usage),
        "cost_usd": _usd(call.cost_usd),
        "price": call.price,
        "ttft_s": call.ttft_s,
        "tps": tps(call),
        "duration_s": call.duration_s,
    }


def _usd(cost: Decimal | None) -> str | None:
    return None if cost is None else str(cost)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def print_calls(report: CostReport, most: int) -> None:
    """Call by call on standard output, the last `most` of them."""
    from rich.table import Table

    console = report_console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("call", justify="right")
    for name in ("fresh", "reused" if report.local else "read", "write", "output", "hit rate", "cost", "TTFT", "TPS"):
        table.add_column(name, justify="right")
    table.add_column("status")
    if (left := len(report.calls) - most) > 0:
        console.print(
            f"The last {most} calls, of {left + most:,}: --by call, --json and --csv have them all.", style="dim"
        )
    for call in report.calls[-most:]:
        usage = call.usage
        table.add_row(
            *(str(call.number), tokens(usage.fresh), tokens(usage.cache_read), tokens(usage.cache_write)),
            *(tokens(usage.output), percent(hit_rate(usage)), "local" if is_local(call) else money(call.cost_usd)),
            *(_seconds(call.ttft_s), _rate(tps(call)), "" if call.status == "done" else call.status),
        )
    total = report.total
    table.add_section()
    table.add_row(
        *("total", tokens(total.fresh), tokens(total.cache_read), tokens(total.cache_write), tokens(total.output)),
        *(percent(total.hit_rate), "local" if report.local else money(report.cost_usd), "", "", ""),
    )
    console.print(table)
    if report.pings:
        count = f"{len(report.pings)} ping{'s' if len(report.pings) != 1 else ''}"
        console.print(f"In the total: {count} that kept the cache warm, {money(report.pings_usd)}.")
    if report.seconds_saved:
        saved = report.seconds_saved
        console.print(
            f"Reusing {tokens(total.cache_read)} tokens of the prompt saved about {saved:,.0f} s of prefill.",
            highlight=False,
        )
    sources = sorted({call.price for call in report.calls if call.price and not is_local(call)})
    if sources:
        console.print(f"Prices: {'; '.join(sources)}.", style="dim", markup=False, highlight=False)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
