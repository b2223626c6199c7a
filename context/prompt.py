"""Prompt: a persistent, append-only sequence of blocks with a running digest.

A prompt is a node that points to the prompt it extends. Appending never changes what was there, forks share their
common part, and comparing two prompts costs O(blocks in which they differ in length), never O(history).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, Self

from context.block import Block, Layer
from context.canonical import digest

_ORDER: Final = {Layer.SYSTEM: 0, Layer.PROJECT: 1, Layer.HISTORY: 2, Layer.COMMAND: 2}


class LayerOrderError(ValueError):
    """A block was appended behind a less stable layer; it would have to be sent again whenever that layer grows."""


class Prompt:
    """`length` in blocks, `digest` over all blocks in order.

    Start from `Prompt.empty()`.
    """

    __slots__ = ("_heads", "_tokens", "block", "digest", "length", "parent")

    def __init__(self, parent: "Prompt | None", block: Block | None) -> None:
        self.parent: Final = parent
        self.block: Final = block
        if parent is None or block is None:
            self.length, self.digest = 0, digest(b"empty prompt")
        else:
            self.length = parent.length + 1
            self.digest = digest(parent.digest.encode(), block.digest.encode())
        self._tokens: int | None = None
        # The prefixes that end with SYSTEM and with PROJECT, carried along so that finding them is O(1) in a prompt
        # of any length.
        system, project = parent._heads if parent is not None else (self, self)
        if block is not None and block.layer is Layer.SYSTEM:
            system = project = self
        elif block is not None and block.layer is Layer.PROJECT:
            project = self
        self._heads: Final[tuple[Prompt, Prompt]] = (system, project)

    @classmethod
    def empty(cls) -> Self:
        return cls(None, None)

    def append(self, block: Block) -> "Prompt":
        """This prompt with one block more.

        Raises LayerOrderError when `block` is of a more stable layer than the last one.
        """
        if self.block is not None and _ORDER[block.layer] < _ORDER[self.block.layer]:
            raise LayerOrderError(f"a {block.layer} block cannot follow a {self.block.layer} block")
        return Prompt(self, block)

    def extend(self, blocks: Iterable[Block]) -> "Prompt":
        prompt = self
        for block in blocks:
            prompt = prompt.append(block)
        return prompt

    def at(self, length: int) -> "Prompt":
        """The prefix of `length` blocks. O(blocks behind it). Raises IndexError when there is none."""
        if not 0 <= length <= self.length:
            raise IndexError(f"no prefix of {length} blocks in a prompt of {self.length}")
        prompt = self
        while prompt.length > length and prompt.parent is not None:
            prompt = prompt.parent
        return prompt

    def since(self, length: int) -> list[Block]:
        """The blocks behind the first `length`, in order. O(number of them)."""
        blocks: list[Block] = []
        prompt = self
        while prompt.length > length and prompt.parent is not None and prompt.block is not None:
            blocks.append(prompt.block)
            prompt = prompt.parent
        blocks.reverse()
        return blocks

    def common_prefix(self, other: "Prompt") -> int:
        """How many leading blocks both share."""
        length = min(self.length, other.length)
        mine, theirs = self.at(length), other.at(length)
        while mine.digest != theirs.digest and mine.parent is not None and theirs.parent is not None:
            mine, theirs = mine.parent, theirs.parent
        return mine.length

    def extends(self, other: "Prompt") -> bool:
        """Whether `other` is a prefix of this prompt (equal prompts extend each other)."""
        return self.length >= other.length and self.at(other.length).digest == other.digest

    def layer_at(self, index: int, sent: int) -> Layer:
        """The layer of block `index` when the last request carried `sent` blocks:

        what was sent before is HISTORY, what is new COMMAND.
        """
        layer = self.at(index + 1).since(index)[0].layer
        if layer in (Layer.SYSTEM, Layer.PROJECT):
            return layer
        return Layer.HISTORY if index < sent else Layer.COMMAND

    @property
    def tokens(self) -> int:
        """Sum of the blocks' estimates. Each block is counted at the first look: O(blocks added since the last one)."""
        uncounted: list[Prompt] = []
        prompt = self
        while prompt._tokens is None and prompt.parent is not None:
            uncounted.append(prompt)
            prompt = prompt.parent
        total = prompt._tokens or 0
        for node in reversed(uncounted):
            total += node.block.tokens if node.block is not None else 0
            node._tokens = total
        return total

    def head(self, layer: Literal[Layer.SYSTEM, Layer.PROJECT]) -> "Prompt":
        """The prefix that ends with `layer`: its blocks and those of more stable layers. O(1)."""
        return self._heads[0 if layer is Layer.SYSTEM else 1]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.since(0))

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<Prompt {self.length} blocks, {self.digest[:12]}>"
