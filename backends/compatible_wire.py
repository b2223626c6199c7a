"""Blocks in the form of Chat Completions, and the request body that grows with the prompt.

Each block is rendered once, kept in the WireStore, and replayed from there byte for byte (rule R2). What is kept is a
line of JSON for each of the body's arrays that the block adds to: `{"tools":[…]}`, `{"system":[…]}` (the texts of the
system message, as parts) and `{"messages":[…]}`. Cache markers are spliced in when a body is taken and are never part
of what is kept.

Sources: openai 3.57.0, types/chat/chat_completion_*_param.py; for markers OpenRouter's and Model Studio's pages named
in endpoints.toml (in text parts only, at most 4, 1h before 5m).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backends.base import WireStore
from backends.compatible_endpoints import Endpoint
from context.block import Block, Layer, Opaque, Role, Text, ToolCall, ToolSpec
from context.breakpoints import Marker
from context.cache_rules import Ttl
from context.canonical import clean_text
from context.prompt import Prompt

MAX_MARKERS: Final = 4

_SECTIONS: Final = ("tools", "system", "messages")  # in the order of the prefix
_MARKER: Final[Mapping[Ttl, bytes]] = {
    "short": b',"cache_control":{"type":"ephemeral"}',
    "long": b',"cache_control":{"type":"ephemeral","ttl":"1h"}',
}
_TEXT_PART: Final = b'{"type":"text","text":"'
_LETTERS_AND_DIGITS: Final = re.compile(r"[A-Za-z0-9]+")
_EXTRA: Final = "extra_content"  # what Gemini hangs on a call (its thought signature), which must come back
_BETWEEN_TEXTS: Final = "\n\n"


def dialect_of(endpoint: Endpoint, model_id: str) -> str:
    """The wire form of one model on one endpoint. Models do not share it: reasoning is for the model that had it, and
    quirks differ between the families of an endpoint.
    """
    return f"chat:{endpoint.name}:{model_id}"


def render(block: Block, endpoint: Endpoint, dialect: str) -> bytes:
    """The wire form of a block; empty when nothing of it is for this API."""
    if block.role is Role.SYSTEM and block.layer in (Layer.SYSTEM, Layer.PROJECT):
        tools = [_tool(part) for part in block.parts if isinstance(part, ToolSpec)]
        return _lines(tools=tools, system=[_text_part(text) for text in _texts(block)])
    if block.role is Role.ASSISTANT:
        message = _assistant(block, endpoint, dialect)
        return _lines(messages=[message] if message else [])
    return _lines(messages=_results_and_text(block, endpoint))


def _lines(**arrays: list[dict[str, Any]]) -> bytes:
    return b"\n".join(_dumps({name: elements}) for name, elements in arrays.items() if elements)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
    return {"type": "function", "function": function}


def _texts(block: Block) -> list[str]:
    return [part.text for part in block.parts if isinstance(part, Text) and part.text.strip()]


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _results_and_text(block: Block, endpoint: Endpoint) -> list[dict[str, Any]]:
    """Results first, each a message of its own: they must follow their calls. `content` is last in every message, so
    that a marker has its place at the end of the bytes.
    """
    messages: list[dict[str, Any]] = []
    for result in block.tool_results:
        content: Any = [_text_part(result.text)] if endpoint.parts and result.text.strip() else result.text
        messages.append({"role": "tool", "tool_call_id": _call_id(result.call_id, endpoint), "content": content})
    if texts := _texts(block):
        content = [_text_part(text) for text in texts] if endpoint.parts else _BETWEEN_TEXTS.join(texts)
        messages.append({"role": "user", "content": content})
    return messages


def _assistant(block: Block, endpoint: Endpoint, dialect: str) -> dict[str, Any] | None:
    texts, calls = _texts(block), block.tool_calls
    if not texts and not calls:
        return None  # a reply of reasoning alone is refused nearly everywhere
    kept: dict[str, Any] = {}
    for part in block.parts:
        if isinstance(part, Opaque) and part.dialect == dialect:
            kept.update(json.loads(part.data))
    extras = kept.get(_EXTRA, {})
    message: dict[str, Any] = {"role": "assistant"}
    if endpoint.reasoning is not None and endpoint.reasoning in kept:
        message[endpoint.reasoning] = kept[endpoint.reasoning]
    elif endpoint.reasoning is not None and endpoint.reasoning_required and calls:
        message[endpoint.reasoning] = ""
    message["content"] = _BETWEEN_TEXTS.join(texts) if texts else None
    if calls:
        message["tool_calls"] = [_call(call, endpoint, extras.get(call.id)) for call in calls]
    return message


def _call(call: ToolCall, endpoint: Endpoint, extra: object) -> dict[str, Any]:
    wire: dict[str, Any] = {"id": _call_id(call.id, endpoint), "type": "function"}
    wire["function"] = {"name": call.name, "arguments": _arguments(call.arguments)}
    if extra is not None:
        wire[_EXTRA] = extra
    return wire


def _arguments(text: str) -> str:
    """The JSON text as the model wrote it. Servers parse it to fill in their template, and some fail with HTTP 500 on
    what is no JSON object.
    """
    if not text.strip():
        return "{}"
    try:
        whole = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        whole = False
    return text if whole else json.dumps({"INVALID_JSON": text}, ensure_ascii=False)


def _call_id(call_id: str, endpoint: Endpoint) -> str:
    """The id of a call, and of its result alike, in the form that the endpoint takes."""
    length = endpoint.call_id_length
    if length is None or (len(call_id) == length and _LETTERS_AND_DIGITS.fullmatch(call_id)):
        return call_id
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:length]


def _dumps(value: object) -> bytes:
    """JSON as the SDK writes it: no spaces, text as it is. It holds no line feed."""
    return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


class DamagedWireError(ValueError):
    """A stored wire form is not what `render` makes."""


@dataclass(frozen=True, slots=True, order=True)
class _Spot:
    """Where a marker goes: at `offset` of the array `section` (an index of _SECTIONS), inside a text part."""

    section: int
    offset: int


@dataclass(slots=True)
class RequestBody:
    """The body of the next request to one model. Another conversation only costs a rebuild."""

    wires: WireStore
    endpoint: Endpoint
    dialect: str
    _prompt: Prompt = field(default_factory=Prompt.empty)
    _arrays: list[bytearray] = field(default_factory=lambda: [bytearray() for _ in _SECTIONS])  # elements, joined
    _spots: list[_Spot | None] = field(default_factory=list)  # by block: where a marker behind it goes

    def extend_to(self, prompt: Prompt) -> None:
        """Make this the body of `prompt`. Raises DamagedWireError, and whatever the WireStore raises."""
        if not prompt.extends(self._prompt):
            self._prompt, self._spots = Prompt.empty(), []
            for array in self._arrays:
                array.clear()
        new = [_parse(self._wire(block)) for block in prompt.since(self._prompt.length)]
        for pieces in new:  # nothing can fail from here on, so a failure above leaves the body as it was
            self._append(pieces)
        self._prompt = prompt

    def take(self, head: Mapping[str, object], markers: Iterable[Marker], tail: Mapping[str, object]) -> bytes:
        """The JSON body: `head`, tools and messages with `markers` in place, `tail`.

        Neither may be empty. Whatever differs between two requests of a conversation belongs in `tail`, so that the
        bytes before it are a prefix of the next body, markers aside. Raises ValueError for a marker behind the end of
        the prompt, or more markers than may be sent.
        """
        tools, system, messages = self._marked(self._placed(markers))
        pieces = [_dumps(head)[:-1]]
        if tools:
            pieces.append(b',"tools":[' + tools + b"]")
        if system:
            content = b"[" + system + b"]" if self.endpoint.parts else _as_string(system)
            system = b'{"role":"system","content":' + content + (b"}," if messages else b"}")
        pieces += [b',"messages":[', system, messages, b"],", _dumps(tail)[1:]]
        return b"".join(pieces)

    def _wire(self, block: Block) -> bytes:
        wire = self.wires.get(block.digest, self.dialect)
        if wire is None:
            wire = render(block, self.endpoint, self.dialect)
            self.wires.put(block.digest, self.dialect, wire)
        return wire

    def _append(self, pieces: "list[_Piece]") -> None:
        spot = self._spots[-1] if self._spots else None
        for piece in pieces:
            array = self._arrays[piece.section]
            if array:
                array += b","
            array += piece.data
            if piece.mark is not None and self.endpoint.parts:
                spot = _Spot(piece.section, len(array) - piece.mark)
        self._spots.append(spot)

    def _placed(self, markers: Iterable[Marker]) -> list[tuple[_Spot, Ttl]]:
        """Markers by place, in wire order, made legal: one per place, and nothing long behind something short."""
        found: dict[_Spot, Ttl] = {}
        for marker in markers:
            if not 0 < marker.blocks <= len(self._spots):
                raise ValueError(f"a marker behind block {marker.blocks} of {len(self._spots)}")
            spot = self._spots[marker.blocks - 1]
            if spot is not None and found.get(spot) != "long":
                found[spot] = marker.ttl
        if len(found) > MAX_MARKERS:
            raise ValueError(f"{len(found)} cache markers, of at most {MAX_MARKERS}")
        last_long = max((spot for spot, ttl in found.items() if ttl == "long"), default=None)
        placed: list[tuple[_Spot, Ttl]] = []
        for spot in sorted(found):
            placed.append((spot, "long" if last_long is not None and spot <= last_long else "short"))
        return placed

    def _marked(self, placed: list[tuple[_Spot, Ttl]]) -> list[bytes]:
        arrays = []
        for section, array in enumerate(self._arrays):
            pieces: list[bytes] = []
            start = 0
            for spot, ttl in placed:
                if spot.section == section:
                    pieces += [bytes(array[start : spot.offset]), _MARKER[ttl]]
                    start = spot.offset
            arrays.append(b"".join([*pieces, array[start:]]))
        return arrays


@dataclass(frozen=True, slots=True)
class _Piece:
    """Elements to append to an array. `mark`: where a marker fits, in bytes from the end; None: nowhere."""

    section: int
    data: bytes
    mark: int | None


def _parse(wire: bytes) -> list[_Piece]:
    """Take a wire form apart, so that its bytes can be appended and marked without being written anew."""
    pieces = []
    for line in wire.split(b"\n") if wire else []:
        try:
            ((name, elements),) = json.loads(line).items()
            section, opening = _SECTIONS.index(name), f'{{"{name}":['.encode()
            if not (elements and isinstance(elements, list) and line.startswith(opening) and line.endswith(b"]}")):
                raise ValueError(name)
        except (ValueError, AttributeError, RecursionError) as error:
            raise DamagedWireError(f"not a block in Chat Completions' form: {line[:40]!r}…") from error
        pieces.append(_Piece(section, line[len(opening) : -2], _mark(name, elements[-1])))
    return pieces


def _mark(section: str, last: Any) -> int | None:
    """Markers go into text parts: the last part of the system message, or of a message that ends with its content."""
    if section == "system":
        return 1
    content = last.get("content") if section == "messages" and isinstance(last, dict) else None
    return len("}]}") if isinstance(content, list) and list(last)[-1] == "content" else None


def _as_string(parts: bytes) -> bytes:
    """Text parts in one JSON string."""
    return _dumps(_BETWEEN_TEXTS.join(part["text"] for part in json.loads(b"[" + parts + b"]")))
