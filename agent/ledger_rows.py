"""The rows of the ledger, as the rest of the program sees them, and how they are read back."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from agent.database import LedgerError
from backends.base import Usage
from context.audit import Verdict
from context.block import ToolResult
from context.cachemodel import Entry, Scope
from context.forecast import Cause, Sent

ANSWERED: Final = ("done", "cut")
"""How a call ends that gave a reply: the model finished it, or it went round in circles and was cut."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """`origin`: the other agent whose log it was read from; None: ours, and only such a one can be gone on with."""

    id: str
    created: float
    directory: str
    title: str
    told: str
    parent: str | None = None
    forked_at: int | None = None
    forked_epoch: int | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class EpochRow:
    """Why an epoch of a session began, and what was expected of it. Tokens are the model's own; USD None: unknown."""

    number: int
    started: float
    reason: str
    tokens_before: int
    tokens_after: int
    as_is_usd: Decimal | None
    anew_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """What was expected before a call was sent. `usage` without output; `usd` of the input, None: unknown."""

    usage: Usage
    total: int
    usd: Decimal | None

    def to_json(self) -> str:
        usage = self.usage
        return json.dumps(
            {
                "fresh": usage.fresh,
                "cache_read": usage.cache_read,
                "cache_write": usage.cache_write,
                "cache_write_long": usage.cache_write_long,
                "total": self.total,
                "usd": None if self.usd is None else str(self.usd),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "ForecastRow":
        told = json.loads(text)
        total, usd = int(told.pop("total")), told.pop("usd")
        return cls(Usage(**told), total, None if usd is None else Decimal(usd))


@dataclass(frozen=True, slots=True)
class CallRow:
    """One request, as it stands in the ledger. Times in seconds, `cost_usd` in USD; None: unknown.

    `baseline`: the id of the call that its audit compares it with. `policy`: the settings cache_ttl and keepalive that
    were in force, such as "auto/auto".
    """

    id: int
    session: str
    number: int
    model: str
    dialect: str
    started: float
    blocks: int
    prompt: str
    estimate: int | None
    status: str
    stop: str | None
    response: str | None
    usage: Usage
    cost_usd: Decimal | None
    price: str | None
    ttft_s: float | None
    duration_s: float | None
    endpoint: str | None
    effort: str | None
    forecast: ForecastRow | None
    verdict: Verdict | None
    diagnosis: str | None
    baseline: int | None
    epoch: int = 0
    turn: int | None = None
    purpose: str = "turn"
    policy: str | None = None

    @property
    def sent(self) -> Sent | None:
        """What was sent, for the next forecast; None for calls of before forecasts were recorded."""
        if self.endpoint is None:
            return None
        return Sent(Scope(self.endpoint, self.model, self.effort), self.blocks, self.prompt, self.epoch)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What is known of a call when it ends. `status`: done, cut, failed or interrupted. `entries`: what the provider's
    cache holds now.
    """

    status: str
    usage: Usage
    cost_usd: Decimal | None = None
    price: str | None = None
    stop: str | None = None
    response: str | None = None
    ttft_s: float | None = None
    duration_s: float | None = None
    estimate: int | None = None
    verdict: Verdict | None = None
    diagnosis: str | None = None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolRun:
    """`result` None: the tool was started and never finished."""

    tool_call: str
    result: ToolResult | None


@contextmanager
def readable(session_id: str) -> Iterator[None]:
    """A row whose values make no sense (written by another release, or damaged) is one clear line."""
    try:
        yield
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise LedgerError(
            f"Session {session_id} holds a row that this release cannot read ({error}). It was left as it is. "
            "Start a new session, or upgrade keepwarm."
        ) from error


def session_row(row: sqlite3.Row) -> SessionRow:
    with readable(str(row["id"])):
        return SessionRow(
            *(row["id"], float(row["created"]), str(row["directory"]), str(row["title"]), row["told"]),
            *(row["parent"], row["forked_at"], row["forked_epoch"], row["origin"]),
        )


def epoch_row(row: sqlite3.Row) -> EpochRow:
    with readable(str(row["session"])):
        as_is, anew = (None if row[name] is None else Decimal(row[name]) for name in ("as_is_usd", "anew_usd"))
        return EpochRow(
            *(row["number"], float(row["started"]), row["reason"], row["tokens_before"], row["tokens_after"]),
            *(as_is, anew),
        )


def call_row(row: sqlite3.Row) -> CallRow:
    def whole(name: str) -> int | None:
        return None if row[name] is None else int(row[name])

    def seconds(name: str) -> float | None:
        return None if row[name] is None else float(row[name])

    with readable(str(row["session"])):
        usage = Usage(
            *(whole("fresh"), whole("cache_read"), whole("cache_write"), whole("cache_write_long")),
            *(whole("output"), whole("reasoning"), row["tier"]),
        )
        return CallRow(
            id=row["id"],
            session=row["session"],
            number=row["number"],
            model=row["model"],
            dialect=row["dialect"],
            started=float(row["started"]),
            blocks=row["blocks"],
            prompt=row["prompt"],
            estimate=row["estimate"],
            status=row["status"],
            stop=row["stop"],
            response=row["response"],
            usage=usage,
            cost_usd=None if row["cost_usd"] is None else Decimal(row["cost_usd"]),
            price=row["price"],
            ttft_s=seconds("ttft_s"),
            duration_s=seconds("duration_s"),
            endpoint=row["endpoint"],
            effort=row["effort"],
            forecast=None if row["forecast"] is None else ForecastRow.from_json(row["forecast"]),
            verdict=_verdict(row),
            diagnosis=row["diagnosis"],
            baseline=row["baseline"],
            epoch=row["epoch"],
            turn=row["turn"],
            purpose=row["purpose"],
            policy=row["policy"],
        )


def _verdict(row: sqlite3.Row) -> Verdict | None:
    if row["cause"] is None:
        return None
    missed, since = row["missed"], row["since"]
    return Verdict(Cause(row["cause"]), bool(row["foreseen"]), missed, since, bool(row["disputed"]))
