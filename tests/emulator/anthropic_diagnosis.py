"""Cache diagnostics: what differs from an earlier request that the client names (provider rules 1.5, 2026-12-01)."""

import hashlib
from dataclasses import dataclass
from typing import Any

from .anthropic_cache import marked_end, message_variant
from .bodies import Body, without_markers
from .models import Model
from .tokens import compact


def _digest(value: Any) -> bytes:
    return hashlib.sha256(compact(value).encode(errors="replace")).digest()


@dataclass(frozen=True)
class Fingerprint:
    """What the API remembers of a request. `cacheable`: the tokens that it asked to cache."""

    model: bytes
    tools: bytes
    system: bytes
    messages: tuple[bytes, ...]
    rest: str
    cacheable: int

    @classmethod
    def of(cls, body: Body, model: Model) -> "Fingerprint":
        bare = without_markers(body)
        return cls(
            _digest([body.get("model"), body.get("speed") or "standard"]),
            _digest(bare["tools"]),
            _digest(bare["system"]),
            tuple(_digest(message) for message in bare["messages"]),
            message_variant(body, model),
            marked_end(body, model),
        )


def diagnose(now: Fingerprint, previous: Fingerprint | None, read: int) -> dict[str, Any] | None:
    """The value of `diagnostics`: None when nothing diverged. `read`: the tokens that this request reads."""
    if previous is None:
        return {"cache_miss_reason": {"type": "previous_message_not_found"}}
    kind = _earliest(now, previous)
    if kind is None:
        return None
    if kind == "unavailable":
        return {"cache_miss_reason": {"type": kind}}
    missed = max(0, previous.cacheable - read)
    return {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": missed}}


def _earliest(now: Fingerprint, previous: Fingerprint) -> str | None:
    if now.model != previous.model:
        return "model_changed"
    if now.tools != previous.tools:
        return "tools_changed"
    if now.system != previous.system:
        return "system_changed"
    if now.messages[: len(previous.messages)] != previous.messages:
        return "messages_changed"
    return "unavailable" if now.rest != previous.rest else None
