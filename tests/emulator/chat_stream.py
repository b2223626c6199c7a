"""A reply as chunks of Chat Completions, and as one message.

Source: openai SDK 3.57.0, `types/chat/chat_completion_chunk`; the servers' own fields as in `chat_flavours`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .api import Event
from .chat_flavours import Flavour
from .script import Call, Redacted, Reply, Say, Think, pieces_of


class _Comment(Event):
    """A line that keeps the connection alive while the provider is busy: no event, and parsers skip it."""

    def wire(self) -> bytes:
        return f": {self.data}\n\n".encode()


def finish_reason(reply: Reply) -> str:
    return reply.stop or ("tool_calls" if reply.calls else "stop")


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def call_ids(reply: Reply, number: int) -> list[str]:
    """The id of each call of a reply."""
    calls = [part for part in reply.parts if isinstance(part, Call)]
    return [call.id or f"call_{number:04}_{index}" for index, call in enumerate(calls)]


def _thinking(flavour: Flavour, text: str) -> dict[str, Any]:
    """The fields that carry reasoning; none on servers that keep it to themselves."""
    if flavour.reasoning is None or not text:
        return {}
    fields: dict[str, Any] = {flavour.reasoning: text}
    if flavour.name == "openrouter":
        fields["reasoning_details"] = [{"type": "reasoning.text", "text": text, "format": None, "index": 0}]
    return fields


def deltas(reply: Reply, flavour: Flavour, number: int) -> Iterator[dict[str, Any]]:
    """The deltas of a reply, in order; tool calls by their index."""
    yield {"role": "assistant", "content": ""}
    ids, index = call_ids(reply, number), 0
    for part in reply.parts:
        match part:
            case Say(text, pieces):
                yield from ({"content": piece} for piece in pieces_of(text, pieces))
            case Think(text):
                for piece in pieces_of(text, 2):
                    if fields := _thinking(flavour, piece):
                        yield fields
            case Redacted():
                continue
            case Call(name, _, _, pieces):
                text = _arguments(part)
                head = {"index": index, "id": ids[index], "type": "function"}
                if flavour.whole_calls:
                    yield {"tool_calls": [{**head, "function": {"name": name, "arguments": text}}]}
                else:
                    yield {"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]}
                    for piece in pieces_of(text, pieces):
                        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                index += 1


def stream(
    reply: Reply,
    flavour: Flavour,
    number: int,
    head: Mapping[str, Any],
    usage: Mapping[str, Any],
    *,
    include_usage: bool,
    timings: Mapping[str, Any] | None,
) -> Iterator[Event]:
    """All events: chunks, then `[DONE]`. `head`: the fields that all chunks share."""
    blank = {"usage": None} if include_usage and flavour.name in ("openai", "deepseek") else {}

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Event(None, {**head, "choices": [choice], **blank, **more}, settles=finish is not None)

    for place, delta in enumerate(deltas(reply, flavour, number)):
        yield chunk(delta)
        if place == 0 and flavour.keep_alive is not None:
            yield _Comment(None, flavour.keep_alive, counted=False)
    for extra in reply.extra_events:
        yield Event(None, extra)
    last = {"timings": timings} if timings is not None else {}
    if flavour.usage_with_finish:
        yield chunk({"content": ""}, finish_reason(reply), usage=usage)
    else:
        yield chunk({}, finish_reason(reply), **({} if include_usage else last))
        if include_usage:
            yield Event(None, {**head, "choices": [], "usage": usage, **last}, settles=True)
    yield Event(None, "[DONE]")


def message(reply: Reply, flavour: Flavour, number: int) -> dict[str, Any]:
    """The whole message of a reply that does not stream."""
    said = "".join(part.text for part in reply.parts if isinstance(part, Say))
    thought = "".join(part.text for part in reply.parts if isinstance(part, Think))
    answer: dict[str, Any] = {"role": "assistant", "content": said or None, **_thinking(flavour, thought)}
    calls = [part for part in reply.parts if isinstance(part, Call)]
    if calls:
        answer["tool_calls"] = [
            {"id": name, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for name, call in zip(call_ids(reply, number), calls, strict=True)
        ]
    return answer
