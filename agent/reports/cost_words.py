"""How reports show what was spent: amounts that may be unknown, causes, and the sentence that says where money went."""

from decimal import Decimal
from typing import Final

from agent.reports.layers import LAYERS, OUTPUT, PINGS, UNKNOWN
from agent.reports.spend import Spend, Sum
from agent.reports.totals import money, percent

NAMES: Final = {
    "system": "SYSTEM",
    "project": "PROJECT",
    "history": "HISTORY",
    "command": "new input",
    OUTPUT: "output",
    PINGS: "pings",
    UNKNOWN: "not told apart",
}
"""Layers and what stands beside them, as a person reads them."""
assert set(LAYERS) < set(NAMES)


def usd_text(total: Sum) -> str:
    """`≥` where there is more to it that is not known."""
    if not total.unknown:
        return money(total.known) if total.known >= 0 else f"-{money(-total.known)}"
    return f"≥{money(total.known)}" if total.known > 0 else "unknown"


def tokens_text(total: Sum) -> str:
    if not total.unknown:
        return f"{int(total.known):,}"
    return f"≥{int(total.known):,}" if total.known else "unknown"


def cause_text(cause: str) -> str:
    return cause.replace("_", " ")


def share(part: Decimal, of: Decimal) -> str:
    return percent(float(part / of)) if of else ""


def where_it_went(total: Spend, layers: dict[str, Spend] | None) -> str:
    """One or two sentences."""
    parts = [f"{usd_text(total.cost)} for {_count(total.calls, 'call')}"]
    if total.pings:
        parts[0] += f" and {_count(total.pings, 'ping')}"
    if layers is not None and total.cost.known:
        dear = sorted(layers.items(), key=lambda item: -item[1].cost.known)[:3]
        spent = [
            f"{share(spend.cost.known, total.cost.known)} {NAMES[name]}" for name, spend in dear if spend.cost.known
        ]
        parts[0] += f": {', '.join(spent)}"
    if not total.saved.unknown and total.saved.known:
        verb = "saved" if total.saved.known > 0 else "cost"
        parts.append(f"Caching {verb} {money(abs(total.saved.known))}")
    if total.lost:
        cause = max(total.lost, key=lambda name: total.lost[name][1].known)
        parts.append(f"misses lost {usd_text(total.lost_usd)}, most by: {cause_text(cause)}")
    return f"{parts[0]}. {'; '.join(parts[1:])}{'.' if parts[1:] else ''}".rstrip()


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
