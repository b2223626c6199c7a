"""`agent cache status`: which prefixes of a session a provider still holds, for how long, and what that is worth."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agent.bill import Pricing
from agent.config import Settings
from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.reports.pings import ping_totals
from agent.reports.totals import money, tokens
from agent.ttl_choice import TtlChooser
from backends.base import Usage
from backends.catalog import ModelInfo
from backends.llama.models import is_local
from context.cachemodel import Scope
from context.lease import leases, longest_warm

_LOCAL: Final = (
    "A local model has no lease that ends and nothing to pay. What it has read is in memory while it runs, and on disk "
    "afterwards: `agent cache ls`."
)


@dataclass(frozen=True, slots=True)
class Prefix:
    """`name`: the layer that it ends with. `ttl`: the time to live as granted, in seconds, and `left` of it from now, 0
    when it is cold; None: no clock. `next_ttl`: what is asked for when it is written next (short, long), and why.
    """

    name: str
    tokens: int | None
    warm: bool
    ttl: float | None
    left: float | None
    next_ttl: str | None
    next_why: str | None


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """`warm_usd` and `cold_usd`: what the next turn pays for what has been sent so far, as things are and if all is
    lost; None: unknown. `pings` of this session, what they have cost, and what they have saved.
    """

    session: str
    model: str
    effort: str | None
    prefixes: tuple[Prefix, ...]
    warm_usd: Decimal | None
    cold_usd: Decimal | None
    pings: int
    pings_usd: Decimal
    pings_saved_usd: Decimal | None

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/cost.md. Unknown is null; money is a decimal number of USD as a string."""
        told = asdict(self)
        for name in ("warm_usd", "cold_usd", "pings_usd", "pings_saved_usd"):
            told[name] = None if told[name] is None else str(told[name])
        return told


def cache_status(
    ledger: Ledger,
    session: SessionRow,
    find: Callable[[str], tuple[ModelInfo, Pricing]],
    settings: Settings,
    now: float,
) -> CacheStatus | None:
    """The status at `now`; None when nothing of the session has been answered yet. `find` knows the models."""
    last = ledger.last_answered(session.id)
    if last is None or last.endpoint is None:
        return None
    info, pricing = find(last.model)
    rules, scope = info.cache_rules, Scope(last.endpoint, last.model, last.effort)
    held = leases(ledger.prompt(last.session, last.blocks, last.epoch), scope, rules, ledger.caches)
    total, longest = last.usage.input_total, longest_warm(held, now)
    one_shot = not ledger.pauses.of(session.id)
    chooser = TtlChooser(ledger, session.id, session.directory, scope, rules, pricing, settings, one_shot)
    system, project = held[0].tokens or 0, held[1].tokens or 0
    choices = chooser(system, max(0, project - system), total or 0, {}, now) if rules.kind == "markers" else {}
    prefixes = []
    for lease in held:
        choice = choices.get(lease.layer)
        ttl = lease.entry.ttl if lease.entry else None
        asked = (choice.ttl, choice.reason) if choice else (None, None)
        prefixes.append(Prefix(lease.layer.name, lease.tokens, lease.warm(now), ttl, lease.left(now), *asked))
    at = datetime.fromtimestamp(now, UTC)

    def price(read: int) -> Decimal | None:
        if total is None or rules.kind == "none":
            return None
        rest = max(0, total - read)
        written = rest if rules.kind == "markers" else 0
        return pricing(Usage(rest - written, read, written, 0, 0, 0), at)[0]

    warm = longest.tokens or 0 if longest else 0
    pings = ping_totals(ledger.pings.of(session.id), ledger.calls(session.id), pricing)
    return CacheStatus(
        *(session.id, last.model, last.effort, tuple(prefixes), price(min(warm, total or 0)), price(0)),
        *(pings.count, pings.usd, pings.saved_usd),
    )


def show(status: CacheStatus) -> Group:
    """As a person sees it."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("prefix to the end of")
    table.add_column("tokens", justify="right")
    table.add_column("state")
    table.add_column("left", justify="right")
    table.add_column("of", justify="right")
    for prefix in status.prefixes:
        state = (
            Text("warm", "green") if prefix.warm else Text("cold" if prefix.left is not None else "not cached", "dim")
        )
        table.add_row(
            prefix.name,
            "" if prefix.tokens is None else tokens(prefix.tokens),
            state,
            _left(prefix),
            _clock(prefix.ttl),
        )
    effort = f" · effort {status.effort}" if status.effort else ""
    title = Text(f"Session {status.session} · {status.model}{effort}")
    if is_local(status.model):
        return Group(title, Text(_LOCAL))
    now, lost = money(status.warm_usd), money(status.cold_usd)
    lines = [f"What has been sent so far costs the next turn {now} now, {lost} if it is lost."]
    if status.pings:
        count = f"{status.pings} ping{'s' if status.pings != 1 else ''}"
        saved = money(status.pings_saved_usd)
        lines.append(f"{count} kept it warm, for {money(status.pings_usd)}; that has saved {saved} so far.")
    lines += [
        f"{prefix.name} is next written for the {prefix.next_ttl} time to live: {prefix.next_why}."
        for prefix in status.prefixes
        if prefix.next_ttl
    ]
    return Group(title, table, *map(Text, lines))


def _left(prefix: Prefix) -> str:
    return "no clock" if prefix.left is None and prefix.warm else _clock(prefix.left)


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
