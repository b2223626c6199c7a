"""A session as it was billed: each request with its counters, and how long its prefixes are by what bills have said.

Pure; sizes in the model's own tokens, times in seconds since the epoch. A bill says how long a whole request is; one
that found only a part of it in the cache says how long that part is. What lies between two known ends is shared out in
proportion to estimates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from context.block import Layer
from context.breakpoints import Marker
from context.cache_rules import CacheRules
from context.cachemodel import Scope
from context.prompt import Prompt
from context.sizes import Anchor, Sizes
from context.usage import Usage

_LIKE: Final = 0.3  # how far an estimate may be from what was read, and still mean the same prefix

Kind = Literal["call", "aside", "ping", "prewarm"]
"""What a request was for: a step of a turn; a question beside the conversation; to renew what was sent; to write the
head before a turn needs it.
"""

RulesOf = Callable[[str], CacheRules]
"""The cache rules of a model, by its name; of kind "none" where they are not known."""


@dataclass(frozen=True, slots=True)
class Billed:
    """A request whose input counters are known. `markers` as they were sent; an automatic cache has none. `policy`: the
    name of the one in force then, None: not known.
    """

    kind: Kind
    at: float
    prompt: Prompt
    epoch: int
    scope: Scope
    dialect: str
    markers: tuple[Marker, ...]
    usage: Usage
    policy: str | None = None

    @property
    def total(self) -> int:
        return self.usage.input_total or 0

    @property
    def rest(self) -> int:
        """Tokens behind the last marker, where that stands at the end and was obeyed: no cache takes them."""
        cached = (self.usage.cache_read or 0) + (self.usage.cache_write or 0)
        marked = bool(self.markers) and self.markers[-1].blocks == self.prompt.length
        return self.usage.fresh or 0 if marked and cached else 0


class BilledSizes(Sizes):
    """Of all prefixes of one `whole` prompt. `known`: the tokens of some of them, by digest."""

    def __init__(self, dialect: str, whole: Prompt, known: Mapping[str, int]) -> None:
        super().__init__(dialect)
        super().follow(whole)
        self.lengths: dict[str, int] = {}  # in blocks, by digest
        self._factor = 1.0
        node: Prompt | None = whole
        while node is not None:
            self.lengths[node.digest] = node.length
            node = node.parent
        ends = sorted((length, known[digest]) for digest, length in self.lengths.items() if digest in known)
        self._ends = _between(self._tokens, ends)

    def scaled(self, factor: float) -> "BilledSizes":
        """The same for a model that makes so many tokens of each that was billed."""
        other = copy(self)
        other._factor = factor
        return other

    def follow(self, prompt: Prompt) -> None:
        """Every prefix of the whole is known already."""

    def tokens(self, blocks: int, scale: float, anchor: Anchor | None = None) -> int:
        return round(self._ends[blocks] * self._factor)

    def billed(self, blocks: int) -> int:
        """In the tokens of the bills, on whatever model."""
        return round(self._ends[blocks])


def _between(estimates: Sequence[int], known: Iterable[tuple[int, int]]) -> list[float]:
    """Tokens of the first 0, 1, … blocks, of which some are `known`, in order."""
    anchors = [(0, 0)]
    for length, tokens in known:
        if length and tokens >= anchors[-1][1]:  # a prefix is no longer than the whole: that bill was not true
            anchors.append((length, tokens))
    found: list[float] = []
    for (start, low), (end, high) in pairwise(anchors):
        grown = estimates[end] - estimates[start]
        shares = ((estimates[at] - estimates[start]) / grown if grown else 0.0 for at in range(start, end))
        found += [low + (high - low) * share for share in shares]
    length, tokens = anchors[-1]
    scale = tokens / estimates[length] if estimates[length] else 1.0
    return [*found, *(tokens + (each - estimates[length]) * scale for each in estimates[length:])]


def sizes_of(requests: Sequence[Billed], rules_of: RulesOf) -> tuple[BilledSizes, ...]:
    """Of each request. Those of one epoch on one model share them, as each goes on from the one before."""
    known = _known_ends(requests, rules_of)
    wholes: dict[tuple[int, str], Billed] = {}
    for each in requests:
        place = (each.epoch, each.scope.model)
        if each.kind != "aside" and (place not in wholes or each.prompt.length > wholes[place].prompt.length):
            wholes[place] = each
    shared = {place: BilledSizes(each.dialect, each.prompt, known[place[1]]) for place, each in wholes.items()}
    return tuple(
        sizes
        if (sizes := shared.get((each.epoch, each.scope.model))) is not None and each.prompt.digest in sizes.lengths
        else BilledSizes(each.dialect, each.prompt, known[each.scope.model])
        for each in requests
    )


def _known_ends(requests: Sequence[Billed], rules_of: RulesOf) -> dict[str, dict[str, int]]:
    """Tokens of prefixes as bills have told them, by model and digest."""
    known: dict[str, dict[str, int]] = {}
    for each in requests:
        known.setdefault(each.scope.model, {})[each.prompt.digest] = each.total - each.rest
    ends = {model: set(of.values()) for model, of in known.items()}
    for each in requests:
        model, usage = each.scope.model, each.usage
        if rules_of(model).kind != "markers" or not each.markers or not each.total:
            continue  # an automatic cache reads in steps, which say little about where a prefix ends
        read, long = usage.cache_read or 0, usage.cache_write_long or 0
        told = {read} if read and read not in ends[model] else set()
        if 0 < long < (usage.cache_write or 0):
            told.add(read + long)
        for tokens in told - ends[model]:
            if (place := _place_of(tokens, each, known[model])) is not None:
                known[model][place.digest] = tokens
                ends[model].add(tokens)
    return known


def _place_of(tokens: int, request: Billed, known: Mapping[str, int]) -> Prompt | None:
    """The marked prefix of unknown size that is most likely as long as that."""
    sizes = Sizes(request.dialect)
    sizes.follow(request.prompt)
    scale = request.total / max(1, sizes.estimate(request.prompt.length))
    nodes = [request.prompt.at(marker.blocks) for marker in request.markers]
    off = {abs(sizes.estimate(node.length) * scale - tokens): node for node in nodes if node.digest not in known}
    nearest = min(off, default=None)
    return None if nearest is None or nearest > _LIKE * tokens else off[nearest]


def layer_of(blocks: int, prompt: Prompt) -> Layer:
    """That with which the first `blocks` blocks end; HISTORY for all that is behind the head."""
    if blocks <= prompt.head(Layer.SYSTEM).length:
        return Layer.SYSTEM
    return Layer.PROJECT if blocks <= prompt.head(Layer.PROJECT).length else Layer.HISTORY
