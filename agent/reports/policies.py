"""The policies that `agent cost --what-if` compares, made of the same decisions that the program makes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal

from agent.bill import Pricing
from agent.config import Settings
from agent.habits import Otherwise
from agent.ledger import Ledger
from agent.reports.recorded import Recorded
from agent.ttl_choice import TtlChooser
from backends.base import Usage
from backends.catalog import ModelInfo
from context.cache_rules import CacheRules
from context.cachemodel import Entry, Scope
from context.economics import Policy as Keepalive
from context.economics import Stakes, keep, margin_of
from context.pauses import Pauses
from context.whatif import Choose, Wait, Way

_DAY_S: Final = 86_400.0
_ELSEWHERE: Final = "elsewhere"  # the endpoint of a model that was not called

Known = Callable[[str], tuple[ModelInfo, Pricing] | None]
"""What the catalogue knows of a model, by its name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`ttl` and `keepalive` are the values of the settings `cache_ttl` and `keepalive`; `every`: pings after so many
    seconds, whatever they cost. `cached` False: nothing is marked.
    """

    name: str
    ttl: Literal["short", "long", "auto"] = "short"
    keepalive: Keepalive = "off"
    every: float | None = None
    cached: bool = True

    def in_words(self, rules: CacheRules) -> str:
        if not self.cached:
            return "no caching"
        if self.ttl == "auto":
            return "auto"
        life = span(rules.ttl(self.ttl) or rules.ttl_short)
        if self.every is not None:
            return f"{life}, a ping every {self.every / 60:g} min"
        return f"{life}, {'always pinged' if self.keepalive == 'always' else 'no pings'}"


NO_CACHE: Final = Policy("no-cache", cached=False)
SHORT: Final = Policy("short")
PINGED: Final = Policy("short+pings", keepalive="always")
LONG: Final = Policy("long", ttl="long")
AUTO: Final = Policy("auto", ttl="auto", keepalive="auto")
NAMED: Final = (NO_CACHE, SHORT, PINGED, LONG, AUTO)


def policy_of(name: str) -> Policy | None:
    """The policy called so: one of `NAMED`, or `fixed:N` (a ping every N minutes). None: there is none."""
    kind, colon, minutes = name.partition(":")
    if kind == "fixed" and colon:
        try:
            every = float(minutes) * 60
        except ValueError:
            return None
        return Policy(name, every=every) if 0 < every < _DAY_S else None
    return next((policy for policy in NAMED if policy.name == name), None)


def can_ping(info: ModelInfo) -> bool:
    """Whether there is a request that renews what a model's cache holds and generates nothing."""
    return info.cache == "markers" and info.provider in ("anthropic", "openai")


def span(seconds: float | None) -> str:
    """A time to live in words."""
    if seconds is None:
        return "no clock"
    return f"{seconds / 3600:g}h" if seconds >= 3600 else f"{seconds / 60:g}m"


@dataclass(frozen=True, slots=True)
class Deciding:
    """What policies decide by. `settings`: limits of pings. Raises LedgerError where it has to look."""

    ledger: Ledger
    recorded: Recorded
    settings: Settings
    known: Known

    def way(self, policy: Policy, model: str | None = None, factors: Mapping[str, float] = MappingProxyType({})) -> Way:
        """`policy` on the models that were called, or all of it on `model`, whose tokens are `factors` of theirs."""
        scope = None if model is None else Scope(_ELSEWHERE, model)
        if not policy.cached:
            return Way(cached=False, scope=scope, factors=factors, pinger=None)
        settings = replace(self.settings, cache_ttl=policy.ttl, keepalive=policy.keepalive)
        keeping = None if policy.keepalive == "off" else _Keeping(self, policy.keepalive, self.prewarmed())
        pinger = keeping if policy.every is None else _Every(policy.every, self.known)

        def uses(scope: Scope) -> list[float]:
            """Of a cache, until now: the calls as they were, and this policy's pings."""
            calls = [request for request in self.recorded.record.requests if request.kind in ("call", "aside")]
            mine = [call.at for call in calls if scope.endpoint == _ELSEWHERE or _is_of(call.scope, scope)]
            return mine + [at for at, of in (keeping.pinged if keeping else []) if _is_of(of, scope)]

        def choose(scope: Scope) -> Choose:
            return self._chooser(scope, settings, lambda: Otherwise(self.recorded.session.id, uses(scope)))

        in_force = None if policy.every else f"{policy.ttl}/{policy.keepalive}"
        return Way(scope=scope, factors=factors, choose=choose, pinger=pinger, policy=in_force)

    def price(self, model: str, usage: Usage, at: float) -> Decimal | None:
        """USD by today's tables, as of that time. None: not known."""
        found = self.known(model)
        return None if found is None else found[1](usage, datetime.fromtimestamp(at, UTC))[0]

    def _chooser(self, scope: Scope, settings: Settings, otherwise: Callable[[], Otherwise]) -> Choose:
        found, session = self.known(scope.model), self.recorded.session
        if found is None:
            raise ValueError(f"no rules of {scope.model}")  # of such a model nothing is asked
        info, pricing = found
        habits_of = scope
        if scope.endpoint == _ELSEWHERE:  # how often a head is used does not hang on the model
            habits_of = self.recorded.record.requests[-1].scope
        one_shot = self.recorded.one_shot
        return TtlChooser(
            *(self.ledger, session.id, session.directory, habits_of, info.cache_rules, pricing, settings, one_shot),
            otherwise=otherwise,
        )

    def prewarmed(self) -> list[tuple[float, Decimal]]:
        """What the session has paid for pre-warms, which its budget for pings pays too."""
        requests = zip(self.recorded.record.requests, self.recorded.costs, strict=True)
        return [(request.at, usd) for request, usd in requests if request.kind == "prewarm" and usd is not None]


