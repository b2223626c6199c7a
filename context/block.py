"""Block: the smallest unit of a prompt, one message's worth of content, immutable and named by its digest."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, assert_never

from context.canonical import canonical_json, clean_text, digest


class Layer(StrEnum):
    """Lifetimes, most stable first.

    A COMMAND block counts as HISTORY from the second request that carries it (`Prompt.layer_at`).
    """

    SYSTEM = "system"
    PROJECT = "project"
    HISTORY = "history"
    COMMAND = "command"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it.

    `parameters` is a JSON Schema of type object, as JSON text in the order in which it is sent.
    """

    name: str
    description: str
    parameters: str

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = json.loads(self.parameters)
        return schema


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the JSON text exactly as the model wrote it:

    key order and spacing are part of the cached prefix.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes that only one wire dialect understands (signed thinking, sampled token ids).

    Sent back unmodified; others do not see it. `tokens`: what it costs as input, if that is known (0 for what only
    wraps a text or a call beside it); None: estimated from its length.
    """

    dialect: str
    data: bytes
    tokens: int | None = None

    @property
    def cost(self) -> int:
        """Tokens as input. Unknown bytes count four to a token."""
        return len(self.data) // 4 if self.tokens is None else self.tokens


Part = Text | ToolSpec | ToolCall | ToolResult | Opaque


@dataclass(frozen=True)
class Block:
    """One message of a prompt. Two blocks are equal when their digests are.

    `counted` is the token count if it is known already; it is not part of the block's identity.
    """

    layer: Layer
    role: Role
    parts: tuple[Part, ...]
    counted: int | None = None

    @classmethod
    def make(cls, layer: Layer, role: Role, parts: Iterable[Part], counted: int | None = None) -> "Block":
        """A block with its text made safe for every wire format (no lone surrogates)."""
        return cls(layer, role, tuple(_clean(part) for part in parts), counted)

    @cached_property
    def tokens(self) -> int:
        """Estimate in o200k_base tokens, counted at the first look and once in the block's life (`context.tokens`).

        Not when the block is made: the tokenizer takes a third of a second to load, and another process can count
        meanwhile (`learn_tokens`).
        """
        from context.tokens import count_parts

        return count_parts(self.parts) if self.counted is None else self.counted

    def learn_tokens(self, tokens: int) -> None:
        """Set `tokens`, counted elsewhere by the same rule."""
        self.__dict__["tokens"] = tokens

    @property
    def known_tokens(self) -> int | None:
        """`tokens` if they have been counted."""
        known: int | None = self.__dict__.get("tokens", self.counted)
        return known

    def sent(self, dialect: str) -> tuple[Part, ...]:
        """The parts that go over the wire in `dialect`: no text without a visible character, no foreign opaque bytes.

        A block of which nothing is sent does not exist for the provider.
        """
        return tuple(
            part
            for part in self.parts
            if not (isinstance(part, Opaque) and part.dialect != dialect)
            and not (isinstance(part, Text) and not part.text.strip())
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 hex of the block's canonical JSON."""
        return digest(canonical_json(self.to_json()).encode())

    def to_json(self) -> dict[str, Any]:
        """The stored form, without the token estimate."""
        return {
            "layer": self.layer.value,
            "role": self.role.value,
            "parts": [_part_to_json(part) for part in self.parts],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], counted: int | None) -> "Block":
        """Inverse of `to_json`. Raises KeyError or ValueError for anything else."""
        parts = tuple(_part_from_json(part) for part in data["parts"])
        return cls(Layer(data["layer"]), Role(data["role"]), parts, counted)

    @property
    def text(self) -> str:
        """The visible text of the block, parts joined by a newline."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _clean(part: Part) -> Part:
    match part:
        case Text(text):
            return Text(clean_text(text))
        case ToolCall(call_id, name, arguments):
            return ToolCall(call_id, clean_text(name), clean_text(arguments))
        case ToolResult(call_id, text, is_error):
            return ToolResult(call_id, clean_text(text), is_error)
        case ToolSpec() | Opaque():
            return part
        case _:
            assert_never(part)


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolSpec(name, description, parameters):
            return {"type": "tool", "name": name, "description": description, "parameters": parameters}
        case ToolCall(call_id, name, arguments):
            return {"type": "call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResult(call_id, text, is_error):
            return {"type": "result", "call": call_id, "text": text, "error": is_error}
        case Opaque(dialect, data, tokens):
            stored = {"type": "opaque", "dialect": dialect, "data": base64.b64encode(data).decode()}
            return stored if tokens is None else {**stored, "tokens": tokens}
        case _:
            assert_never(part)


def _part_from_json(data: Mapping[str, Any]) -> Part:
    match data["type"]:
        case "text":
            return Text(data["text"])
        case "tool":
            return ToolSpec(data["name"], data["description"], data["parameters"])
        case "call":
            return ToolCall(data["id"], data["name"], data["arguments"])
        case "result":
            return ToolResult(data["call"], data["text"], data["error"])
        case "opaque":
            return Opaque(data["dialect"], base64.b64decode(data["data"]), data.get("tokens"))
        case other:
            raise ValueError(f"unknown part type {other!r}")
