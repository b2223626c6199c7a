"""Blocks in the form of OpenAI's Responses API, and the request body that grows with the prompt.

Each block is rendered once, kept in the WireStore, and replayed from there byte for byte (rule R2). SYSTEM and PROJECT
are developer messages at the head of `input`: `instructions` is a plain string, which cannot carry a breakpoint.

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
from dataclasses import dataclass, field
from typing import Any, Final

from backends.base import WireStore
from context.block import Block, Opaque, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import Marker
from context.cache_rules import Ttl
from context.prompt import Prompt

MAX_MARKERS: Final = 4

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


class DamagedWireError(ValueError):
    """A stored wire form is not what `render` makes."""


@dataclass(slots=True)
class RequestBody:
    """The body of the next request to one model. Another conversation only costs a rebuild."""

    wires: WireStore
    dialect: str
    _prompt: Prompt = field(default_factory=Prompt.empty)
    _tools: bytearray = field(default_factory=bytearray)  # elements, joined
    _input: bytearray = field(default_factory=bytearray)
    _spots: list[int | None] = field(default_factory=list)  # by block: where in the input a breakpoint behind it goes

    def extend_to(self, prompt: Prompt) -> None:
        """Make this the body of `prompt`. Raises DamagedWireError, and whatever the WireStore raises."""
        if not prompt.extends(self._prompt):
            self._prompt, self._spots = Prompt.empty(), []
            self._tools.clear()
            self._input.clear()
        new = [_parse(self._wire(block)) for block in prompt.since(self._prompt.length)]
        for tools, items in new:  # nothing can fail from here on, so a failure above leaves the body as it was
            for tool in tools:
                _join(self._tools, tool)
            spot = self._spots[-1] if self._spots else None
            for item, markable in items:
                _join(self._input, item)
                if markable:
                    spot = len(self._input) - len(_MARKABLE_END) + 1
            self._spots.append(spot)
        self._prompt = prompt

    def take(self, head: Mapping[str, object], markers: Iterable[Marker], tail: Mapping[str, object]) -> bytes:
        """The JSON body: `head`, tools and input with `markers` in place, `tail`.

        `head` must not be empty. Whatever differs between two requests of a conversation belongs in `tail`, so that
        the bytes before it are a prefix of the next body, markers aside. Raises ValueError for a marker behind the
        end of the prompt, or more markers than the API writes.
        """
        placed = self._placed(markers)
        pieces: list[bytes | bytearray] = [_dumps(head)[:-1]]
        if self._tools:
            pieces += [b',"tools":[', self._tools, b"]"]
        pieces.append(b',"input":[')
        start = 0
        for spot, ttl in placed:
            pieces += [self._input[start:spot], _BREAKPOINT[ttl]]
            start = spot
        pieces += [self._input[start:], b"]", b"," + _dumps(tail)[1:] if tail else b"}"]
        return b"".join(pieces)

    def _wire(self, block: Block) -> bytes:
        wire = self.wires.get(block.digest, self.dialect)
        if wire is None:
            wire = render(block, self.dialect)
            self.wires.put(block.digest, self.dialect, wire)
        return wire

    def _placed(self, markers: Iterable[Marker]) -> list[tuple[int, Ttl]]:
        """Breakpoints in the order of the wire, one per place, and none long behind a short one: a token is billed
        at the long price up to the last long breakpoint.
        """
        found: dict[int, Ttl] = {}
        for marker in markers:
            if not 0 < marker.blocks <= len(self._spots):
                raise ValueError(f"a marker behind block {marker.blocks} of {len(self._spots)}")
            spot = self._spots[marker.blocks - 1]
            if spot is not None and found.get(spot) != "long":
                found[spot] = marker.ttl
        if len(found) > MAX_MARKERS:
            raise ValueError(f"{len(found)} breakpoints, of at most {MAX_MARKERS}")
        ttl: Ttl = "short"
        backwards: list[tuple[int, Ttl]] = []
        for spot in sorted(found, reverse=True):
            ttl = "long" if "long" in (ttl, found[spot]) else "short"
            backwards.append((spot, ttl))
        return backwards[::-1]


def _join(array: bytearray, element: bytes) -> None:
    if array:
        array += b","
    array += element


def _parse(wire: bytes) -> tuple[list[bytes], list[tuple[bytes, bool]]]:
    """Take a wire form apart without writing it anew: its tools, and its items with whether they can be marked."""
    if not wire:
        return [], []
    try:
        text = wire.decode()
        arrays = _arrays_of(text)
    except (ValueError, IndexError, RecursionError) as error:
        raise DamagedWireError(f"not a block in the Responses form: {wire[:40]!r}…") from error
    tools = [text[start:end].encode() for start, end, _ in arrays.get("tools", [])]
    return tools, [(text[start:end].encode(), _markable(item)) for start, end, item in arrays.get("input", [])]


def _markable(item: Any) -> bool:
    """Input texts can carry a breakpoint, also as a tool's output; the model's own output cannot."""
    return item.get("type") == "function_call_output" or item.get("role") in ("user", "developer")


def _arrays_of(text: str) -> dict[str, list[tuple[int, int, Any]]]:
    """The arrays of a JSON object written without spaces: start, end and value of each element, in characters."""
    decode = json.JSONDecoder().raw_decode
    arrays: dict[str, list[tuple[int, int, Any]]] = {}
    at = 1
    while text[at] != "}":
        key, at = decode(text, at)
        at += 2  # the colon and the opening bracket
        spans = arrays[key] = []
        while text[at] != "]":
            value, end = decode(text, at)
            if not isinstance(value, dict):
                raise ValueError(f"an element of {key} is no object")
            spans.append((at, end, value))
            at = end + (text[end] == ",")
        at += 1
        at += text[at] == ","
    return arrays
