"""What OpenAI's models refuse and do besides caching: the table of prices and lifetimes is `models`.

Sources: provider rules 2.1, 2.2 and 4.3 as of 2026-12-01 (openai SDK 3.57.0; OpenAI's model pages).
"""

from dataclasses import dataclass
from typing import Final

from .models import Model, Models, price

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True)
class Traits:
    """`binding`: encrypted reasoning counts only for its own model and behind the prefix that it was written for.

    `efforts`: the values of `reasoning.effort` that are taken. `chat_tools`: whether Chat Completions takes tools.
    `instructions_last`: `instructions` stand behind the input, uncached. `max_input` in tokens.
    """

    binding: bool = False
    efforts: tuple[str, ...] = EFFORTS
    chat_tools: bool = True
    instructions_last: bool = False
    max_input: int = 922_000


_OLDER: Final = Traits()
_TRAITS: Final = {
    "gpt-6.2": Traits(binding=True, efforts=EFFORTS[2:], chat_tools=False, instructions_last=True),
}


def traits(name: str) -> Traits:
    """The traits of a model by the family that its name begins with."""
    return next((known for family, known in _TRAITS.items() if name.startswith(family)), _OLDER)


DEEPSEEK: Final = Models.of(  # off-peak prices
    Model("deepseek-flash", price("0.15", "0.003", "0", "0", "0.6"), max_output=384_000, automatic=True),
    Model("deepseek-v4-pro", price("0.66", "0.022", "0", "0", "1.98"), max_output=384_000, automatic=True),
)
