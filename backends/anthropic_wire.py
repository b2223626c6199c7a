"""Blocks in the form of Anthropic's Messages API, and the request body that grows with the prompt.

Sources: anthropic 2.14.0, types/message_create_params.py and types/*_block_param.py; prompt-caching documentation as
of 2026-08-22 (at most 4 markers, 1h before 5m, none on thinking blocks).
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, assert_never

from backends.base import WireStore
from backends.growing_body import DamagedWireError, GrowingBody, Piece, arrays_of
from context.block import Block, Layer, Opaque, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import Marker
from context.cache_rules import Ttl
from context.canonical import clean_text
from context.prompt import Prompt

_SECTIONS: Final = ("tools", "system", "messages")  # in the order in which the provider hashes the prefix
_MARKABLE: Final = frozenset({"text", "tool_use", "tool_result", "image", "document"})
_MARKER: Final[Mapping[Ttl, bytes]] = {
    "short": b',"cache_control":{"type":"ephemeral"}',
    "long": b',"cache_control":{"type":"ephemeral","ttl":"1h"}',
}
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")


def dialect_of(model_id: str) -> str:
    """The wire form of one Claude model. Models do not share it: what one has thought is not for another to read, and
    with preserved thinking its signature is bound to that model's own prefix (provider rules 1.7, 2026-12-01).
    """
    return f"anthropic:{model_id}"


def render(block: Block, dialect: str) -> bytes:
    """The wire form of a block in `dialect`; empty when nothing of it is for this API.

    A SYSTEM-role block of SYSTEM or PROJECT becomes `{"tools":[…],"system":[…]}` (either may be absent), any other one
    message `{"role":…,"content":[…]}`.
    """
    if block.role is Role.SYSTEM and block.layer in (Layer.SYSTEM, Layer.PROJECT):
        return _render_system(block, dialect)
    content = [wire for part in block.parts if (wire := _render_part(part, dialect)) is not None]
    if not content:
        return b""
    role = b"assistant" if block.role is Role.ASSISTANT else b"user"
    return b'{"role":"' + role + b'","content":[' + b",".join(content) + b"]}"


def _render_system(block: Block, dialect: str) -> bytes:
    tools = [_render_tool(part) for part in block.parts if isinstance(part, ToolSpec)]
    texts = [
        wire for part in block.parts if isinstance(part, Text) and (wire := _render_part(part, dialect)) is not None
    ]
    arrays = [
        b'"' + name + b'":[' + b",".join(elements) + b"]"
        for name, elements in ((b"tools", tools), (b"system", texts))
        if elements
    ]
    return b"{" + b",".join(arrays) + b"}" if arrays else b""


def _render_tool(spec: ToolSpec) -> bytes:
    return _dumps({"name": spec.name, "description": spec.description, "input_schema": spec.schema})


def _render_part(part: Part, mine: str) -> bytes | None:
    """The content part, or None for what this API must not be sent.

    Text without a visible character is refused by the API, wherever it stands; foreign opaque bytes mean nothing to it.
    """
    match part:
        case Text(text):
            return _dumps({"type": "text", "text": text}) if text.strip() else None
        case ToolCall(call_id, name, arguments):
            safe = _NOT_IN_NAMES.sub("_", name)[:128] or "_"
            return _dumps({"type": "tool_use", "id": _safe_id(call_id), "name": safe, "input": tool_input(arguments)})
        case ToolResult(call_id, text, is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _safe_id(call_id)}
            if text:
                result["content"] = text
            if is_error:
                result["is_error"] = True
            return _dumps(result)
        case Opaque(dialect, data):
            return data if dialect == mine else None
        case ToolSpec():
            return None
        case _:
            assert_never(part)


def tool_input(arguments: str) -> dict[str, Any]:
    """The arguments of a call as the object that the API wants, keys in the model's order.

    What is no JSON object goes back as `{"INVALID_JSON": …}`, as the fine-grained tool streaming documentation asks.
    """
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _safe_id(call_id: str) -> str:
    """Ids of other providers may hold characters that this API refuses; a call and its result change alike."""
    return _NOT_IN_NAMES.sub("_", call_id) or "_"


def _dumps(value: object) -> bytes:
    """JSON as the SDK writes it: no spaces, text as it is."""
    return clean_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).encode()


class RequestBody:
    """The body of the next request to one model. Another conversation only costs a rebuild."""

    def __init__(self, wires: WireStore, dialect: str) -> None:
        self._growing = GrowingBody(
            wires, dialect, len(_SECTIONS), lambda block: render(block, dialect), _parse, _MARKER
        )

    def extend_to(self, prompt: Prompt) -> None:
        """Make this the body of `prompt`. Raises DamagedWireError, and whatever the WireStore raises."""
        self._growing.extend_to(prompt)

    def take(self, head: Mapping[str, object], markers: Iterable[Marker], tail: Mapping[str, object]) -> bytes:
        """The JSON body: `head`, the three arrays with `markers` in place, `tail`.

        `head` must not be empty. Whatever differs between two requests of a conversation belongs in `tail`, so that
        the bytes before it are a prefix of the next body, markers aside. Raises as `GrowingBody.marked` does.
        """
        pieces: list[bytes | bytearray] = [_dumps(head)[:-1]]
        for name, elements in zip(_SECTIONS, self._growing.marked(markers), strict=True):
            if elements:
                pieces += [b',"' + name.encode() + b'":[', *elements, b"]"]
        pieces.append(b"," + _dumps(tail)[1:] if tail else b"}")
        return b"".join(pieces)


def _parse(wire: bytes) -> list[Piece]:
    """Take a wire form apart, so that its bytes can be appended and marked without being written anew."""
    if not wire:
        return []
    try:
        text = wire.decode()
        arrays = arrays_of(text)
    except (ValueError, IndexError, RecursionError) as error:
        raise DamagedWireError(f"not a block in Anthropic's form: {wire[:40]!r}…") from error
    if "content" in arrays:
        markable = [end for _, end, value in arrays["content"] if value.get("type") in _MARKABLE]
        return [Piece(2, wire, _byte_offset(text, 0, markable[-1]) if markable else None)]
    pieces = []
    for section, name in enumerate(_SECTIONS[:2]):
        if spans := arrays.get(name):
            start, end = spans[0][0], spans[-1][1]
            pieces.append(Piece(section, text[start:end].encode(), _byte_offset(text, start, end)))
    return pieces


def _byte_offset(text: str, start: int, end: int) -> int:
    """Bytes between character `start` and the last character before `end`."""
    return len(text[start : end - 1].encode())
