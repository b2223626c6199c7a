"""Prompts as tokens. A block is rendered once in its life, and what was sampled is sent back as it was sampled.

A prompt is the contents of its blocks joined by the junctions of the chat template (`chat_template`). Contents are kept
in the wire store by the block's digest; junctions are the same token lists wherever they stand. So the tokens of a
prompt are the beginning of the tokens of every prompt that extends it (rule R1), and building the next request costs
only its new blocks.

Order: system text with the tool list, the worked examples as turns, then PROJECT at the head of the first user message,
so that all repositories share the same SYSTEM tokens.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from backends.base import WireStore
from backends.llama.chat_template import Junctions
from backends.llama.tool_grammar import REPLY_START, answer_text, reply_text, tool_list
from context.block import Block, Layer, Opaque, Role, Text, ToolResult, ToolSpec
from context.prompt import Prompt

_REMEMBERED: Final = 8  # prompts whose tokens are kept: the live one and what it may be forked from
_GO_ON: Final = "Go on."
_NO_REPLY: Final = "(interrupted)"

Tail = Literal["start", "system", "user", "reply"]  # what the tokens so far end with


class Tokenizer(Protocol):
    """What is needed of `Weights`."""

    @property
    def bos(self) -> int | None: ...

    def tokenize(self, text: str, *, special: bool = False) -> "array[int]": ...

    def piece(self, token: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Wire:
    tokens: "array[int]"  # never changed once it is remembered
    tail: Tail


class PromptTokens:
    """Turns prompts into tokens for one model file. `dialect` names it in the wire store and in opaque parts."""

    def __init__(self, tokenizer: Tokenizer, junctions: Junctions, store: WireStore, dialect: str) -> None:
        self._tokenizer: Final = tokenizer
        self._junctions: Final = junctions
        self._store: Final = store
        self._dialect: Final = dialect
        self._remembered: Final[OrderedDict[str, _Wire]] = OrderedDict()
        # Vocabularies of the older kind put a space in front of every text: then a junction brings none of its own.
        self._adds_space: Final = tokenizer.piece(tokenizer.tokenize("a")[0]).startswith(b" ")
        self._start: Final = tokenizer.tokenize(REPLY_START)
        self._merged: Final = self._junction(junctions.merged)
        self._system_user: Final = self._junction(junctions.system_user)
        self._reply_user: Final = self._junction(junctions.reply_user)
        self._ask: Final = self._junction(junctions.user_reply) + self._start

    @property
    def given(self) -> "array[int]":
        """The tokens of a reply's beginning that the model is given; they stand at the end of each request."""
        return self._start

    def request(self, prompt: Prompt, *, ask: bool = True) -> "array[int]":
        """The tokens to evaluate for `prompt`. O(new blocks), but for one copy of the list.

        With `ask` they end where the model's reply begins, without it with the last block's content.
        """
        wire = self._of(prompt)
        return wire.tokens + self._asking(wire.tail) if ask else wire.tokens[:]

    def plain(self, text: str) -> "array[int]":
        """The tokens of one message of the user, up to where the reply begins, in whatever form the model likes."""
        ask = self._ask[: len(self._ask) - len(self._start)]
        return self._opening(self._junctions.open_user) + self._tokenizer.tokenize(text) + ask

    def marks(self, prompt: Prompt) -> list[int]:
        """Tokens of the prompt's heads (SYSTEM, and PROJECT behind it): where other prompts may go another way. In
        order, each once.
        """
        heads = (prompt.head(Layer.SYSTEM), prompt.head(Layer.PROJECT))
        return sorted({len(self._of(head).tokens) for head in heads} - {0})

    def sent(self, prompt: Prompt) -> None:
        """Note that a request ended with `prompt`: should its reply never come, the next user message must follow the
        tokens that asked for it.
        """
        if prompt.block is not None and self._can_be_left_alone(prompt.block):
            self._store.put(prompt.block.digest, self._sent_mark(prompt), b"1")

    def _of(self, prompt: Prompt) -> _Wire:
        new: list[Prompt] = []
        node = prompt
        while node.parent is not None and node.digest not in self._remembered:
            new.append(node)
            node = node.parent
        wire = self._remembered.get(node.digest, _Wire(array("i"), "start"))
        if new:
            tokens, tail = wire.tokens[:], wire.tail
            for node in reversed(new):
                tail = self._append(tokens, tail, node)
            wire = _Wire(tokens, tail)
        self._remembered[prompt.digest] = wire
        self._remembered.move_to_end(prompt.digest)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return wire

    def _append(self, tokens: "array[int]", tail: Tail, node: Prompt) -> Tail:
        """Put the node's block behind `tokens`, which end with `tail`."""
        block, parent = node.block, node.parent
        if block is None or parent is None:
            raise ValueError("the empty prompt has no block")
        if tail == "start" and block.layer is Layer.SYSTEM and block.role is Role.SYSTEM:
            tokens.extend(self._opening(self._junctions.open_system))
            tokens.extend(self._content(block))
            return "system"
        if block.role is Role.ASSISTANT:
            tokens.extend(self._asking(tail))
            tokens.extend(self._content(block))
            return "reply"
        if self._was_left_alone(parent):
            tokens.extend(self._asking(tail) + self._rest(answer_text(_NO_REPLY)))
            tail = "reply"
        tokens.extend(self._to_user(tail))
        tokens.extend(self._content(block))
        return "user"

    def _asking(self, tail: Tail) -> "array[int]":
        """What asks for a reply behind the tokens so far, up to the reply's given beginning."""
        if tail == "user":
            return self._ask
        return self._to_user(tail) + self._tokenizer.tokenize(_GO_ON) + self._ask

    def _to_user(self, tail: Tail) -> "array[int]":
        """What stands between the tokens so far and a text of the user."""
        match tail:
            case "start":
                return self._opening(self._junctions.open_user)
            case "system":
                return self._system_user
            case "user":
                return self._merged
            case "reply":
                return self._reply_user

    def _content(self, block: Block) -> "array[int]":
        """The block's own tokens, from the reply it was sampled in, the store, or rendered now."""
        for part in block.parts:
            if isinstance(part, Opaque) and part.dialect == self._dialect:
                return unpack(part.data)
        stored = self._store.get(block.digest, self._dialect)
        if stored is not None:
            return unpack(stored)
        tokens = self._rest(_reply(block)) if block.role is Role.ASSISTANT else self._tokenizer.tokenize(_text(block))
        self._store.put(block.digest, self._dialect, pack(tokens))
        return tokens

    def _rest(self, reply: str) -> "array[int]":
        """The tokens of a reply behind its given beginning."""
        tokens = self._tokenizer.tokenize(reply)
        if tokens[: len(self._start)] == self._start:
            return tokens[len(self._start) :]
        return self._tokenizer.tokenize(reply.removeprefix(REPLY_START))

    def _junction(self, text: str) -> "array[int]":
        return self._tokenizer.tokenize(text.removesuffix(" ") if self._adds_space else text, special=True)

    def _opening(self, text: str) -> "array[int]":
        tokens, bos = self._junction(text), self._tokenizer.bos
        return tokens if bos is None or tokens[:1] == array("i", [bos]) else array("i", [bos]) + tokens

    @staticmethod
    def _can_be_left_alone(block: Block) -> bool:
        return block.layer in (Layer.HISTORY, Layer.COMMAND)

    def _was_left_alone(self, prompt: Prompt) -> bool:
        block = prompt.block
        if block is None or not self._can_be_left_alone(block):
            return False
        return self._store.get(block.digest, self._sent_mark(prompt)) is not None

    def _sent_mark(self, prompt: Prompt) -> str:
        return f"{self._dialect}:sent:{prompt.digest[:16]}"


