"""`agent cache replay`: what a recorded session would have cost under other policies of keeping the cache warm."""

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from agent.bill import Pricing
from agent.config import Settings
from agent.errors import USAGE, UserError
from agent.habits import habits
from agent.ledger import Ledger
from agent.ledger_rows import CallRow, SessionRow
from agent.price_levels import prices_at
from agent.reports.console import report_console
from agent.reports.cost import CostReport
from agent.reports.totals import money, tokens
from agent.session_shape import session_shape
from agent.ttl_choice import keeping
from backends.catalog import ModelInfo
from context.block import Layer
from context.cachemodel import Scope
from context.lease import leases
from context.replay import Replayed, replay

COMPARED: Final = ("none", "fixed:12", "always", "1h", "auto", "clairvoyant")


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """`billed_usd`: what the session has cost in truth, None: unknown. `left_out`: calls that are not replayed, because
    their input is not known or they stand beside the conversation. `others`: further models that the session was on;
    all calls are priced as on `model`. `bound_usd`: under "clairvoyant", which no policy can beat.
    """

    session: str
    model: str
    others: tuple[str, ...]
    billed_usd: Decimal | None
    left_out: int
    bound_usd: float
    policies: tuple[tuple[str, Replayed], ...]

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/keepalive.md. Unknown is null; money is USD."""
        told = asdict(self)
        told["billed_usd"] = None if self.billed_usd is None else str(self.billed_usd)
        told["policies"] = [{"policy": policy, **asdict(done)} for policy, done in self.policies]
        return told


def replays(
    ledger: Ledger,
    session: SessionRow,
    info: ModelInfo,
    pricing: Pricing,
    settings: Settings,
    policies: Sequence[str] = (),
    gaps: Sequence[float] | None = None,
) -> ReplayReport:
    """`session` under each of `policies` (none named: those of `COMPARED`), on the model of its last call, `info`.

    `settings` hold the limits of "auto". Raises UserError for what cannot be replayed, and LedgerError.
    """
    calls = ledger.calls(session.id)
    known = [call for call in calls if call.purpose == "turn" and call.usage.input_total and call.endpoint]
    rules, last = info.cache_rules, known[-1] if known else None
    if rules.kind == "none":
        raise UserError(f"The KV cache of {info.name} costs nothing to keep: there is nothing to replay.", USAGE)
    if last is None:
        raise UserError(f"The provider has not said what the calls of session {session.id} read: no replay.", USAGE)
    prices = prices_at(pricing, rules, last.usage.input_total or 0, last.started)
    if prices is None:
        raise UserError(f"The price of {info.name} is not known. State it in models.toml.", USAGE)
    scope = Scope(last.endpoint or "", last.model, last.effort)
    shape = session_shape(known, ledger.pauses.of(session.id), _head(ledger, known[0], scope, info), gaps)
    before = habits(ledger, scope, session.directory, session.created)
    caps = keeping(settings)

    def run(policy: str) -> Replayed:
        try:
            return replay(shape, prices, rules, policy, before, caps)
        except ValueError as error:
            raise UserError(f"{str(error).capitalize()}.", USAGE) from error

    return ReplayReport(
        session=session.id,
        model=info.name,
        others=tuple(sorted({call.model for call in calls} - {last.model})),
        billed_usd=CostReport.of(session, calls, ledger.pings.of(session.id)).cost_usd,
        left_out=len(calls) - len(known),
        bound_usd=run("clairvoyant").usd,
        policies=tuple((policy, run(policy)) for policy in policies or COMPARED),
    )


def _head(ledger: Ledger, first: CallRow, scope: Scope, info: ModelInfo) -> int:
    """Tokens of SYSTEM and PROJECT: as billed, else as estimated."""
    prompt = ledger.prompt(first.session, first.blocks, first.epoch)
    for lease in leases(prompt, scope, info.cache_rules, ledger.caches):
        if lease.layer is Layer.PROJECT and lease.tokens is not None:
            return lease.tokens
    scale = ledger.scale(first.model)
    return round(prompt.head(Layer.PROJECT).tokens * (scale.factor if scale else 1.0))


def read_gaps(path: Path) -> list[float]:
    """The seconds in a file: one number a line, or the column `pause_s` of a CSV file. `#` begins a comment.

    Raises UserError.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"{path} cannot be read: {reason}.", USAGE) from error
    rows = [(number, row) for number, row in enumerate(csv.reader(lines), 1) if row and not row[0].startswith("#")]
    column = 0
    if rows and "pause_s" in rows[0][1]:
        column = rows.pop(0)[1].index("pause_s")
    gaps = []
    for number, row in rows:
        try:
            seconds = float(row[column])
        except (ValueError, IndexError):
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise UserError(f"{path}, line {number}: this is no number of seconds: {','.join(row)!r}.", USAGE)
        gaps.append(seconds)
    if not gaps:
        raise UserError(f"{path} holds no pauses.", USAGE)
    return gaps


def print_replay(report: ReplayReport) -> None:
    """The report as a table on standard output."""
    from rich.table import Table

    console = report_console()
    console.print(f"Session {report.session} · {report.model} · billed {money(report.billed_usd)}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("policy")
    for name in ("cost", "of the bound", "read", "written short", "written long", "pings", "for", "cold turns"):
        table.add_column(name, justify="right")
    for policy, done in report.policies:
        ratio = f"{done.usd / report.bound_usd:.3f}" if report.bound_usd else ""
        table.add_row(
            *(policy, _usd(done.usd), ratio, tokens(done.read), tokens(done.write), tokens(done.write_long)),
            *(str(done.pings), _usd(done.ping_usd), str(done.cold_turns)),
        )
    console.print(table)
    if report.others:
        console.print(f"Calls on {', '.join(report.others)} are counted as if made on {report.model}.", style="dim")
    if report.left_out:
        console.print(f"Not replayed: {report.left_out} calls beside the conversation or without a bill.", style="dim")


def _usd(amount: float) -> str:
    return money(Decimal(str(round(amount, 6))))
