"""Grouped reports for programs: JSON and CSV, documented in docs/cost.md. Unknown is null, or an empty field."""

import csv
import io
from decimal import Decimal
from statistics import median, quantiles
from typing import Any, Final

from agent.reports.groups import Group, GroupedReport
from agent.reports.spend import COUNTERS, Spend, Sum

VERSION: Final = 1
"""Of the JSON schema: fields are added without another one, and taken away or changed only with it."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def report_json(report: GroupedReport, machine_usd: Decimal | None = None) -> dict[str, Any]:
    """`machine_usd`: USD per hour of the machine that local models run on."""
    return {
        "version": VERSION,
        "by": report.by,
        "sessions": report.sessions,
        "sessions_without_blocks": report.opaque,
        "groups": [group_json(group, machine_usd) for group in report.groups],
        "total": group_json(report.total, machine_usd),
        "prices": report.prices,
    }


def group_json(group: Group, machine_usd: Decimal | None = None) -> dict[str, Any]:
    """One group of calls."""
    return {
        "key": group.key,
        "label": group.label,
        **spend_json(group.spend, machine_usd),
        "ttft_s": spread(group.ttft),
        "tps": spread(group.tps),
    }


def spend_json(spend: Spend, machine_usd: Decimal | None = None) -> dict[str, Any]:
    """Tokens, money and what it was for."""
    return {
        "calls": spend.calls,
        **{name: whole(spend.tokens[name]) for name in (*COUNTERS, "reasoning")},
        "input": whole(spend.input),
        "hit_rate": spend.hit_rate,
        "cost_usd": usd(spend.cost),
        "cost_usd_at_least": plain_usd(spend.cost.known),
        "usd": {name: usd(spend.usd[name]) for name in COUNTERS},
        "pings": spend.pings,
        "pings_usd": usd(spend.pings_usd),
        "saved_usd": usd(spend.saved),
        "lost_usd": usd(spend.lost_usd),
        "lost": {cause: {"tokens": tokens, "usd": usd(lost)} for cause, (tokens, lost) in spend.lost.items()},
        "local_s": round(spend.local_s, 3),
        "machine_usd": None if machine_usd is None else plain_usd(machine_cost(spend, machine_usd)),
    }


def machine_cost(spend: Spend, usd_per_hour: Decimal) -> Decimal:
    """USD of the time in which a local model worked."""
    return (Decimal(str(spend.local_s)) * usd_per_hour / 3600).quantize(Decimal("1e-6"))


def spread(values: list[float]) -> dict[str, float] | None:
    """Median and 95th percentile; None without values."""
    if not values:
        return None
    last = quantiles(values, n=20, method="inclusive")[-1] if values[1:] else values[0]
    return {"median": median(values), "p95": last}


def whole(total: Sum) -> int | None:
    return None if total.value is None else int(total.value)


def usd(total: Sum) -> str | None:
    return None if total.value is None else plain_usd(total.value)


def plain_usd(amount: Decimal) -> str:
    """Without an exponent, and without zeros at its end that say nothing."""
    return f"{amount.normalize():f}"


def report_csv(report: GroupedReport, machine_usd: Decimal | None = None) -> str:
    """A header and one row for each group. Text that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    rows = [_flat(group_json(group, machine_usd)) for group in report.groups]
    header = list(_flat(group_json(report.total, machine_usd)))
    writer.writerow([report.by, *header[1:]])
    for row in rows:
        writer.writerow([_safe(row[name]) for name in header])
    return out.getvalue()


def _flat(group: dict[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in group.items() if name not in ("usd", "lost", "ttft_s", "tps")}
    flat |= {f"{name}_usd": value for name, value in group["usd"].items()}
    for name in ("ttft_s", "tps"):
        flat |= {f"{name}_{part}": (group[name] or {}).get(part) for part in ("median", "p95")}
    return flat


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False
