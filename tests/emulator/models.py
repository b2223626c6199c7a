"""What the emulator knows of each model: published limits and prices, kept apart from the client's own table.

Sources: provider rules 1.2, 1.7, 2.1, 4.3 as of 2026-12-01; prices in USD per million tokens.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal


@dataclass(frozen=True)
class Price:
    """USD per million tokens. `write_short`: 5m / 30m, `write_long`: 1h / 12h."""

    fresh: Decimal
    read: Decimal
    write_short: Decimal
    write_long: Decimal
    output: Decimal


def price(fresh: str, read: str, write_short: str, write_long: str, output: str) -> Price:
    return Price(*map(Decimal, (fresh, read, write_short, write_long, output)))


Thinking = Literal["adaptive", "enabled", "disabled", "between_tools"]


@dataclass(frozen=True)
class Model:
    """`minimum`: tokens below which a prefix is not cached. `short`, `long`: seconds that an entry lives.

    `cliff`: input tokens above which the whole request costs `above`. `effort`: the documented default, which is the
    same as none given. `thinking`: the modes it takes, the first one being its default. `binding`: thinking is bound to
    its exact prefix. `forced_tools`: tool_choice any and tool are allowed. `prefill`: the last message may be the
    assistant's. `system_messages`: a message may have the role system. `effort_keeps_head`: entries that end in tools
    or system survive another effort. `automatic`: OpenAI's cache of older models, without breakpoints.
    """

    name: str
    price: Price
    minimum: int = 1024
    short: float = 300
    long: float = 3600
    context: int = 1_000_000
    max_output: int = 128_000
    cliff: int | None = None
    above: Price | None = None
    effort: str | None = "high"
    thinking: tuple[Thinking, ...] = ("disabled", "adaptive")
    binding: bool = False
    forced_tools: bool = True
    prefill: bool = False
    system_messages: bool = True
    effort_keeps_head: bool = True
    automatic: bool = False

    def price_of(self, input_tokens: int) -> Price:
        """The price list for a request of so many input tokens."""
        return self.above if self.above and self.cliff is not None and input_tokens > self.cliff else self.price


_FABLE = price("10", "1", "12.5", "20", "50")
_FABLE_51 = price("10", "0.25", "12.5", "20", "50")
_FABLE_52 = price("8", "0.2", "10", "16", "40")
_OPUS = price("5", "0.5", "6.25", "10", "25")
_OPUS_55 = price("4", "0.2", "5", "8", "20")
_SONNET = price("3", "0.3", "3.75", "6", "15")
_SONNET_5 = price("2", "0.2", "2.5", "4", "10")
_SONNET_55 = price("2", "0.1", "2.5", "4", "10")
_HAIKU_45 = price("1", "0.1", "1.25", "2", "5")
_HAIKU_55 = price("0.1", "0.01", "0.125", "0.2", "0.5")
_HAIKU_55_ABOVE = price("0.5", "0.05", "0.625", "1", "2.5")

_ALWAYS: tuple[Thinking, ...] = ("adaptive",)
_MANUAL: tuple[Thinking, ...] = ("disabled", "enabled")
_BOTH: tuple[Thinking, ...] = ("disabled", "adaptive", "enabled")

ANTHROPIC = (
    Model("claude-fable-5-2", _FABLE_52, thinking=_ALWAYS, binding=True, forced_tools=False),
    Model("claude-fable-5-1", _FABLE_51, thinking=_ALWAYS, binding=True, forced_tools=False),
    Model("claude-fable-5", _FABLE, 512),
    Model("claude-mythos-5-2", _FABLE_52, thinking=_ALWAYS, binding=True, forced_tools=False),
    Model("claude-mythos-5-1", _FABLE_51, thinking=_ALWAYS, binding=True, forced_tools=False),
    Model("claude-opus-5-5", _OPUS_55, 512, effort="medium", thinking=_ALWAYS, binding=True, forced_tools=False),
    Model(
        "claude-sonnet-5-5",
        _SONNET_55,
        512,
        thinking=("adaptive", "between_tools"),
        binding=True,
        forced_tools=False,
    ),
    Model(
        "claude-haiku-5-5",
        _HAIKU_55,
        512,
        cliff=100_000,
        above=_HAIKU_55_ABOVE,
        effort="medium",
        binding=True,
    ),
    Model("claude-opus-5", _OPUS, 512),
    Model("claude-sonnet-5", _SONNET_5, system_messages=False),
    Model("claude-opus-4-8", _OPUS),
    Model("claude-opus-4-7", _OPUS, 2048, system_messages=False),
    Model("claude-opus-4-6", _OPUS, 4096, thinking=_BOTH, system_messages=False),
    Model("claude-sonnet-4-6", _SONNET, thinking=_BOTH, system_messages=False),
    Model(
        "claude-opus-4-5",
        _OPUS,
        4096,
        context=200_000,
        max_output=64_000,
        thinking=_MANUAL,
        prefill=True,
        system_messages=False,
    ),
    Model(
        "claude-sonnet-4-5",
        _SONNET,
        context=200_000,
        max_output=64_000,
        effort=None,
        thinking=_MANUAL,
        prefill=True,
        system_messages=False,
    ),
    Model(
        "claude-haiku-4-5",
        _HAIKU_45,
        4096,
        context=200_000,
        max_output=64_000,
        effort=None,
        thinking=_MANUAL,
        prefill=True,
        system_messages=False,
    ),
)


def _doubled(low: Price) -> Price:
    """OpenAI's prices above the cliff: input, read and write twice, output one and a half times."""
    half = Decimal("1.5")
    return Price(low.fresh * 2, low.read * 2, low.write_short * 2, low.write_long * 2, low.output * half)


def _openai(name: str, low: Price, *, effort: str = "medium", automatic: bool = False) -> Model:
    return Model(
        name,
        low,
        short=24 * 3600 if automatic else 30 * 60,
        long=24 * 3600 if automatic else 12 * 3600,
        context=1_050_000,
        cliff=272_000,
        above=_doubled(low),
        effort=effort,
        automatic=automatic,
    )


OPENAI = (
    _openai("gpt-6.2-sol", price("2", "0.1", "2.5", "5", "10")),
    _openai("gpt-6.1-sol", price("2", "0.1", "2.5", "5", "10")),
    _openai("gpt-6.1-terra", price("1", "0.05", "1.25", "2.5", "5")),
    _openai("gpt-6-luna", price("0.1", "0.01", "0.125", "0.25", "0.5")),
    _openai("gpt-5.6-sol", price("4", "0.4", "5", "10", "20")),
    _openai("gpt-5.5", price("5", "0.5", "0", "0", "30"), automatic=True),
)


@dataclass(frozen=True)
class Models:
    """A table of models by name."""

    rows: dict[str, Model] = field(default_factory=dict)

    @classmethod
    def of(cls, *models: Model) -> "Models":
        return cls({model.name: model for model in models})

    def find(self, name: object) -> Model | None:
        return self.rows.get(name) if isinstance(name, str) else None


ALL = Models.of(*ANTHROPIC, *OPENAI)
