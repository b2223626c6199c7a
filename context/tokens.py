"""Token estimates: o200k_base counts, scaled per model by what the provider's own counts turn out to be.

Counts are of tiktoken's o200k_base vocabulary, taken from a package that carries the rank file (nothing is
downloaded). No provider's tokenizer but OpenAI's is public, so a model's `scale` turns a count into an estimate of
its tokens (reference: provider rules 5.1, 2026-12-01), and every response's usage corrects the scale.
"""

from dataclasses import dataclass
from typing import Final

import toktok

from context.block import Opaque, Part, Text, ToolCall, ToolResult, ToolSpec
from context.canonical import clean_text

_ENCODING: Final = "o200k_base"
_FRAME_TOKENS: Final = 4  # role, separators and ids that every wire format spends on a message or a tool block


def count_tokens(text: str) -> int:
    """Number of o200k_base tokens in `text`; special-token text counts as ordinary text."""
    return int(toktok.batch_count([clean_text(text)], _ENCODING)[0])


def count_parts(parts: tuple[Part, ...]) -> int:
    """Estimate for one message made of `parts`.

    Opaque bytes count by `Opaque.cost`; a text without a visible character is not sent and counts nothing.
    """
    return overhead(parts) + sum(count_tokens(text) for text in texts(parts))


def texts(parts: tuple[Part, ...]) -> list[str]:
    """What of `parts` a tokenizer has to count."""
    found = []
    for part in parts:
        match part:
            case Text(text) if text.strip():
                found.append(text)
            case ToolSpec(name, description, parameters):
                found.append(f"{name}\n{description}\n{parameters}")
            case ToolCall(_, name, arguments):
                found.append(f"{name}\n{arguments}")
            case ToolResult(_, text, _):
                found.append(text)
    return found


def overhead(parts: tuple[Part, ...]) -> int:
    """Tokens of `parts` that no tokenizer has to count."""
    frames = 1 + sum(isinstance(part, ToolSpec | ToolCall | ToolResult) for part in parts)
    return frames * _FRAME_TOKENS + sum(part.cost for part in parts if isinstance(part, Opaque))


@dataclass(frozen=True, slots=True)
class Scale:
    """Provider tokens per o200k_base token of one model; `samples` counts the responses that it was calibrated from."""

    factor: float
    samples: int = 0

    def estimate(self, tokens: int) -> int:
        return round(tokens * self.factor)

    def calibrated(self, estimated: int, billed: int) -> "Scale":
        """The scale after a response that billed `billed` input tokens for `estimated` o200k_base tokens.

        An exponential moving average; the first samples weigh more, because the built-in factor is only a family
        average. A sample that is off by more than three times either way says something about the request (images,
        server tools), not the tokenizer.
        """
        if estimated <= 0 or billed <= 0:
            return self
        observed = billed / estimated
        if not self.factor / 3 < observed < self.factor * 3:
            return self
        weight = max(0.2, 1 / (self.samples + 2))
        return Scale(self.factor + weight * (observed - self.factor), self.samples + 1)
