"""An account of what a provider's cache holds while a recorded session goes by, and what the record tells of the
provider. Pure; sizes in tokens, times in seconds since the epoch.

A request is forecast by the rules (`context.forecast`) and then held against its bill. What the rules do not explain,
the provider did of itself: it dropped a prefix before its time, kept one longer, or had one that another session had
sent. That would have happened under any policy, and an account of another policy takes it over from here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from context.billed import Billed, BilledSizes, RulesOf, sizes_of
from context.block import Layer
from context.breakpoints import Marker
from context.cache_rules import CacheRules, Ttl
from context.cachemodel import Entry, Scope
from context.forecast import Forecast, Sent, forecast, settle, slack
from context.lease import leases
from context.prompt import Prompt
from context.usage import Usage


@dataclass(frozen=True, slots=True)
class Found:
    """A prefix that was there although its lease had ended at `ended`, as far as was known; None: it was never known
    of. `ttl`: what it was marked with.
    """

    prefix: str
    ended: float | None
    ttl: Ttl


@dataclass(frozen=True, slots=True)
class Event:
    """What the provider did of itself, as a request found it. `lost`: prefixes longer than so many (billed) tokens were
    gone.
    """

    lost: int | None = None
    found: Found | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Of a recorded request. `said`: its input by the rules, once the `event` has happened; `hit`: the prefix that it
    read then. `warm`: the layers that were warm before it, as far as was known, and how long they live. `lease`: what
    could be renewed after it.
    """

    said: Usage
    hit: str | None
    event: Event
    warm: Mapping[Layer, Ttl]
    lease: Entry | None


