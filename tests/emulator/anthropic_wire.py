"""How a reply looks on Anthropic's wire, as a stream and as one JSON object, and how its errors do.

Sources: provider rules 1.6, 1.8, 1.10, 1.11 as of 2026-12-01.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .anthropic_cache import merged_counters
from .api import Offer
from .bodies import content_parts
from .script import Call, Failure, Part, Redacted, Reply, Say, Think, pieces_of

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    kind, message = failure.error or ("", "")
    error: dict[str, Any] = {"type": kind or _ERROR_TYPES.get(failure.status, "api_error"), "message": message}
    if failure.details is not None:
        error["details"] = failure.details
    return {"type": "error", "error": error, "request_id": request_id}


class AnthropicReader:
    """Finds tools and steps in a request of the Messages API."""

    def offers(self, body: Mapping[str, Any]) -> list[Offer]:
        return [
            Offer(tool["name"], tuple(tool.get("input_schema", {}).get("properties", {})))
            for tool in body.get("tools") or []
        ]

    def steps_taken(self, body: Mapping[str, Any]) -> int:
        steps = 0
        for message in reversed(body["messages"]):
            kinds = [part["type"] for part in content_parts(message)]
            if message["role"] == "assistant":
                steps += "tool_use" in kinds
            elif message["role"] == "user" and "tool_result" not in kinds:
                break
        return steps


def stop_of(reply: Reply) -> dict[str, Any]:
    stop: dict[str, Any] = {
        "stop_reason": reply.stop or ("tool_use" if reply.calls else "end_turn"),
        "stop_sequence": None,
    }
    if reply.stop_details is not None:
        stop["stop_details"] = reply.stop_details
    return stop


def events(
    reply: Reply,
    *,
    number: int,
    model: str,
    usage: Mapping[str, Any],
    sign: Callable[[str], str],
    extra: Mapping[str, Any] = {},
    final: Mapping[str, Any] = {},
    compaction: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The payloads of a reply's stream, in order. `number` makes its ids unlike those of other replies.

    `usage`: the input counters. `extra` goes into the message (diagnostics), `final` into message_delta. With a
    signature `compaction`, the reply's text is the content of a compaction block.
    """
    message = _head(number, model, merged_counters(usage, 1), extra)
    yield {"type": "message_start", "message": message}
    for index, part in enumerate(reply.parts):
        start, deltas = _block(part, f"toolu_{number:04}_{index}", sign, compaction)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield from (dict(event) for event in reply.extra_events)
    counters = {"output_tokens": reply.output_tokens, **reply.final_usage}
    yield {"type": "message_delta", "delta": stop_of(reply), "usage": counters, **final}
    yield {"type": "message_stop"}


def message(
    reply: Reply,
    *,
    number: int,
    model: str,
    usage: Mapping[str, Any],
    sign: Callable[[str], str],
    extra: Mapping[str, Any] = {},
    compaction: str | None = None,
) -> dict[str, Any]:
    """The same reply as one JSON object."""
    counters = {**merged_counters(usage, reply.output_tokens), **reply.final_usage}
    content = [_whole(part, f"toolu_{number:04}_{index}", sign, compaction) for index, part in enumerate(reply.parts)]
    return {**_head(number, model, counters, extra), "content": content, **stop_of(reply)}


def _head(number: int, model: str, usage: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
        **extra,
    }


def _block(
    part: Part, call_id: str, sign: Callable[[str], str], compaction: str | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and the deltas that fill it."""
    match part:
        case Say(text) if compaction is not None:
            start = {"type": "compaction", "content": None, "signature": compaction}
            return start, [{"type": "compaction_delta", "content": text}]
        case Say(text, pieces):
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces_of(text, pieces)]
            return {"type": "text", "text": ""}, deltas
        case Think(text, given):
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces_of(text, 2)]
            signature = sign(text) if given is None else given
            signed = {"type": "signature_delta", "signature": signature}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed] if signature else deltas
        case Redacted(data):
            return {"type": "redacted_thinking", "data": data}, []
        case Call(name, arguments, given_id, pieces):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces_of(text, pieces)]]
            return {"type": "tool_use", "id": given_id or call_id, "name": name, "input": {}}, deltas


def _whole(part: Part, call_id: str, sign: Callable[[str], str], compaction: str | None) -> dict[str, Any]:
    match part:
        case Say(text) if compaction is not None:
            return {"type": "compaction", "content": text, "signature": compaction}
        case Say(text):
            return {"type": "text", "text": text}
        case Think(text, given):
            return {"type": "thinking", "thinking": text, "signature": sign(text) if given is None else given}
        case Redacted(data):
            return {"type": "redacted_thinking", "data": data}
        case Call(name, arguments, given_id, _):
            value = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
            return {"type": "tool_use", "id": given_id or call_id, "name": name, "input": value}
