"""Blocks in the form of Chat Completions, and the request body that grows with the prompt.

What is kept of a block is a line of JSON for each of the body's arrays that the block adds to: `{"tools":[…]}`,
`{"system":[…]}` (the texts of the system message, as parts) and `{"messages":[…]}`.

Sources: openai 3.57.0, types/chat/chat_completion_*_param.py; for markers OpenRouter's and Model Studio's pages named
in endpoints.toml (in text parts only, at most 4, 1h before 5m).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from backends.base import WireStore
from backends.compatible_endpoints import Endpoint
from backends.growing_body import DamagedWireError, GrowingBody, Piece
from context.block import Block, Layer, Opaque, Role, Text, ToolCall, ToolSpec
from context.breakpoints import Marker
from context.cache_rules import Ttl
from context.canonical import clean_text
from context.prompt import Prompt

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


class RequestBody:
    """The body of the next request to one model. Another conversation only costs a rebuild."""

    def __init__(self, wires: WireStore, endpoint: Endpoint, dialect: str) -> None:
        self._endpoint = endpoint
        self._growing = GrowingBody(
            *(wires, dialect, len(_SECTIONS)),
            lambda block: render(block, endpoint, dialect),
            lambda wire: _parse(wire, markable=endpoint.parts),
            _MARKER,
        )

    def extend_to(self, prompt: Prompt) -> None:
        """Make this the body of `prompt`. Raises DamagedWireError, and whatever the WireStore raises."""
        self._growing.extend_to(prompt)

    def take(self, head: Mapping[str, object], markers: Iterable[Marker], tail: Mapping[str, object]) -> bytes:
        """The JSON body: `head`, tools and messages with `markers` in place, `tail`.

        Neither may be empty. Whatever differs between two requests of a conversation belongs in `tail`, so that the
        bytes before it are a prefix of the next body, markers aside. Raises as `GrowingBody.marked` does.
        """
        tools, system, messages = self._growing.marked(markers)
        pieces: list[bytes | bytearray] = [_dumps(head)[:-1]]
        if tools:
            pieces += [b',"tools":[', *tools, b"]"]
        pieces.append(b',"messages":[')
        if system:
            content = [b"[", *system, b"]"] if self._endpoint.parts else [_as_string(b"".join(system))]
            pieces += [b'{"role":"system","content":', *content, b"}," if messages else b"}"]
        pieces += [*messages, b"],", _dumps(tail)[1:]]
        return b"".join(pieces)


def _parse(wire: bytes, *, markable: bool) -> list[Piece]:
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
        data = line[len(opening) : -2]
        behind = _mark(name, elements[-1]) if markable else None
        pieces.append(Piece(section, data, None if behind is None else len(data) - behind))
    return pieces


def _mark(section: str, last: Any) -> int | None:
    """Bytes between a marker's place and the end.

    Markers go into text parts: the last part of the system message, or of a message that ends with its content.
    """
    if section == "system":
        return 1
    content = last.get("content") if section == "messages" and isinstance(last, dict) else None
    return len("}]}") if isinstance(content, list) and list(last)[-1] == "content" else None


def _as_string(parts: bytes) -> bytes:
    """Text parts in one JSON string."""
    return _dumps(_BETWEEN_TEXTS.join(part["text"] for part in json.loads(b"[" + parts + b"]")))
