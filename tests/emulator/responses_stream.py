"""A reply as Responses output items, and as the events that stream them, in the documented order.

Source: openai SDK 3.57.0, `types/responses/*_event.py`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .api import Event
from .responses_binding import encrypt
from .script import Call, Part, Redacted, Reply, Say, Think, pieces_of

Item = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """What the form of the output depends on besides the reply.

    `number` makes its ids unlike those of other replies; `prefix` names what the reasoning is bound to. `summaries`:
    whether `reasoning.summary` was asked for. `obfuscate`: whether deltas carry padding.
    """

    number: int
    model: str
    prefix: bytes
    summaries: bool
    obfuscate: bool


@dataclass(frozen=True)
class Piece:
    """An output item with the events between `output_item.added` and `output_item.done`.

    `added` is the item as it begins, `item` as it ends.
    """

    added: Item
    item: Item
    inner: Sequence[Mapping[str, Any]]


def pieces(reply: Reply, shape: Shape) -> list[Piece]:
    """The output items of `reply`, in order."""
    cut = len(reply.parts) - 1 if reply.stop in ("max_output_tokens", "content_filter") else -1
    return [
        _piece(part, reply, shape, index, "incomplete" if index == cut else "completed")
        for index, part in enumerate(reply.parts)
    ]


def _piece(part: Part, reply: Reply, shape: Shape, index: int, status: str) -> Piece:
    name = f"{shape.number:04}_{index}"
    match part:
        case Say(text, count):
            return _message(f"msg_{name}", text, count, reply, status)
        case Think(text, signature):
            content = encrypt(shape.model, shape.prefix, text) if signature is None else signature
            return _reasoning(f"rs_{name}", text if shape.summaries else "", content)
        case Redacted(data):
            return _reasoning(f"rs_{name}", "", data)
        case Call(tool, arguments, call_id, count):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            item: Item = {
                "id": f"fc_{name}",
                "type": "function_call",
                "status": status,
                "arguments": text,
                "call_id": call_id or f"call_{name}",
                "name": tool,
            }
            kind = "response.function_call_arguments"
            inner = [{"type": f"{kind}.delta", "delta": piece} for piece in pieces_of(text, count)]
            added = {**item, "status": "in_progress", "arguments": ""}
            return Piece(added, item, [*inner, {"type": f"{kind}.done", "name": tool, "arguments": text}])


def _message(name: str, text: str, count: int, reply: Reply, status: str) -> Piece:
    empty: dict[str, Any]
    if reply.stop == "refusal":
        empty, key, kind = {"type": "refusal", "refusal": ""}, "refusal", "response.refusal"
        logprobs: dict[str, Any] = {}
    else:
        empty = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        key, kind, logprobs = "text", "response.output_text", {"logprobs": []}
    part = {**empty, key: text}
    phase = "commentary" if reply.calls else "final_answer"
    item: Item = {
        "id": name,
        "type": "message",
        "status": status,
        "content": [part],
        "phase": phase,
        "role": "assistant",
    }
    inner: list[dict[str, Any]] = [{"type": "response.content_part.added", "part": empty}]
    inner += [{"type": f"{kind}.delta", "delta": piece, **logprobs} for piece in pieces_of(text, count)]
    inner += [{"type": f"{kind}.done", key: text, **logprobs}, {"type": "response.content_part.done", "part": part}]
    return Piece(
        {**item, "status": "in_progress", "content": []}, item, [{**event, "content_index": 0} for event in inner]
    )


def _reasoning(name: str, summary: str, content: str) -> Piece:
    part = {"type": "summary_text", "text": summary}
    item: Item = {
        "id": name,
        "type": "reasoning",
        "encrypted_content": content,
        "summary": [part] if summary else [],
    }
    head = "response.reasoning_summary"
    inner: list[dict[str, Any]] = []
    if summary:
        inner.append({"type": f"{head}_part.added", "part": {**part, "text": ""}})
        inner += [{"type": f"{head}_text.delta", "delta": piece} for piece in pieces_of(summary, 2)]
        inner += [{"type": f"{head}_text.done", "text": summary}, {"type": f"{head}_part.done", "part": part}]
    # What `added` shows of the encrypted content may be incomplete: only the item in `done` is good to send back.
    added = {**item, "summary": [], "encrypted_content": content[: len(content) // 2]}
    return Piece(added, item, [{**event, "summary_index": 0} for event in inner])


def stream(reply: Reply, shape: Shape, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> Iterator[Event]:
    """All events of a reply. `begun` is the response as it begins, `ended` with its output, status and usage."""
    numbers = itertools.count()

    def event(data: Mapping[str, Any], *, settles: bool = False) -> Event:
        padding = {"obfuscation": "x" * 8} if shape.obfuscate and "delta" in data else {}
        whole = {"type": data["type"], "sequence_number": next(numbers), **data, **padding}
        return Event(data["type"], whole, settles=settles)

    yield event({"type": "response.created", "response": begun})
    yield event({"type": "response.in_progress", "response": begun})
    for index, piece in enumerate(pieces(reply, shape)):
        place = {"output_index": index}
        yield event({"type": "response.output_item.added", **place, "item": piece.added})
        for inner in piece.inner:
            yield event({"item_id": piece.item["id"], **place, **inner})
        yield event({"type": "response.output_item.done", **place, "item": piece.item})
    for extra in reply.extra_events:
        yield event(extra)
    yield event({"type": f"response.{ended['status']}", "response": ended}, settles=True)
