"""What a recorded session would have been billed under another policy. Pure; sizes in tokens, times in seconds since
the epoch.

One code path for every policy: the session goes by once more, with an account of what the cache holds under the policy
(`context.account`). Where a request finds the same prefix there as in the account of the record, and writes for the
same time to live, it keeps the counters that it was billed; else they are recomputed. Under the policy that was in
force nothing is recomputed.

The requests and their times stay as they were: a policy decides what is marked, for how long, and when a ping goes out.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from context.account import Account, Fact, Plan, Record
from context.billed import Billed, BilledSizes, Kind, layer_of
from context.block import Layer
from context.breakpoints import ALL_SHORT, Marker, plan_markers
from context.cache_rules import CacheRules, Ttl
from context.cachemodel import Entry, Scope
from context.economics import Activity, margin_of
from context.forecast import Forecast
from context.pauses import After
from context.prompt import Prompt
from context.ttl import TtlChoice
from context.usage import Usage

_FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which pings may go out: from `start` up to `end`. What was waited for began at `began`."""

    start: float
    end: float
    began: float
    activity: Activity
    after: After


Choose = Callable[[int, int, int, Mapping[Layer, Ttl], float], Mapping[Layer, TtlChoice]]
"""The times to live that a request asks for, as `agent.ttl_choice.TtlChooser` gives them: by the tokens of SYSTEM, of
PROJECT and of all, what is warm and how it was written, and the time.
"""


class Pinger(Protocol):
    """When a policy pings."""

    def due(self, lease: Entry) -> float:
        """The time of the next ping that would renew `lease`."""
        ...

    def pays(self, at: float, lease: Entry, wait: Wait, scope: Scope) -> bool:
        """Whether it goes out."""
        ...

    def sent(self, at: float, lease: Entry, scope: Scope) -> None:
        """It has gone out."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """A policy, on a model. `cached` False: nothing is ever marked or read. `scope`: the cache of another model, and
    `factors` its tokens for each that was billed by a model (1 where there is none); None: each request is made where
    it was made. `choose`: the times to
    live in a cache; None: as recorded. `pinger` "recorded": pings go out when they did; None: never. `policy`: its name
    in the record: where it was in force and the same is warm, it does what it did.
    """

    cached: bool = True
    scope: Scope | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    choose: Callable[[Scope], Choose] | None = None
    pinger: Pinger | Literal["recorded"] | None = "recorded"
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A request as it is billed under a policy. `request`: the place in the record of the one that it stands for; None:
    a ping that was not made in truth. `kept`: that one's bill holds.
    """

    kind: Kind
    at: float
    model: str
    usage: Usage
    request: int | None
    kept: bool


def run(record: Record, way: Way, waits: Sequence[Wait] = (), failed: Sequence[float] = ()) -> list[Made]:
    """The bills of a session under a policy, in order. `waits` in order. `failed`: times of recorded pings whose bill
    is not known, because they were refused, lost, or cancelled by a turn.

    A request that the policy does not make (a pre-warm of what is warm) is not among them.
    """
    return _Run(record, way, waits, failed).run()


