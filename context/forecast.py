"""Forecast: what a request is expected to read, write and send fresh, and why it will not read more; and after the
bill, what the cache holds now.

Pure and O(new blocks). Billing as of 2026-08-22 (Anthropic's prompt-caching documentation, mixed times to live): read
up to the longest hit A; written at the long TTL from A to the last long breakpoint B; written at the short one from B
to the last breakpoint C; the rest is fresh. OpenAI bills the same way, each token once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from context.breakpoints import Marker
from context.cache_rules import CacheRules
from context.cachemodel import Entries, Entry, Hit, Point, Scope, find_hit, points
from context.prompt import Prompt
from context.sizes import Anchor, Sizes
from context.usage import Usage


class Cause(StrEnum):
    """Why a request did not read all that had been sent before."""

    NONE = "as_expected"  # it did
    FIRST = "first"  # nothing of it had been sent before
    EXPIRED = "expired"
    EVICTED = "evicted"
    BELOW_MINIMUM = "below_minimum"
    TTL_SHORTENED = "ttl_shortened"  # granted a shorter time to live than was asked
    NEW_EPOCH = "new_epoch"  # the history was rewritten on purpose
    CHANGED = "changed"  # the prefix is another one
    MODEL_CHANGED = "model_changed"
    EFFORT_CHANGED = "effort_changed"
    ENDPOINT_CHANGED = "endpoint_changed"
    LOOKBACK = "lookback"  # the last entry is too many positions behind the next breakpoint
    NO_MARKERS = "no_markers"  # nothing was marked: this endpoint refuses it
    NOT_REPORTED = "not_reported"  # the provider does not say what it read
    IMPLAUSIBLE = "implausible"  # the provider's counters contradict each other or the request
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sent:
    """The last request that the provider began to answer. `blocks` and `prefix` (running digest) of what was sent, in
    which `epoch`.
    """

    scope: Scope
    blocks: int
    prefix: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """`usage` without output; None inside where there is no saying. `total` input tokens. `hit`: what will be read.

    `cause`: why that is less than all that was sent before (NONE: it is not), `since`: when that came about (seconds
    since the epoch), where a time is known. `best`: tokens that could be read if nothing had come between. `places` and
    `now` are kept for `settle`.
    """

    usage: Usage
    total: int
    best: int
    hit: Hit | None
    cause: Cause
    since: float | None
    places: tuple[Point, ...]
    now: float


def forecast(
    prompt: Prompt,
    markers: Sequence[Marker],
    *,
    sizes: Sizes,
    scale: float,
    scope: Scope,
    rules: CacheRules,
    entries: Entries,
    last: Sent | None,
    now: float,
    anchor: Anchor | None = None,
    epoch: int = 0,
) -> Forecast:
    """The forecast of sending `prompt` with `markers` at `now` (seconds since the epoch).

    `scale`: the model's tokens per estimated token. `anchor`: a prefix whose tokens are known from a bill. `last`: the
    session's last answered request, on whatever model. `epoch`: of `prompt`.
    """
    sizes.follow(prompt)
    if rules.kind == "none":
        return Forecast(Usage(), sizes.tokens(prompt.length, scale, anchor), 0, None, Cause.NONE, None, (), now)
    goes_on = last is not None and last.epoch == epoch
    places = points(prompt, markers, rules, last.blocks if last is not None and goes_on else None)
    hit = find_hit(places, sizes, scope, rules, entries, now)
    if hit is not None:
        anchor = Anchor(hit.blocks, hit.entry.tokens)

    def size(blocks: int) -> int:
        return sizes.tokens(blocks, scale, anchor)

    written = [(size(place.node.length), place) for place in places]
    written = [(tokens, place) for tokens, place in written if tokens >= rules.min_tokens]
    read = hit.entry.tokens - hit.entry.tokens % rules.step if hit else 0
    usage = _bill(read, size(prompt.length), written, rules)
    kept = tuple(place for _, place in written)
    best, cause, since = read, Cause.NONE if hit else Cause.FIRST, None
    if last is not None and not goes_on:
        cause = Cause.NEW_EPOCH
    elif last is not None:
        if last.blocks > prompt.length or prompt.at(last.blocks).digest != last.prefix:
            cause = Cause.CHANGED
        elif hit is not None and hit.blocks >= last.blocks:
            cause = Cause.NONE
        else:
            best = max(read, size(last.blocks))
            entry = entries.find(scope.key(rules, head=False), last.prefix)
            cause = _cause(last, places, entry, scope=scope, known=best >= rules.min_tokens, now=now)
            since = entry.expires if cause is Cause.EXPIRED and entry is not None else None
    return Forecast(usage, size(prompt.length), best, hit, cause, since, kept, now)


def _cause(last: Sent, places: Sequence[Point], entry: Entry | None, *, scope: Scope, known: bool, now: float) -> Cause:
    """Why the hit ends before the last request does, though the prompt goes on from there.

    `entry`: what is known of the last request's end. `known`: whether it was long enough to be cached.
    """
    for mine, theirs, cause in (
        (scope.endpoint, last.scope.endpoint, Cause.ENDPOINT_CHANGED),
        (scope.model, last.scope.model, Cause.MODEL_CHANGED),
        (scope.effort, last.scope.effort, Cause.EFFORT_CHANGED),
    ):
        if mine != theirs:
            return cause
    if not known:
        return Cause.BELOW_MINIMUM
    if not places:
        return Cause.NO_MARKERS
    if entry is None:
        return Cause.UNKNOWN
    return Cause.LOOKBACK if entry.alive(now) else Cause.EXPIRED


def _bill(read: int, total: int, written: Sequence[tuple[int, Point]], rules: CacheRules) -> Usage:
    if rules.kind == "automatic":  # writes are free and not reported
        return Usage(fresh=total - read, cache_read=read, cache_write=0, cache_write_long=0)
    end = max([read, *(tokens for tokens, _ in written)])
    long_end = max([read, *(tokens for tokens, point in written if point.ttl == "long")])
    return Usage(fresh=total - end, cache_read=read, cache_write=end - read, cache_write_long=long_end - read)


def settle(
    made: Forecast, usage: Usage, *, sizes: Sizes, scope: Scope, rules: CacheRules, entries: Entries
) -> list[Entry]:
    """What the cache holds after a request that was billed `usage`: entries to remember, in place of those of equal key
    and prefix. Those that the provider turned out not to have are remembered as expired when the request was made.
    Where it reports nothing, the forecast stands. The sizes must still follow the request's prompt.
    """
    if usage.cache_read is None or usage.input_total is None:
        usage = made.usage
    read, total = usage.cache_read, usage.input_total
    if rules.kind == "none" or read is None or total is None or not made.places:
        return []
    known = [(place, entries.find(scope.key(rules, head=place.head), place.node.digest)) for place in made.places]
    hit = _matching(made, [(place.node.length, entry) for place, entry in known], read, rules)
    anchor = Anchor(hit.blocks, hit.entry.tokens) if hit else None
    grown = sizes.estimate(made.places[-1].node.length) - (sizes.estimate(anchor.blocks) if anchor else 0)
    end = total - (usage.fresh or 0) if rules.kind == "markers" else total
    scale = (end - (anchor.tokens if anchor else 0)) / grown if grown > 0 else 1.0
    shortened = granted_short(made, usage)
    kept = []
    for place, entry in known:
        tokens = sizes.tokens(place.node.length, scale, anchor)
        ttl = rules.ttl("short" if shortened else place.ttl)
        if hit is None and read and tokens <= read + slack(tokens, rules):
            # More was read than was known of: what it is and how long it lives is not known, so not for long.
            known_alive = entry is not None and entry.alive(made.now)
            short = Entry(scope.key(rules, head=place.head), place.node.digest, tokens, made.now, rules.ttl("short"))
            kept.append(replace(entry, used=made.now) if entry is not None and known_alive else short)
        elif hit is not None and place.node.length <= hit.blocks:
            if entry is not None and entry.alive(made.now):
                kept.append(replace(entry, used=made.now))
        elif tokens >= rules.min_tokens and (usage.cache_write or rules.kind == "automatic"):
            kept.append(Entry(scope.key(rules, head=place.head), place.node.digest, tokens, made.now, ttl, made.now))
    if hit is not None and all(entry.prefix != hit.entry.prefix for entry in kept):
        kept.append(replace(hit.entry, used=made.now))
    if made.hit is not None and (hit is None or made.hit.blocks > hit.blocks):
        lost = made.hit.entry
        if all(entry.prefix != lost.prefix for entry in kept):
            kept.append(replace(lost, ttl=made.now - lost.used))
    return kept


def _matching(made: Forecast, known: Sequence[tuple[int, Entry | None]], read: int, rules: CacheRules) -> Hit | None:
    """The entry that the provider must have read to bill `read` tokens."""
    candidates = [Hit(entry, blocks) for blocks, entry in known if entry is not None]
    if made.hit is not None:
        candidates.append(made.hit)
    near = [hit for hit in candidates if read and abs(hit.entry.tokens - read) <= slack(hit.entry.tokens, rules)]
    return min(near, key=lambda hit: abs(hit.entry.tokens - read), default=None)


def slack(tokens: int, rules: CacheRules) -> int:
    """How far a billed count may be from a known one and still mean the same prefix."""
    return max(rules.step, tokens // 200)


def granted_short(made: Forecast, usage: Usage) -> bool:
    """Whether the provider wrote at the short TTL what was to be written at the long one."""
    return bool(made.usage.cache_write_long and usage.cache_write and usage.cache_write_long == 0)
