"""`/budget`, and what is asked before a message that is expected to cost more than is left."""

from dataclasses import replace
from typing import Final

from agent.budgets import WHOSE, BudgetLimits, exactly
from agent.chat.context import Context
from agent.config_values import convert
from agent.errors import USAGE, UserError
from agent.reports.totals import money, percent
from context.budget import Budget, BudgetScope

SCOPES: Final[tuple[BudgetScope, ...]] = ("session", "day")


def show(context: Context) -> None:
    """What is spent, of what."""
    for scope in SCOPES:
        context.say(_sentence(context.conversation.budgets.state(scope)))


def change(context: Context, given: str) -> None:
    """Set the limit of a session or day for as long as the chat is open. Raises UserError."""
    scope, _, amount = given.partition(" ")
    if scope not in SCOPES or not amount.strip():
        raise UserError(
            "/budget shows what is spent; /budget session 2, /budget day 10 or /budget day off set it.", USAGE
        )
    limit = convert(f"max_cost_{scope}", amount.strip().lstrip("$"), "/budget")
    settings = replace(context.settings, **{f"max_cost_{scope}": limit})  # type: ignore[arg-type]
    context.check_price(settings)
    context.settings = settings
    budgets = context.conversation.budgets
    budgets.limits = BudgetLimits(settings.max_cost_session, settings.max_cost_day)
    context.say(f"{_sentence(budgets.state(scope))} This holds until you leave.")


async def agreed(context: Context) -> bool:
    """Whether a message may be sent: the person is asked when its input alone is expected to cost more than is left."""
    conversation = context.conversation
    _, expected = conversation.next_turn()
    budget = conversation.budgets.exceeded_by(expected)
    if budget is None or not budget.left:  # when nothing is left the turn says so
        return True
    context.say(
        f"The input alone is expected to cost {money(expected)}, and {money(budget.left)} are left of the "
        f"{exactly(budget.limit)} for {WHOSE[budget.scope].rstrip(',')}.",
        "yellow",
    )
    if not await context.front.agree("Send it?"):
        context.say("Nothing was sent.")
        return False
    conversation.budgets.agree()
    return True


def _sentence(budget: Budget) -> str:
    begin = f"Spent for {WHOSE[budget.scope].rstrip(',')}: {money(budget.spent)}"
    if budget.unpriced:
        begin += f", and {budget.unpriced} calls of unknown price"
    if not budget.limit.is_finite():
        return f"{begin}. No budget is set."
    return f"{begin} of {exactly(budget.limit)} ({percent(float(budget.spent / budget.limit))})."
