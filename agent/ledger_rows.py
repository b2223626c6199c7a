"""The rows of the ledger, as the rest of the program sees them, and how they are read back."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal

from agent.database import LedgerError
from backends.base import Usage
from context.block import ToolResult


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: str
    created: float
    directory: str
    title: str
    told: str


@dataclass(frozen=True, slots=True)
class CallRow:
    """One request, as it stands in the ledger. Times in seconds, `cost_usd` in USD; None: unknown."""

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


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What is known of a call when it ends. `status`: done, failed or interrupted."""

    status: str
    usage: Usage
    cost_usd: Decimal | None = None
    price: str | None = None
    stop: str | None = None
    response: str | None = None
    ttft_s: float | None = None
    duration_s: float | None = None
    estimate: int | None = None


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
        return SessionRow(row["id"], float(row["created"]), str(row["directory"]), str(row["title"]), row["told"])


def call_row(row: sqlite3.Row) -> CallRow:
    def whole(name: str) -> int | None:
        return None if row[name] is None else int(row[name])

    def seconds(name: str) -> float | None:
        return None if row[name] is None else float(row[name])

    with readable(str(row["session"])):
        usage = Usage(
            *(whole("fresh"), whole("cache_read"), whole("cache_write"), whole("cache_write_long")),
            *(whole("output"), whole("reasoning")),
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
        )
