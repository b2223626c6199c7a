"""What the parts of one run share: the session, the model, and the world outside."""

from collections.abc import Callable
from dataclasses import dataclass

from agent import events
from agent.bill import Pricing
from agent.budgets import Budgets
from agent.clock import Clock
from agent.session import Session
from backends.base import Backend


@dataclass(frozen=True, slots=True)
class Parts:
    """`random` gives numbers in [0, 1). `policy`: the settings cache_ttl and keepalive in force, for the record."""

    session: Session
    backend: Backend
    pricing: Pricing
    emit: Callable[[events.Event], None]
    clock: Clock
    random: Callable[[], float]
    budgets: Budgets
    policy: str | None = None
