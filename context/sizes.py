"""How long each prefix of a prompt is on one wire: in tokens, and in the positions that a provider's lookback counts.

Follows a prompt as it grows, in O(new blocks); any prefix is then looked up in O(1).
"""

from dataclasses import dataclass

from context.block import Block, Opaque
from context.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Anchor:
    """A prefix whose tokens a provider has billed: they are known, not estimated."""

    blocks: int
    tokens: int


class Sizes:
    """Sizes in one wire dialect. Estimates are in o200k_base tokens; `scale` turns them into the model's own."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._prompt = Prompt.empty()
        self._tokens = [0]  # by number of blocks
        self._positions = [0]

    def follow(self, prompt: Prompt) -> None:
        """Make this the sizes of `prompt`. O(blocks in which it differs from the prompt before)."""
        shared = prompt.common_prefix(self._prompt)
        del self._tokens[shared + 1 :], self._positions[shared + 1 :]
        for block in prompt.since(shared):
            tokens, positions = _size(block, self._dialect)
            self._tokens.append(self._tokens[-1] + tokens)
            self._positions.append(self._positions[-1] + positions)
        self._prompt = prompt

    def estimate(self, blocks: int) -> int:
        """o200k_base tokens of the first `blocks` blocks."""
        return self._tokens[blocks]

    def tokens(self, blocks: int, scale: float, anchor: Anchor | None = None) -> int:
        """The model's own tokens of the first `blocks` blocks, counted on from `anchor` where there is one."""
        if anchor is None or not self._tokens[anchor.blocks]:
            return round(self._tokens[blocks] * scale)
        if blocks >= anchor.blocks:
            return anchor.tokens + round((self._tokens[blocks] - self._tokens[anchor.blocks]) * scale)
        return round(self._tokens[blocks] * anchor.tokens / self._tokens[anchor.blocks])

    def positions(self, blocks: int) -> int:
        """Content parts (tools, texts, calls, results, opaque parts) in the first `blocks` blocks."""
        return self._positions[blocks]


def _size(block: Block, dialect: str) -> tuple[int, int]:
    sent = block.sent(dialect)
    if not sent:
        return 0, 0
    foreign = sum(part.cost for part in block.parts if isinstance(part, Opaque) and part.dialect != dialect)
    return block.tokens - foreign, len(sent)
