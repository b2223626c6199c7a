"""Blocks in the form of OpenAI's Responses API, and the request body that grows with the prompt.

SYSTEM and PROJECT are developer messages at the head of `input`: `instructions` is a plain string, which cannot carry
a breakpoint.

What the model said goes back as the items that it came in, with their ids and `phase`. Such an item is kept as an
Opaque whose texts and arguments are left out (`null`), followed by the Text or ToolCall parts that fill the gaps: so
the words are kept once, the screen, the tools and other providers read them, and the item is whole again on the wire.

Sources: openai 3.57.0, types/responses/response_input_item_param.py, response_input_text_param.py (breakpoints),
response_output_message_param.py (`phase`); prompt-caching guide as quoted there (at most 4 writes a request).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from backends.base import WireStore
from backends.growing_body import DamagedWireError, GrowingBody, Piece, arrays_of
from context.block import Block, Opaque, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import Marker
from context.cache_rules import Ttl
from context.prompt import Prompt

_SECTIONS: Final = ("tools", "input")  # in the order of the prefix
_BREAKPOINT: Final[Mapping[Ttl, bytes]] = {
    "short": b',"prompt_cache_breakpoint":{"mode":"explicit"}',
    "long": b',"prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}',
}
# Items that can carry a breakpoint are written with their last text at the very end.
_MARKABLE_END: Final = b'"}]}'
_GAPS: Final = {"output_text": "text", "refusal": "refusal"}  # what is left out of a message's contents
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64  # of tools and of call ids


def dialect_of(model_id: str) -> str:
    """The wire form of one model. Encrypted reasoning is for the model alone that wrote it (provider rules 2.2)."""
    return f"openai:{model_id}"


def wrapped(item: Mapping[str, Any], dialect: str) -> tuple[Part, ...]:
    """The parts to keep for an output item of the model, in the order in which `render` puts them together again.

    Nothing for a message without a visible character. An item that is neither message nor call is kept whole.
    """
    match item.get("type"):
        case "message":
            return _wrapped_message(item, dialect)
        case "function_call":
            call = ToolCall(str(item["call_id"]), str(item["name"]), str(item["arguments"]))
            return _wrapper({**item, "arguments": None}, dialect), call
        case _:
            return (Opaque(dialect, _dumps(item)),)


def _wrapped_message(item: Mapping[str, Any], dialect: str) -> tuple[Part, ...]:
    contents, texts = [], []
    for content in item.get("content") or []:
        name = _GAPS.get(content.get("type"))
        if name is not None and isinstance(text := content.get(name), str) and text.strip():
            texts.append(Text(text))
            content = {**content, name: None}
        contents.append(content)
    return (_wrapper({**item, "content": contents}, dialect), *texts) if texts else ()


def _wrapper(item: Mapping[str, Any], dialect: str) -> Opaque:
    return Opaque(dialect, _dumps(item), tokens=0)


def render(block: Block, dialect: str) -> bytes:
    """The wire form of a block in `dialect`: `{"tools":[…],"input":[…]}`, either of which may be absent; empty when
    nothing of it is for this API.
    """
    tools = [_tool(part) for part in block.parts if isinstance(part, ToolSpec)]
    items = list(_reply_items(block.parts, dialect) if block.role is Role.ASSISTANT else _given_items(block))
    arrays = [
        b'"' + name + b'":[' + b",".join(elements) + b"]"
        for name, elements in ((b"tools", tools), (b"input", items))
        if elements
    ]
    return b"{" + b",".join(arrays) + b"}" if arrays else b""


def _tool(spec: ToolSpec) -> bytes:
    return _dumps(
        {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.schema,
            "strict": False,  # the default would demand schemas without optional properties
        }
    )


def _given_items(block: Block) -> Iterator[bytes]:
    """The items of a block that the model did not write: results, and texts in one message each run."""
    role = "developer" if block.role is Role.SYSTEM else "user"
    texts: list[str] = []

    def message() -> Iterator[bytes]:
        if texts:
            content = [{"type": "input_text", "text": text} for text in texts]
            yield _dumps({"type": "message", "role": role, "content": content})
            texts.clear()

    for part in block.parts:
        match part:
            case Text(text) if text.strip():
                texts.append(text)
            case ToolResult(call_id, text):
                yield from message()
                output = [{"type": "input_text", "text": text}]  # a list, whether or not it carries a breakpoint
                yield _dumps({"type": "function_call_output", "call_id": _call_id(call_id), "output": output})
    yield from message()


def _reply_items(parts: Sequence[Part], dialect: str) -> Iterator[bytes]:
    """The items of a reply. Another provider's wrappers and reasoning are left out, its words and calls are not."""
    items: list[dict[str, Any]] = []
    rest = list(parts)
    while rest:
        part = rest.pop(0)
        match part:
            case Opaque(mine, data) if mine == dialect:
                item = json.loads(data)
                if _fill(item, rest):
                    items.append(item)
            case Text(text) if text.strip():
                content = [{"type": "output_text", "text": text}]
                items.append({"type": "message", "role": "assistant", "content": content})
            case ToolCall():
                items.append({"type": "function_call", **_call(part)})
    while items and items[-1].get("type") == "reasoning":
        items.pop()  # the API refuses reasoning that nothing follows; only a reply that was cut has it
    return map(_dumps, items)


