"""Budgets of one conversation: what its session, and this day all sessions together, may cost.

Decided in `context.budget` from what the ledger holds, so that they outlive the process and are shared by all agents
that run. Warned at four fifths, once in each session; when all is spent no call begins and no ping goes out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from agent import events
from agent.clock import Clock
from agent.errors import LIMIT, UserError
from agent.ledger import Ledger
from agent.reports.totals import money
from agent.spend_record import Spends
from agent.ways_on import WaysOn
from context.budget import Budget, BudgetScope, Level

WHOSE: Final[Mapping[str, str]] = {"session": "this session", "day": "today, in all sessions,"}


class BudgetError(UserError):
    """A budget is spent: no call begins."""

    def __init__(self, message: str) -> None:
        super().__init__(message, LIMIT)


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """USD; None: no limit."""

    session: Decimal | None = None
    day: Decimal | None = None


class Budgets:
    """`limits` may be changed at any time. `free`: the model costs nothing, so that none of them stops it."""

    def __init__(
        self,
        ledger: Ledger,
        session: str,
        limits: BudgetLimits,
        clock: Clock,
        emit: Callable[[events.Event], None],
        ways: WaysOn,
        *,
        free: bool = False,
    ) -> None:
        self.limits = limits
        self._ledger = ledger
        self._session = session
        self._clock = clock
        self._emit = emit
        self._ways = ways
        self._free = free
        self._spends: dict[BudgetScope, Spends] = {}
        self._day: float | None = None
        self._told: set[tuple[BudgetScope, Decimal, float]] = set()  # warned of
        self._agreed = False

    def state(self, scope: BudgetScope) -> Budget:
        """What is spent; the limit of one that is not set is infinite."""
        limit = self.limits.session if scope == "session" else self.limits.day
        return Budget.of(scope, Decimal("Infinity") if limit is None else limit, self._read(scope).read())

    def in_force(self) -> list[Budget]:
        """Those that may stop a call."""
        if self._free:
            return []
        scopes: list[BudgetScope] = []
        if self.limits.session is not None:
            scopes.append("session")
        if self.limits.day is not None:
            scopes.append("day")
        return [self.state(scope) for scope in scopes]

    @property
    def limited(self) -> bool:
        """Whether there is any that may stop a call."""
        return not self._free and (self.limits.session is not None or self.limits.day is not None)

    @property
    def left(self) -> Decimal | None:
        """What may still be spent; None: there is no budget."""
        return min((budget.left for budget in self.in_force()), default=None)

    def agree(self) -> None:
        """The person knows that the next call is expected to spend more than is left."""
        self._agreed = True

    def exceeded_by(self, expected: Decimal | None) -> Budget | None:
        """The budget of which less is left than the input of a call is expected to cost; None: of none."""
        return next((budget for budget in self.in_force() if budget.exceeded_by(expected)), None)

    def stopped(self) -> str | None:
        """When one is spent: tell it, and return it in words, with the way on."""
        for budget in self.in_force():
            if budget.level is Level.STOP:
                self._tell(budget, Level.STOP.value)
                return self._words(budget)
        return None

    def check(self) -> None:
        """Raises BudgetError when one is spent."""
        for budget in self.in_force():
            if budget.level is Level.STOP:
                raise BudgetError(self._words(budget))

    def before_call(self, expected: Decimal | None) -> None:
        """Tell what is to be told before a call is made whose input is expected to cost so much. Raises BudgetError
        when it must not be made.
        """
        if (spent := self.stopped()) is not None:
            raise BudgetError(spent)
        self.look()
        agreed, self._agreed = self._agreed, False
        if not agreed and (budget := self.exceeded_by(expected)) is not None:
            self._tell(budget, "forecast", expected)

    def look(self) -> None:
        """Warn of what is mostly spent, and was not told yet."""
        for budget in self.in_force():
            began = self._day or 0.0 if budget.scope == "day" else 0.0
            line = (budget.scope, budget.limit, began)
            if budget.level is Level.OK or budget.unpriced or line in self._told:
                continue
            self._told.add(line)
            if self._ledger.spends.warn(self._session, budget, began):
                self._tell(budget, Level.WARN.value)

    def _read(self, scope: BudgetScope) -> Spends:
        if scope == "day" and (today := day_start(self._clock.now())) != self._day:
            self._day = today
            self._spends.pop("day", None)
        if scope not in self._spends:
            record = self._ledger.spends
            self._spends[scope] = record.of(self._session) if scope == "session" else record.since(self._day or 0.0)
        return self._spends[scope]

    def _tell(self, budget: Budget, level: str, expected: Decimal | None = None) -> None:
        spent = None if budget.unpriced else budget.spent
        self._emit(events.BudgetTold(budget.scope, level, spent, budget.limit, expected))

    def _words(self, budget: Budget) -> str:
        name, raise_it = f"max_cost_{budget.scope}", self._ways.budget.format(scope=budget.scope)
        if budget.unpriced:
            calls = f"{budget.unpriced} call{'s' if budget.unpriced != 1 else ''}"
            when = "of this session" if budget.scope == "session" else "of today"
            return f"Stopped: what {calls} {when} cost is not known, so {name} cannot be kept. {raise_it}"
        unbilled = f"; {money(budget.unbilled)} of it in calls that have no bill" if budget.unbilled else ""
        spent = f"{money(budget.spent)} of the {exactly(budget.limit)} for {WHOSE[budget.scope]} are spent"
        return f"Stopped: {spent} ({name}{unbilled}). {raise_it}"


def exactly(limit: Decimal) -> str:
    """A limit as the person set it."""
    return f"${limit.normalize():f}"


def day_start(now: float) -> float:
    """The last midnight where the person is, in seconds since the epoch."""
    day = datetime.fromtimestamp(now).astimezone().date()
    return datetime(day.year, day.month, day.day).timestamp()
