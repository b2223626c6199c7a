"""Preserved thinking: each signature is bound to the exact prefix, and a compaction block carries the binding on.

Source: provider rules 1.7 and 1.8 (preserved thinking, on-demand compaction), 2026-12-01. A signature names the model,
the state of the conversation before its message, the text that it signs, itself, and the thinking before it; so a
changed prefix shows, a block missing in the middle shows, and blocks missing at the start do not.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .bodies import Body, content_parts
from .models import Model
from .tokens import compact

_BOUND = "bound"
_COMPACTED = "compacted"
_THINKING = ("thinking", "redacted_thinking")


def _short(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:16]


def _bare(value: Any) -> Any:
    """Markers are no part of the comparison."""
    return {key: inner for key, inner in value.items() if key != "cache_control"}


def _head_state(body: Body) -> str:
    tools = [_bare(tool) for tool in body.get("tools") or [] if not tool.get("defer_loading")]
    system = body.get("system") or []
    parts = [{"type": "text", "text": system}] if isinstance(system, str) else [_bare(part) for part in system]
    return _short(compact(tools), compact(parts))


def states(body: Body) -> list[str]:
    """The state before each message and behind the last one; thinking is no part of it."""
    head = _head_state(body)
    found = [head]
    for number, message in enumerate(body.get("messages") or []):
        parts = content_parts(message)
        carried = _carried(parts, head) if number == 0 else None
        said = [_bare(part) for part in parts if part.get("type") not in _THINKING]
        found.append(carried or _short(found[-1], message["role"], compact(said)))
    return found


def _carried(parts: list[Any], head: str) -> str | None:
    """The state that a compaction block stands for; None if it was made under other tools or another system text."""
    if len(parts) != 1 or parts[0].get("type") != "compaction":
        return None
    kind, _, rest = str(parts[0].get("signature")).partition(":")
    under, _, state = rest.partition(":")
    return state if kind == _COMPACTED and under == head else None


def compaction_signature(body: Body) -> str:
    """Of the block that stands for all of the request's messages."""
    return f"{_COMPACTED}:{_head_state(body)}:{states(body)[-1]}"


def signer(body: Body) -> Callable[[str], str]:
    """Signs the thinking of the answer to `body`, block by block, in order."""
    model, state = str(body.get("model")), states(body)[-1]
    last = next((signed.name for _, _, signed in reversed(list(_signed(body)))), "-")

    def sign(text: str) -> str:
        nonlocal last
        name = _short(state, text, last)
        signature = f"{_BOUND}:{model}:{state}:{_short(text)}:{name}:{last}"
        last = name
        return signature

    return sign


@dataclass(frozen=True)
class _Signature:
    model: str
    state: str
    text: str
    name: str
    before: str


def _signed(body: Body) -> Iterator[tuple[tuple[int, int], Any, _Signature]]:
    """Each thinking block with a signature of the emulator's own: where it is, the block, what is signed."""
    for number, message in enumerate(body.get("messages") or []):
        for index, part in enumerate(content_parts(message)):
            fields = str(part.get("signature", "")).split(":")
            if part.get("type") == "thinking" and fields[0] == _BOUND and len(fields) == 6:
                yield (number, index), part, _Signature(*fields[1:])


@dataclass(frozen=True)
class Mismatch:
    """A thinking block that cannot stand where it is; `place` as (message, block)."""

    place: tuple[int, int]
    reason: str

    @property
    def path(self) -> str:
        return f"messages.{self.place[0]}.content.{self.place[1]}"


def mismatches(body: Body, model: Model) -> list[Mismatch]:
    """Blocks of another model, and on models that bind it, blocks whose prefix is another one."""
    found, before = list[Mismatch](), states(body)
    last: str | None = None
    for place, part, signed in _signed(body):
        if signed.model != body.get("model"):
            found.append(Mismatch(place, "model_binding_mismatch"))
            continue
        altered = signed.text != _short(part.get("thinking", ""))
        moved = signed.state != before[place[0]] or (last is not None and signed.before != last)
        if altered or (model.binding and moved):
            found.append(Mismatch(place, "prefix_binding_mismatch"))
        last = signed.name
    return found


def without(body: Body, places: set[tuple[int, int]]) -> Body:
    """`body` without these blocks. A message that would be empty is left out."""
    if not places:
        return body
    kept = []
    for number, message in enumerate(body["messages"]):
        parts = [part for index, part in enumerate(content_parts(message)) if (number, index) not in places]
        if parts:
            kept.append({**message, "content": parts})
    return {**body, "messages": kept}
