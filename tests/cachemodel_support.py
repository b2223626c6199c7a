"""Prompts of known sizes and what is known to be cached, for tests of the client's model of a provider's cache."""

from dataclasses import dataclass, field, replace
from typing import Any

from context.block import Block, Layer, Role, Text
from context.breakpoints import Marker
from context.cache_rules import CacheRules
from context.cachemodel import Entry, Scope
from context.forecast import Forecast, Sent, forecast, settle
from context.prompt import Prompt
from context.sizes import Sizes
from context.usage import Usage

RULES = CacheRules(min_tokens=1000)
SCOPE = Scope("api.example", "some/model", "high")
NOW = 1_000_000.0


def block(tokens: int, layer: Layer = Layer.HISTORY, parts: int = 1, name: str = "") -> Block:
    return Block(layer, Role.USER, tuple(Text(f"{name} {number}") for number in range(parts)), tokens)


HEAD = [block(1500, Layer.SYSTEM, name="system"), block(500, Layer.PROJECT, name="project")]


def conversation(*sizes: int, parts: int = 1) -> Prompt:
    """SYSTEM of 1,500 tokens, PROJECT of 500, then blocks of the given sizes."""
    return Prompt.empty().extend([*HEAD, *(block(size, parts=parts, name=f"{n}") for n, size in enumerate(sizes))])


@dataclass
class Cache:
    """What is known to be cached."""

    held: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def find(self, key: str, prefix: str) -> Entry | None:
        return self.held.get((key, prefix))

    def put(self, prompt: Prompt, tokens: int, *, used: float = NOW, ttl: float | None = 300, **scope: Any) -> None:
        head = prompt.length <= prompt.head(Layer.PROJECT).length
        key = replace(SCOPE, **scope).key(RULES, head=head)
        self.held[key, prompt.digest] = Entry(key, prompt.digest, tokens, used, ttl)

    def keep(self, entries: list[Entry]) -> None:
        self.held |= {(entry.key, entry.prefix): entry for entry in entries}


def tail(prompt: Prompt, *more: int) -> tuple[Marker, ...]:
    return tuple(Marker(length, "short") for length in (*more, prompt.length))


def foretell(prompt: Prompt, cache: Cache, markers: tuple[Marker, ...] | None = None, **options: Any) -> Forecast:
    given: dict[str, Any] = {"rules": RULES, "scope": SCOPE, "last": None, "now": NOW + 60, "scale": 1.0, **options}
    return forecast(prompt, tail(prompt) if markers is None else markers, sizes=Sizes("any"), entries=cache, **given)


def sent(prompt: Prompt, **scope: Any) -> Sent:
    return Sent(replace(SCOPE, **scope), prompt.length, prompt.digest)


def after(made: Forecast, usage: Usage, cache: Cache, prompt: Prompt, rules: CacheRules = RULES) -> Cache:
    sizes = Sizes("any")
    sizes.follow(prompt)
    cache.keep(settle(made, usage, sizes=sizes, scope=SCOPE, rules=rules, entries=cache))
    return cache