def _fill(item: dict[str, Any], rest: list[Part]) -> bool:
    """Put the parts that follow a wrapper back into it, taking them from `rest`. False when they are not there: then
    the parts that are go out on their own.
    """
    if item.get("type") == "function_call" and item.get("arguments") is None:
        match rest[:1]:
            case [ToolCall() as call] if _call_id(call.id) == _call_id(str(item.get("call_id"))):
                item |= _call(call)
                del rest[0]
                return True
        return False
    if item.get("type") != "message":
        return True
    gaps = [
        (content, name)
        for content in item.get("content") or []
        if (name := _GAPS.get(content.get("type"))) is not None and content.get(name) is None
    ]
    texts = [part for part in rest[: len(gaps)] if isinstance(part, Text)]
    if len(texts) < len(gaps):
        return False
    for (content, name), text in zip(gaps, texts, strict=True):
        content[name] = text.text
    del rest[: len(gaps)]
    return True


def _call(call: ToolCall) -> dict[str, Any]:
    name = _NOT_IN_NAMES.sub("_", call.name)[:_LONGEST_NAME] or "_"
    return {"call_id": _call_id(call.id), "name": name, "arguments": call.arguments}


def _call_id(call_id: str) -> str:
    """The API takes at most 64 characters; a call and its result change alike."""
    if 0 < len(call_id) <= _LONGEST_NAME:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def _dumps(value: object) -> bytes:
    """JSON without spaces, text as it is; a lone surrogate stays the escape that it came as."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


class RequestBody:
    """The body of the next request to one model. Another conversation only costs a rebuild."""

    def __init__(self, wires: WireStore, dialect: str) -> None:
        self._growing = GrowingBody(
            wires, dialect, len(_SECTIONS), lambda block: render(block, dialect), _parse, _BREAKPOINT
        )

    def extend_to(self, prompt: Prompt) -> None:
        """Make this the body of `prompt`. Raises DamagedWireError, and whatever the WireStore raises."""
        self._growing.extend_to(prompt)

    def take(self, head: Mapping[str, object], markers: Iterable[Marker], tail: Mapping[str, object]) -> bytes:
        """The JSON body: `head`, tools and input with `markers` in place, `tail`.

        `head` must not be empty. Whatever differs between two requests of a conversation belongs in `tail`, so that
        the bytes before it are a prefix of the next body, markers aside. A token is billed at the long price up to the
        last long breakpoint. Raises as `GrowingBody.marked` does.
        """
        tools, items = self._growing.marked(markers)
        pieces: list[bytes | bytearray] = [_dumps(head)[:-1]]
        if tools:
            pieces += [b',"tools":[', *tools, b"]"]
        pieces += [b',"input":[', *items, b"]", b"," + _dumps(tail)[1:] if tail else b"}"]
        return b"".join(pieces)


def _parse(wire: bytes) -> list[Piece]:
    """Take a wire form apart without writing it anew: its tools, and its items with the place for a breakpoint."""
    if not wire:
        return []
    try:
        text = wire.decode()
        arrays = arrays_of(text)
        pieces = [
            Piece(section, text[start:end].encode(), None)
            for section, name in enumerate(_SECTIONS)
            for start, end, _ in arrays.get(name, [])
        ]
        items = [item for name in _SECTIONS for _, _, item in arrays.get(name, [])]
        marks = [
            len(piece.data) - len(_MARKABLE_END) + 1 if _markable(item) else None
            for piece, item in zip(pieces, items, strict=True)
        ]
    except (ValueError, IndexError, AttributeError, RecursionError) as error:
        raise DamagedWireError(f"not a block in the Responses form: {wire[:40]!r}…") from error
    return [replace(piece, mark=mark) for piece, mark in zip(pieces, marks, strict=True)]


def _markable(item: Any) -> bool:
    """Input texts can carry a breakpoint, also as a tool's output; the model's own output cannot."""
    return item.get("type") == "function_call_output" or item.get("role") in ("user", "developer")
