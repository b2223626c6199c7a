"""What the scripted model says, and how the connection behaves while it says it."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Say:
    """Text, streamed in `pieces` deltas."""

    text: str
    pieces: int = 2


@dataclass(frozen=True)
class Think:
    """A thinking block. The signature is the server's own, bound to the request's prefix, unless one is given."""

    text: str = ""
    signature: str | None = None


@dataclass(frozen=True)
class Redacted:
    data: str


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` as an object, or as the JSON text that the model writes."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    pieces: int = 3


Part = Say | Think | Redacted | Call


@dataclass(frozen=True)
class Reply:
    """One reply with HTTP 200.

    `stop`: the stop reason (None: tool_use when there are calls, else end_turn). `usage`: the counters to report
    (None: what the server's prefix cache says); a counter of None is left out. `final_usage`: counters of
    message_delta on top of output_tokens. Faults, counted in events (message_start is 1, pings not counted):
    `cut_after` closes the socket, `error_after` sends an error event and ends, `garbage_after` sends what is no JSON.
    `gates`: wait for the event before sending event number k. `extra_events`: sent before the last one.
    """

    parts: tuple[Part, ...] = ()
    stop: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None
    final_usage: Mapping[str, Any] = field(default_factory=dict)
    output_tokens: int = 20
    diagnostics: Mapping[str, Any] | None = None
    cut_after: int | None = None
    error_after: tuple[int, str, str] | None = None
    garbage_after: int | None = None
    gates: Mapping[int, threading.Event] = field(default_factory=dict)
    extra_events: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, *parts: Part | str, **options: Any) -> "Reply":
        """A reply of `parts`; a text alone is said."""
        return cls(tuple(Say(part) if isinstance(part, str) else part for part in parts), **options)


@dataclass(frozen=True)
class Failure:
    """Any other answer: a status with headers, and a body as an API error (type, message) or as it is."""

    status: int
    error: tuple[str, str] | None = None
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] | None = None

    def payload(self) -> tuple[str, bytes]:
        """Content type and body."""
        if self.error is None:
            return "text/plain", self.body.encode()
        kind, message = self.error
        error: dict[str, Any] = {"type": kind, "message": message}
        if self.details is not None:
            error["details"] = self.details
        return "application/json", json.dumps({"type": "error", "error": error, "request_id": "req_test"}).encode()


def html_page(status: int = 200, text: str = "<!doctype html><title>Welcome to nginx</title>") -> Failure:
    return Failure(status, body=text, headers={"content-type": "text/html; charset=utf-8"})


def events(
    reply: Reply, *, number: int, model: str, usage: Mapping[str, Any], signature: str
) -> Iterator[dict[str, Any]]:
    """The payloads of a reply's stream, in order. `number` makes its ids unlike those of other replies."""
    message: dict[str, Any] = {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {key: value for key, value in {**usage, "output_tokens": 1}.items() if value is not None},
    }
    if reply.diagnostics is not None:
        message["diagnostics"] = reply.diagnostics
    yield {"type": "message_start", "message": message}
    for index, part in enumerate(reply.parts):
        start, deltas = _block(part, f"toolu_{number:04}_{index}", signature)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield from (dict(event) for event in reply.extra_events)
    calls = any(isinstance(part, Call) for part in reply.parts)
    stop: dict[str, Any] = {"stop_reason": reply.stop or ("tool_use" if calls else "end_turn"), "stop_sequence": None}
    if reply.stop_details is not None:
        stop["stop_details"] = reply.stop_details
    final = {"output_tokens": reply.output_tokens, **reply.final_usage}
    yield {"type": "message_delta", "delta": stop, "usage": final}
    yield {"type": "message_stop"}


def _block(part: Part, call_id: str, signature: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match part:
        case Say(text, pieces):
            deltas = [{"type": "text_delta", "text": piece} for piece in _split(text, pieces)]
            return {"type": "text", "text": ""}, deltas
        case Think(text, given):
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _split(text, 2)]
            signed = {"type": "signature_delta", "signature": signature if given is None else given}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed] if given != "" else deltas
        case Redacted(data):
            return {"type": "redacted_thinking", "data": data}, []
        case Call(name, arguments, given_id, pieces):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_split(text, pieces)]]
            return {"type": "tool_use", "id": given_id or call_id, "name": name, "input": {}}, deltas


def _split(text: str, pieces: int) -> list[str]:
    """`text` in at most `pieces` parts of about equal length."""
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]