class _Run:
    def __init__(self, record: Record, way: Way, waits: Sequence[Wait], failed: Sequence[float]) -> None:
        self._record, self._way = record, way
        self._waits, self._failed = deque(waits), failed
        self._account = Account(record.rules_of)
        self._factors = [way.factors.get(request.scope.model, 1.0) for request in record.requests]
        scaled = {id(sizes): sizes.scaled(factor) for sizes, factor in zip(record.sizes, self._factors, strict=True)}
        self._sizes = [scaled[id(sizes)] for sizes in record.sizes]
        self._ttl: Mapping[Layer, Ttl] = ALL_SHORT
        self._happened = 0  # requests of the record whose events are in the account
        self._made: list[Made] = []

    def run(self) -> list[Made]:
        for number, request in enumerate(self._record.requests):
            if request.kind == "ping":
                if self._way.pinger == "recorded" and self._way.cached:
                    self._serve(number, request, self._scope(request), request.markers)
                continue
            self._ping_until(request.at)
            scope = self._scope(request)
            if self._way.cached and self._rules(scope).kind != "none":
                self._request(number, request, scope)
            elif request.kind != "prewarm":
                self._note_uncached(number, request, scope)
        self._ping_until(_FOREVER)
        return self._made

    def _scope(self, request: Billed) -> Scope:
        return self._way.scope or request.scope

    def _rules(self, scope: Scope) -> CacheRules:
        return self._record.rules_of(scope.model)

    # Requests of the record

    def _request(self, number: int, request: Billed, scope: Scope) -> None:
        self._catch_up(number - 1)
        markers = request.markers
        if self._settles_otherwise(number, request, scope):
            self._settle_ttl(number, request, scope)
            markers = self._markers(number, request, scope)
        made = self._serve(number, request, scope, markers)
        if made is not None and request.kind == "call":
            self._account.sent(number, request, scope, markers, made)

    def _serve(self, number: int, request: Billed, scope: Scope, markers: Sequence[Marker]) -> Forecast | None:
        """Bill the recorded request. None: it is not made, because there is nothing to write."""
        self._catch_up(number)
        made = self._account.forecast(request, scope, markers, self._sizes[number])
        said = self._record.facts[number].said
        if request.kind == "prewarm" and said.cache_write and not made.usage.cache_write:
            return None
        usage = _by_the_rules(made, request.rest, self._was(request), self._factors[number])
        self._bill(number, request, scope, made, usage, self._sizes[number])
        return made

    def _bill(
        self, number: int | None, request: Billed, scope: Scope, made: Forecast, usage: Usage, sizes: BilledSizes
    ) -> Usage:
        """Note the bill of `request` and settle the account. `number`: the recorded one that it is; `usage`: its bill
        by the rules.
        """
        kept = False
        if number is not None and self._way.scope is None:
            usage, kept = _held_against(self._record.requests[number].usage, self._record.facts[number], made, usage)
        self._account.settle(made, usage, scope, sizes)
        self._made.append(Made(request.kind, request.at, scope.model, usage, number, kept))
        return usage

    def _note_uncached(self, number: int, request: Billed, scope: Scope) -> None:
        was, factor = self._was(request), self._factors[number]
        kept = self._way.cached and self._way.scope is None  # a model whose cache costs nothing
        if not kept:
            fresh = round(request.total * factor)
            was = Usage(fresh, 0, 0, 0, _scaled(was.output, factor), _scaled(was.reasoning, factor), was.tier)
        self._made.append(Made(request.kind, request.at, scope.model, was, number, kept))

    def _was(self, request: Billed) -> Usage:
        """Its bill. On another model it would have been served in the standard way."""
        return request.usage if self._way.scope is None else replace(request.usage, tier=None)

    def _catch_up(self, number: int) -> None:
        """What the provider did of itself until the recorded request of that `number`, as it and the recorded pings
        ahead of it have found it.
        """
        for at in range(self._happened, number + 1):
            then = self._record.requests[at]
            if then.kind == "ping" or at == number:
                self._account.happen(self._record.facts[at].event, then, self._scope(then), self._sizes[at])
        self._happened = max(self._happened, number + 1)

    def _settles_otherwise(self, number: int, request: Billed, scope: Scope) -> bool:
        """Whether the policy has to mark the request anew: the same policy marks as it did where the same is warm."""
        if scope != request.scope:
            return True
        if self._way.policy is None or self._way.policy != request.policy:
            return self._way.choose is not None
        return self._account.warm(request, scope) != self._record.facts[number].warm

    def _settle_ttl(self, number: int, request: Billed, scope: Scope) -> None:
        """As `agent.forecaster.Forecaster` does: what is warm stays as it was written."""
        rules = self._rules(scope)
        if self._way.choose is None or rules.kind != "markers" or rules.ttl_long is None:
            return
        prompt, sizes, warm = request.prompt, self._sizes[number], self._account.warm(request, scope)
        if Layer.HISTORY in warm:
            ttl = {layer: warm.get(layer, warm[Layer.HISTORY]) for layer in Layer}
        else:
            system = sizes.tokens(prompt.head(Layer.SYSTEM).length, 1.0)
            project = sizes.tokens(prompt.head(Layer.PROJECT).length, 1.0) - system
            total, plan = sizes.tokens(prompt.length, 1.0), self._account.plan
            if request.kind == "prewarm" and plan is not None:  # the conversation that it is the head of
                sent = self._record.requests[plan.number].prompt.length
                total = max(total, self._sizes[plan.number].tokens(sent, 1.0))
            choices = self._way.choose(scope)(system, project, total, warm, request.at)
            ttl = {layer: choice.ttl for layer, choice in choices.items()}
        self._ttl = {**ttl, Layer.COMMAND: ttl[Layer.HISTORY]}

    def _markers(self, number: int, request: Billed, scope: Scope) -> tuple[Marker, ...]:
        """Where the request is marked: as it was, on another model anew."""
        prompt, markers, rules = request.prompt, request.markers, self._rules(scope)
        if rules.kind != "markers":
            return ()
        if self._way.scope is not None:
            mine = self._account.goes_on(request, scope)
            scale = self._sizes[number].tokens(prompt.length, 1.0) / max(1, prompt.tokens)
            markers = plan_markers(prompt, rules, mine.blocks if mine else None, scale=scale)
            if request.kind == "aside":  # nobody would read its own end again
                written = max(prompt.head(Layer.PROJECT).length, mine.blocks if mine else 0)
                markers = tuple(marker for marker in markers if marker.blocks <= min(written, prompt.length - 1))
        if self._way.choose is None and self._way.scope is None:
            return markers
        return _timed(markers, prompt, self._ttl if rules.ttl_long is not None else ALL_SHORT)

    # Pings of the policy

    def _ping_until(self, until: float) -> None:
        """All waits that began before that are over."""
        while self._waits and self._waits[0].start < until:
            wait = self._waits.popleft()
            if self._way.cached and self._way.pinger is not None and self._way.pinger != "recorded":
                self._ping_through(wait, self._way.pinger)

    def _ping_through(self, wait: Wait, pinger: Pinger) -> None:
        while (plan := self._account.plan) is not None and (kept := self._account.renewable()) is not None:
            node, lease = kept
            at = max(pinger.due(lease), wait.start)
            if lease.ttl is None or at >= wait.end or not lease.alive(at):
                return
            number, margin = self._recorded(node, at, margin_of(lease.ttl)), margin_of(lease.ttl)
            if number is None and any(abs(failed - at) <= margin for failed in self._failed):
                return  # the network or the provider was in the way, or the turn that came
            goes = number is not None
            if not self._is_as_it_was(plan, lease, margin):
                goes = pinger.pays(at, lease, wait, plan.scope)
            if not goes:
                return
            pinger.sent(at, lease, plan.scope)
            if not self._ping(plan, node, at, number).cache_read:
                return

    def _is_as_it_was(self, plan: Plan, lease: Entry, margin: float) -> bool:
        """Whether the record tells what the policy does: it was in force, and the lease was the same."""
        policy, then = self._record.requests[plan.number].policy, self._record.facts[self._happened - 1].lease
        if self._way.scope is not None or policy is None or policy != self._way.policy or then is None:
            return False
        return (then.prefix, then.ttl) == (lease.prefix, lease.ttl) and abs(then.used - lease.used) <= margin

    def _recorded(self, node: Prompt, at: float, margin: float) -> int | None:
        """The ping of the record that renewed the same prefix at about that time."""
        for number in range(self._happened, len(self._record.requests)):
            ping = self._record.requests[number]
            if ping.kind != "ping":
                return None
            if ping.prompt.digest == node.digest and abs(ping.at - at) <= margin:
                return number
        return None

    def _ping(self, plan: Plan, node: Prompt, at: float, number: int | None) -> Usage:
        """Send what was sent last once more, up to `node`. `number`: the recorded ping that it is."""
        requests, ground = self._record.requests, self._record.requests[plan.number]
        if number is not None:
            at = requests[number].at
            self._catch_up(number)
        while self._happened < len(requests) and requests[self._happened].kind == "ping":
            if requests[self._happened].at > at:
                break
            self._catch_up(self._happened)
        markers = tuple(marker for marker in plan.markers if marker.blocks <= node.length)
        request = Billed("ping", at, node, ground.epoch, plan.scope, ground.dialect, markers, Usage())
        made = self._account.forecast(request, plan.scope, markers, self._sizes[plan.number])
        rest = ground.rest if node.length == ground.prompt.length else 0
        usage = _by_the_rules(
            made, rest, Usage(output=0, reasoning=0, tier=self._was(ground).tier), self._factors[plan.number]
        )
        return self._bill(number, request, plan.scope, made, usage, self._sizes[plan.number])


