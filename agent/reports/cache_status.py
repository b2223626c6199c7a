"""`agent cache status`: which prefixes of a session a provider still holds, for how long, and what that is worth."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agent.bill import Pricing
from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.reports.totals import money, tokens
from backends.base import Usage
from backends.catalog import ModelInfo
from context.block import Layer
from context.cachemodel import Scope
from context.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Prefix:
    """`name`: the layer that it ends with. `left`: seconds of its lease from now, 0 when it is cold; None: no clock."""

    name: str
    tokens: int | None
    warm: bool
    left: float | None


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """`warm_usd` and `cold_usd`: what the next turn pays for what has been sent so far, as things are and if all is
    lost; None: unknown. `pings` and `pings_usd` of this session.
    """

    session: str
    model: str
    effort: str | None
    prefixes: tuple[Prefix, ...]
    warm_usd: Decimal | None
    cold_usd: Decimal | None
    pings: int
    pings_usd: Decimal

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/cost.md. Unknown is null; money is a decimal number of USD as a string."""
        told = asdict(self)
        for name in ("warm_usd", "cold_usd", "pings_usd"):
            told[name] = None if told[name] is None else str(told[name])
        return told


def cache_status(
    ledger: Ledger, session: SessionRow, find: Callable[[str], tuple[ModelInfo, Pricing]], now: float
) -> CacheStatus | None:
    """The status at `now`; None when nothing of the session has been answered yet. `find` knows the models."""
    last = ledger.last_answered(session.id)
    if last is None or last.endpoint is None:
        return None
    info, pricing = find(last.model)
    rules, scope = info.cache_rules, Scope(last.endpoint, last.model, last.effort)
    prompt = ledger.prompt(last.session, last.blocks, last.epoch)
    ends: list[tuple[str, Prompt]] = [
        ("SYSTEM", prompt.head(Layer.SYSTEM)),
        ("PROJECT", prompt.head(Layer.PROJECT)),
        ("HISTORY", prompt),
    ]
    prefixes = []
    for name, end in ends:
        entry = ledger.caches.find(scope.key(rules, head=name != "HISTORY"), end.digest)
        warm = entry is not None and entry.alive(now)
        left = None if entry is None or entry.expires is None else max(0.0, entry.expires - now)
        prefixes.append(Prefix(name, entry.tokens if entry else None, warm, left))
    total = last.usage.input_total
    held = max((prefix.tokens or 0 for prefix in prefixes if prefix.warm), default=0)
    at = datetime.fromtimestamp(now, UTC)

    def price(read: int) -> Decimal | None:
        if total is None or rules.kind == "none":
            return None
        rest = max(0, total - read)
        written = rest if rules.kind == "markers" else 0
        return pricing(Usage(rest - written, read, written, 0, 0, 0), at)[0]

    pings = ledger.pings
    return CacheStatus(
        session.id,
        last.model,
        last.effort,
        tuple(prefixes),
        price(min(held, total or 0)),
        price(0),
        len(pings.of(session.id)),
        pings.spent(0.0, session.id),
    )


def show(status: CacheStatus) -> Group:
    """As a person sees it."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("prefix to the end of", "left"), ("tokens", "right"), ("state", "left"), ("left", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for prefix in status.prefixes:
        state = (
            Text("warm", "green") if prefix.warm else Text("cold" if prefix.left is not None else "not cached", "dim")
        )
        table.add_row(prefix.name, "" if prefix.tokens is None else tokens(prefix.tokens), state, _left(prefix))
    effort = f" · effort {status.effort}" if status.effort else ""
    now, lost = money(status.warm_usd), money(status.cold_usd)
    lines = [f"What has been sent so far costs the next turn {now} now, {lost} if it is lost."]
    if status.pings:
        count = f"{status.pings} ping{'s' if status.pings != 1 else ''}"
        lines.append(f"{count} kept it warm, for {money(status.pings_usd)}.")
    return Group(Text(f"Session {status.session} · {status.model}{effort}"), table, *map(Text, lines))


def _left(prefix: Prefix) -> str:
    if prefix.left is None:
        return "no clock" if prefix.warm else ""
    minutes, seconds = divmod(round(prefix.left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