def pack(tokens: Sequence[int]) -> bytes:
    """Token ids as 32-bit integers in the byte order of the machine, which a ledger does not leave."""
    return array("i", tokens).tobytes()


def unpack(data: bytes) -> "array[int]":
    """Inverse of `pack`. Raises ValueError for bytes that are no token list."""
    tokens = array("i")
    tokens.frombytes(data)
    return tokens


def _text(block: Block) -> str:
    """What a message of the user or of the system says."""
    texts: list[str] = []
    tools = [part for part in block.parts if isinstance(part, ToolSpec)]
    for part in block.parts:
        match part:
            case Text(text):
                texts.append(text.strip("\n") if tools else text)
            case ToolResult(_, text, is_error):
                texts.append(f"{'Error' if is_error else 'Result'}:\n{text}")
            case _:
                pass  # calls and opaque bytes are no matter of these roles; tools come below
    if tools:
        texts.append(tool_list(tools))
    return "\n\n".join(texts)


def _reply(block: Block) -> str:
    """A reply that this model did not write (a worked example, another provider's) in the form in which it would have.

    Calls come first, so that the reply begins as all do.
    """
    replies = [reply_text(call) for call in block.tool_calls]
    if block.text or not replies:
        replies.append(answer_text(block.text))
    return "\n".join(replies)