def _is_of(one: Scope, other: Scope) -> bool:
    """Whether both are the same model at the same place, with whatever effort."""
    return (one.endpoint, one.model) == (other.endpoint, other.model)


@dataclass(slots=True)
class _Every:
    """A ping every so many seconds for as long as something is waited for, but no longer than a day."""

    seconds: float
    known: Known

    def due(self, lease: Entry) -> float:
        return lease.used + self.seconds

    def pays(self, at: float, lease: Entry, wait: Wait, scope: Scope) -> bool:
        found = self.known(scope.model)
        return found is not None and can_ping(found[0]) and at - wait.began <= _DAY_S

    def sent(self, at: float, lease: Entry, scope: Scope) -> None:
        """Nothing follows from it."""


@dataclass(slots=True)
class _Keeping:
    """As `agent.keeper.Keeper` does it. `spent`: when, and how much; `pinged`: when, and in which cache."""

    deciding: Deciding
    policy: Keepalive
    spent: list[tuple[float, Decimal]]
    pinged: list[tuple[float, Scope]] = field(default_factory=list)

    def due(self, lease: Entry) -> float:
        ttl = lease.ttl or 0.0
        return lease.used + ttl - margin_of(ttl)

    def pays(self, at: float, lease: Entry, wait: Wait, scope: Scope) -> bool:
        deciding, found = self.deciding, self.deciding.known(scope.model)
        ping = deciding.price(scope.model, Usage(0, lease.tokens, 0, 0, 0, 0), at)
        loss = deciding.price(scope.model, Usage(0, 0, lease.tokens, 0, 0, 0), at)
        if found is None or not can_ping(found[0]) or ping is None or loss is None or lease.ttl is None:
            return False
        decision = keep(
            Stakes(float(ping), float(loss - ping), lease.ttl, margin_of(lease.ttl)),
            activity=wait.activity,
            waited=at - wait.began,
            after=wait.after,
            hour=datetime.fromtimestamp(wait.began).astimezone().hour,
            pauses=Pauses.learned(deciding.ledger.pauses.seen(at)),
            policy=self.policy,
            limit_s=deciding.settings.keepalive_minutes * 60,
            budget_usd=float(self._budget(at)),
        )
        return decision.ping

    def sent(self, at: float, lease: Entry, scope: Scope) -> None:
        usd = self.deciding.price(scope.model, Usage(0, lease.tokens, 0, 0, 0, 0), at)
        self.spent.append((at, usd or Decimal(0)))
        self.pinged.append((at, scope))

    def _budget(self, at: float) -> Decimal:
        """USD that pings may still cost."""
        settings, session = self.deciding.settings, self.deciding.recorded.session.id
        others = self.deciding.ledger.pings.by_others(session, at - _DAY_S, at)
        mine = sum((usd for then, usd in self.spent if then <= at), Decimal(0))
        today = sum((usd for then, usd in [*self.spent, *others] if at - _DAY_S <= then <= at), Decimal(0))
        return max(Decimal(0), min(settings.keepalive_session - mine, settings.keepalive_day - today))