@dataclass(slots=True)
class Cache:
    """What the provider holds (`context.cachemodel.Entries`)."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def find(self, key: str, prefix: str) -> Entry | None:
        return self.entries.get((key, prefix))

    def remember(self, entries: Iterable[Entry]) -> None:
        self.entries.update({(entry.key, entry.prefix): entry for entry in entries})


@dataclass(frozen=True, slots=True)
class Plan:
    """The last request of a turn, which a ping repeats. `number`: its place in the record."""

    number: int
    scope: Scope
    markers: tuple[Marker, ...]
    made: Forecast


class Account:
    """Of the caches that a session uses, whose models follow `rules_of`, and of what it has sent last."""

    def __init__(self, rules_of: RulesOf) -> None:
        self.cache = Cache()
        self.plan: Plan | None = None
        self._sent: Sent | None = None  # on whatever model
        self._mine: dict[Scope, Sent] = {}  # in each cache
        self._rules_of = rules_of

    def forecast(self, request: Billed, scope: Scope, markers: Sequence[Marker], sizes: BilledSizes) -> Forecast:
        """What `request` is billed in `scope`, by the rules."""
        return forecast(
            request.prompt,
            markers,
            sizes=sizes,
            scale=1.0,
            scope=scope,
            rules=self._rules_of(scope.model),
            entries=self.cache,
            last=self._sent if request.kind in ("call", "aside") else None,
            now=request.at,
            epoch=request.epoch,
        )

    def sent(self, number: int, request: Billed, scope: Scope, markers: tuple[Marker, ...], made: Forecast) -> None:
        """A request of a turn was answered."""
        self.plan = Plan(number, scope, markers, made)
        self._sent = self._mine[scope] = Sent(scope, request.prompt.length, request.prompt.digest, request.epoch)

    def goes_on(self, request: Billed, scope: Scope) -> Sent | None:
        """The last request of a turn in this cache, if `request` goes on from it."""
        mine = self._mine.get(scope)
        if mine is None or mine.epoch != request.epoch or mine.blocks > request.prompt.length:
            return None
        return mine

    def warm(self, request: Billed, scope: Scope) -> dict[Layer, Ttl]:
        """The layers that are warm before `request`, and how long they live."""
        rules, mine = self._rules_of(scope.model), self.goes_on(request, scope)
        prompt = request.prompt.at(mine.blocks) if mine else request.prompt
        entries = {lease.layer: lease.entry for lease in leases(prompt, scope, rules, self.cache)}
        if request.kind == "prewarm":  # it is the head of a conversation that may be warm itself
            kept = self.renewable() if self.plan and self.plan.scope == scope else None
            entries[Layer.HISTORY] = kept[1] if kept else None
        return {
            layer: "long" if (entry.ttl or 0.0) > (rules.ttl_short or 0.0) else "short"
            for layer, entry in entries.items()
            if entry is not None and entry.alive(request.at)
        }

    def renewable(self) -> tuple[Prompt, Entry] | None:
        """The longest prefix of the conversation that is known to have been cached; the head alone is none."""
        if self.plan is None:
            return None
        key = self.plan.scope.key(self._rules_of(self.plan.scope.model), head=False)
        for place in reversed(self.plan.made.places):
            entry = None if place.head else self.cache.find(key, place.node.digest)
            if entry is not None:
                return place.node, entry
        return None

    def settle(self, made: Forecast, usage: Usage, scope: Scope, sizes: BilledSizes) -> None:
        """The request was billed `usage`."""
        rules = self._rules_of(scope.model)
        self.cache.remember(settle(made, usage, sizes=sizes, scope=scope, rules=rules, entries=self.cache))

    def happen(self, event: Event, request: Billed, scope: Scope, sizes: BilledSizes) -> None:
        """What the provider had done by the time of `request`."""
        now = request.at
        if event.lost is not None:
            for place, entry in self.cache.entries.items():
                length = sizes.lengths.get(entry.prefix)
                if length is not None and sizes.billed(length) > event.lost and entry.alive(now):
                    self.cache.entries[place] = replace(entry, ttl=now - entry.used)
        if event.found is not None:
            found, rules = event.found, self._rules_of(scope.model)
            length = sizes.lengths[found.prefix]
            key = scope.key(rules, head=length <= request.prompt.head(Layer.PROJECT).length)
            mine = self.cache.find(key, found.prefix)
            if mine is not None and mine.alive(now):
                return
            if found.ended is None or (mine is not None and (mine.expires or 0.0) >= found.ended):
                tokens, ttl = sizes.tokens(length, 1.0), rules.ttl(found.ttl) or rules.ttl_short
                self.cache.remember([Entry(key, found.prefix, tokens, now, ttl)])


class Record:
    """A session as it was, with what it tells of its provider. Requests are in the order of their times."""

    def __init__(self, requests: Sequence[Billed], rules_of: RulesOf) -> None:
        self.requests = tuple(sorted(requests, key=lambda each: each.at))
        self.rules_of = rules_of
        self.sizes = sizes_of(self.requests, rules_of)
        account = Account(rules_of)
        self.facts = tuple(
            _fact(account, number, each, self.sizes[number]) for number, each in enumerate(self.requests)
        )


def _fact(account: Account, number: int, request: Billed, sizes: BilledSizes) -> Fact:
    scope, markers = request.scope, request.markers
    warm = account.warm(request, scope)
    made = account.forecast(request, scope, markers, sizes)
    event = _event(account, request, made, sizes)
    if event != Event():
        account.happen(event, request, scope, sizes)
        made = account.forecast(request, scope, markers, sizes)
    account.settle(made, request.usage, scope, sizes)
    if request.kind == "call":
        account.sent(number, request, scope, markers, made)
    kept = account.renewable()
    return Fact(made.usage, made.hit.entry.prefix if made.hit else None, event, warm, kept[1] if kept else None)


def _event(account: Account, request: Billed, made: Forecast, sizes: BilledSizes) -> Event:
    """Why the bill is not what the rules say."""
    read, said = request.usage.cache_read, made.usage.cache_read
    rules = account._rules_of(request.scope.model)
    if read is None or said is None or rules.kind == "none":
        return Event()
    if read < said - slack(said, rules):
        return Event(lost=read + slack(read, rules))
    if read > said + slack(said, rules):
        return Event(found=_found(account.cache, request, made, sizes, rules))
    return Event()


def _found(cache: Cache, request: Billed, made: Forecast, sizes: BilledSizes, rules: CacheRules) -> Found | None:
    """The prefix that was read though it was not known to be there; None: it is none of those that were marked."""
    read = request.usage.cache_read or 0
    nearest = min(made.places, key=lambda place: abs(sizes.tokens(place.node.length, 1.0) - read), default=None)
    if nearest is None:
        return None
    tokens = sizes.tokens(nearest.node.length, 1.0)
    if abs(tokens - read) > slack(tokens, rules):
        return None
    entry = cache.find(request.scope.key(rules, head=nearest.head), nearest.node.digest)
    return Found(nearest.node.digest, None if entry is None else entry.expires, nearest.ttl)
