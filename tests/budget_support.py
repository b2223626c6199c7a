"""Budgets for parts that are put together by hand."""

from agent import events
from agent.budgets import BudgetLimits, Budgets
from agent.clock import Clock
from agent.session import Session
from agent.ways_on import ONE_SHOT


def no_budgets(session: Session, clock: Clock) -> Budgets:
    def never(event: events.Event) -> None:
        raise AssertionError(event)

    return Budgets(session.ledger, session.id, BudgetLimits(), clock, never, ONE_SHOT)
