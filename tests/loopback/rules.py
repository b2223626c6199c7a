"""What the API refuses, checked on every request, so that a test cannot pass with a body that would be a 400.

Sources: provider rules 1.1, 1.2, 1.7 and 1.9 as of 2026-12-01 (Anthropic's documentation and SDK 2.14.0).
"""

import hashlib
from typing import Any

from .bodies import Body, content_parts, elements, markers, prefix_bytes

_BOUND = "bound:"


def signature_for(body: Body) -> str:
    """The signature of thinking in the answer to `body`: bound to everything before it (preserved thinking)."""
    return _BOUND + hashlib.sha256(prefix_bytes(body)).hexdigest()


def refusal(body: Body) -> str | None:
    """Why the API would answer 400, or None."""
    for name in ("temperature", "top_p", "top_k"):
        if name in body:
            return f"{name}: Extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    messages = body.get("messages") or []
    if not messages:
        return "messages: at least one message is required"
    if messages[-1]["role"] == "assistant":
        return "This model does not support assistant message prefill. The conversation must end with a user message."
    return _markers_refusal(body) or _content_refusal(messages) or _pairing_refusal(messages) or _binding_refusal(body)


def _markers_refusal(body: Body) -> str | None:
    found = markers(body)
    if len(found) > 4:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {len(found)}."
    ttls = [ttl for _, ttl in found]
    if ttls != sorted(ttls):  # "1h" sorts before "5m"
        return "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
    for place, element in elements(body):
        if "cache_control" in element and element.get("type") in ("thinking", "redacted_thinking"):
            return f"{place}: cache_control cannot be set on thinking blocks"
    return None


def _content_refusal(messages: list[Any]) -> str | None:
    for number, message in enumerate(messages):
        parts = content_parts(message)
        if not parts:
            return f"messages.{number}: all messages must have non-empty content"
        for part in parts:
            if part["type"] == "text" and not part["text"].strip():
                return f"messages.{number}: text content blocks must contain non-whitespace text"
            if part["type"] == "tool_use" and not isinstance(part["input"], dict):
                return f"messages.{number}: tool_use.input: Input should be a valid dictionary"
    return None


def _pairing_refusal(messages: list[Any]) -> str | None:
    """Each tool_use is answered in the next user turn, and nothing else is; turns of one role count as one."""
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(content_parts(message))
        else:
            turns.append((message["role"], content_parts(message)))
    open_calls: list[str] = []
    for role, parts in turns:
        if role == "user":
            results = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
            if sorted(results) != sorted(open_calls):
                return f"tool_result ids {results} do not answer the tool_use ids {open_calls}"
            if any(part["type"] == "tool_result" for part in parts[len(results) :]):
                return "tool_result blocks must come first in the message"
        elif open_calls:
            return f"tool_use ids {open_calls} were found without tool_result blocks"
        open_calls = [part["id"] for part in parts if part["type"] == "tool_use"] if role == "assistant" else []
    return None


def _binding_refusal(body: Body) -> str | None:
    messages = body["messages"]
    for number, message in enumerate(messages):
        for index, part in enumerate(content_parts(message)):
            signed = str(part.get("signature", ""))
            if signed.startswith(_BOUND) and signed != signature_for({**body, "messages": messages[:number]}):
                return (
                    f"messages.{number}.content.{index}: Invalid `signature` in `thinking` block. "
                    "The block is bound to a different conversation."
                )
    return None
