"""An account of what a provider's cache holds while a recorded session goes by, and what the record tells of the
provider. Pure; sizes in tokens, times in seconds since the epoch.

A request is forecast by the rules (`context.forecast`) and then held against its bill. What the rules do not explain,
the provider did of itself: it dropped a prefix before its time, kept one longer, or had one that another session had
sent. That would have happened under any policy, and an account of another policy takes it over from here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from context.billed import Billed, BilledSizes, RulesOf, sizes_of
from context.block import Layer
from context.breakpoints import Marker
from context.cache_rules import CacheRules, Ttl
from context.cachemodel import Entry, Scope
from context.forecast import Forecast, Sent, forecast, settle, slack
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
    read then.
    """

    said: Usage
    hit: str | None
    event: Event


@dataclass(slots=True)
class Cache:
    """What the provider holds (`context.cachemodel.Entries`)."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def find(self, key: str, prefix: str) -> Entry | None:
        return self.entries.get((key, prefix))

    def remember(self, entries: Iterable[Entry]) -> None:
        self.entries.update({(entry.key, entry.prefix): entry for entry in entries})


class Account:
    """Of one cache, or of all that a session used. `rules_of` its models."""

    def __init__(self, rules_of: RulesOf) -> None:
        self.cache = Cache()
        self._rules_of = rules_of

    def forecast(
        self, request: Billed, scope: Scope, markers: Sequence[Marker], sizes: BilledSizes, last: Sent | None
    ) -> Forecast:
        """What `request` is billed in `scope`, by the rules."""
        return forecast(
            request.prompt,
            markers,
            sizes=sizes,
            scale=1.0,
            scope=scope,
            rules=self._rules_of(scope.model),
            entries=self.cache,
            last=last,
            now=request.at,
            epoch=request.epoch,
        )

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
        account, facts = Account(rules_of), []
        last: Sent | None = None
        for request, sizes in zip(self.requests, self.sizes, strict=True):
            facts.append(_fact(account, request, sizes, last if request.kind in ("call", "aside") else None))
            if request.kind == "call":
                last = Sent(request.scope, request.prompt.length, request.prompt.digest, request.epoch)
        self.facts = tuple(facts)


def _fact(account: Account, request: Billed, sizes: BilledSizes, last: Sent | None) -> Fact:
    made = account.forecast(request, request.scope, request.markers, sizes, last)
    event = _event(account, request, made, sizes)
    if event != Event():
        account.happen(event, request, request.scope, sizes)
        made = account.forecast(request, request.scope, request.markers, sizes, last)
    account.settle(made, request.usage, request.scope, sizes)
    return Fact(made.usage, made.hit.entry.prefix if made.hit else None, event)


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
