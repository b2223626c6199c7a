"""The client's own model of a provider's prompt cache: what is in it, until when, and what a request finds there.

Pure: time is an argument, and what is known of the cache comes from an `Entries`. Rules, as of 2026-08-22 (Anthropic's
prompt-caching documentation) and openai 3.57.0 (types/responses/response_create_params.py):

- An entry is one prefix, written at a breakpoint. It is found when a breakpoint of a later request stands at its end or
  at most `lookback` positions behind it, and every byte before is the same.
- Its time to live counts from the start of the request that wrote or read it.
- Prefixes below the model's minimum are neither written nor read.
- Another model, endpoint or cache key is another cache; so is another effort, except that tools and system texts stay
  where a model keeps them.
- A hit renews what it reads: the entry itself, and the entries at marked positions before it. [guess: the documentation
  says that use refreshes, not which of two nested entries was used]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from context.block import Layer
from context.breakpoints import Marker
from context.cache_rules import CacheRules, Ttl
from context.prompt import Prompt
from context.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose cache: entries of one scope are never found from another. `effort` None: the model's default."""

    endpoint: str
    model: str
    effort: str | None = None

    def key(self, rules: CacheRules, *, head: bool) -> str:
        """The name under which entries are kept. `head`: for a prefix that ends in SYSTEM or PROJECT."""
        effort = None if head and rules.effort_keeps_system else self.effort
        return " ".join((self.endpoint, self.model, effort or "-"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A cached prefix. `prefix`: its running digest (`Prompt.digest`); `tokens` the model's own; times in seconds.

    `used`: start of the request that wrote or last read it. `ttl` as granted; None: no clock. `written`: start of the
    request that wrote it; None: not recorded.
    """

    key: str
    prefix: str
    tokens: int
    used: float
    ttl: float | None
    written: float | None = None

    @property
    def expires(self) -> float | None:
        return None if self.ttl is None else self.used + self.ttl

    def alive(self, now: float) -> bool:
        return self.expires is None or now < self.expires


class Entries(Protocol):
    """What is known of a cache. Expired entries may be among it: they explain a miss."""

    def find(self, key: str, prefix: str) -> Entry | None: ...


@dataclass(frozen=True, slots=True)
class Point:
    """A place where a request writes an entry: behind the prompt `node`."""

    node: Prompt
    head: bool
    ttl: Ttl


def points(prompt: Prompt, markers: Sequence[Marker], rules: CacheRules, last: int | None) -> list[Point]:
    """Where a request reads and writes, in order. O(blocks behind the last request).

    `last`: blocks of the last request, None before the first. An automatic cache has no markers; the prefixes worth
    remembering are the same: the ends of SYSTEM and PROJECT, of the last request and of this one.
    """
    system, project = prompt.head(Layer.SYSTEM), prompt.head(Layer.PROJECT)
    if rules.kind == "automatic":
        ends = [system, project, prompt, *([prompt.at(last)] if last is not None and last <= prompt.length else [])]
        nodes = {node.length: node for node in ends if node.length}
        return [Point(node, node.length <= project.length, "short") for _, node in sorted(nodes.items())]
    found = []
    node = prompt
    for marker in sorted(markers, key=lambda marker: marker.blocks, reverse=True):
        if marker.blocks <= project.length:  # reached at once, however long the history is
            node = project if marker.blocks > system.length else system
        node = node.at(marker.blocks)
        found.append(Point(node, marker.blocks <= project.length, marker.ttl))
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a request finds, and how many blocks it covers."""

    entry: Entry
    blocks: int


def find_hit(
    places: Sequence[Point], sizes: Sizes, scope: Scope, rules: CacheRules, entries: Entries, now: float
) -> Hit | None:
    """The longest prefix that a request with `places` (in order) finds alive."""
    for point in reversed(places):  # a reach has no gaps, so what the last of them finds is the longest
        for node in within_reach(point, sizes, rules):
            entry = entries.find(scope.key(rules, head=_is_head(node)), node.digest)
            if entry is not None and entry.alive(now) and entry.tokens >= rules.min_tokens:
                return Hit(entry, node.length)
    return None


def within_reach(point: Point, sizes: Sizes, rules: CacheRules) -> Iterator[Prompt]:
    """The prefixes at which a breakpoint looks for an entry, longest first."""
    node: Prompt | None = point.node
    end = sizes.positions(point.node.length)
    while node is not None and node.length:
        if rules.lookback is not None and end - sizes.positions(node.length) >= rules.lookback:
            return
        yield node
        if rules.lookback is None:
            return  # matched exactly at the breakpoint
        node = node.parent


def _is_head(node: Prompt) -> bool:
    return node.length <= node.head(Layer.PROJECT).length