def _by_the_rules(made: Forecast, rest: int, was: Usage, factor: float) -> Usage:
    """The bill as it is forecast; `rest` tokens are behind the last marker, and the reply is that which `was` given."""
    fresh = (made.usage.fresh or 0) + round(rest * factor)
    return replace(
        made.usage,
        fresh=fresh,
        output=_scaled(was.output, factor),
        reasoning=_scaled(was.reasoning, factor),
        tier=was.tier,
    )


def _held_against(was: Usage, fact: Fact, made: Forecast, usage: Usage) -> tuple[Usage, bool]:
    """The bill of a request that was billed `was` in truth and is forecast as `made`; and whether it is the same.
    `usage`: by the rules alone.
    """
    said, now = fact.said, made.usage
    written = said.cache_write or 0
    if (now.fresh, now.cache_read, now.cache_write) != (said.fresh, said.cache_read, said.cache_write):
        return usage, False
    if now.cache_write_long == said.cache_write_long or not written:
        return was, True
    if (made.hit.entry.prefix if made.hit else None) != fact.hit:
        return usage, False
    # What is read and what is written is the same; for how long it is written is not.
    all_of_it, long = was.cache_write or 0, now.cache_write_long or 0
    return replace(was, cache_write_long=all_of_it if long == written else min(long, all_of_it)), False


def _timed(markers: Sequence[Marker], prompt: Prompt, ttl: Mapping[Layer, Ttl]) -> tuple[Marker, ...]:
    """The same places with other times to live; what precedes a long one is long (provider rules 1.2, 2026-12-01)."""
    timed: list[Marker] = []
    for marker in reversed(markers):
        long = ttl[layer_of(marker.blocks, prompt)] == "long" or (bool(timed) and timed[-1].ttl == "long")
        timed.append(Marker(marker.blocks, "long" if long else "short"))
    return tuple(reversed(timed))


def _scaled(tokens: int | None, factor: float) -> int | None:
    return None if tokens is None else round(tokens * factor)
