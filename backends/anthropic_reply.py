"""One streamed reply of Anthropic's Messages API, event by event, turned into the events of `backends.base`.

Sources: anthropic 2.14.0, types/raw_*_event.py, usage.py, message_delta_usage.py, stop_reason.py; the documentation's
streaming page as of 2026-08-22 (unknown events and deltas are to be ignored, deltas of usage are cumulative).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backends.anthropic_wire import tool_input
from backends.base import (
    Diagnosis,
    Event,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from backends.payload import BrokenStreamError, count_of, dumps, index_of, is_object, mapping_of, text_of, tier_of
from context.block import Opaque, Part, Text, ToolCall

_STOPS: Final = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_use": StopReason.TOOLS,
    "max_tokens": StopReason.MAX_OUTPUT,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
    "refusal": StopReason.REFUSED,
    "pause_turn": StopReason.PAUSED,
}
_DIAGNOSES: Final = {"previous_message_not_found": "not_found"}
_CUT: Final = frozenset({StopReason.MAX_OUTPUT, StopReason.CONTEXT_FULL, StopReason.REFUSED})


@dataclass(slots=True)
class _Content:
    """One content block while it streams. `start` is its first event's payload; `json_text` its input so far."""

    start: dict[str, Any]
    texts: list[str] = field(default_factory=list)
    json_text: list[str] = field(default_factory=list)
    closed: bool = False

    @property
    def kind(self) -> str:
        return str(self.start.get("type"))


class ReplyReader:
    """Feed it the stream's payloads in order.

    Tool calls are reported as finished only when the whole reply is there: a stream that breaks, or a reply that is
    cut inside a call's arguments, leaves no call that could be run. `dialect` names the model that the opaque parts
    belong to. `long_asked`: whether the request had a marker with the long TTL (without one, the provider's writes are
    all short even where it does not split them).
    """

    def __init__(self, dialect: str, *, long_asked: bool) -> None:
        self._dialect = dialect
        self._long_asked = long_asked
        self._contents: dict[int, _Content] = {}
        self._call_ids: set[str] = set()
        self._usage: dict[str, int | None] = {}
        self._tier: str | None = None
        self._id: str | None = None
        self._stop: str | None = None
        self._stop_details: Mapping[str, Any] = {}
        self._diagnosis: Diagnosis | None = None
        self.done = False

    @property
    def whole(self) -> bool:
        """Whether the reply's content is complete: the stop reason has been told."""
        return self._stop is not None

    def feed(self, payload: object) -> Iterator[Event]:
        """The events that one payload means. Raises BrokenStreamError."""
        event = mapping_of(payload, "an event")
        match event.get("type"):
            case "message_start":
                yield from self._message_start(mapping_of(event.get("message"), "message_start"))
            case "content_block_start":
                yield from self._block_start(
                    index_of(event, "index"), mapping_of(event.get("content_block"), "content_block_start")
                )
            case "content_block_delta":
                yield from self._block_delta(
                    self._content(event), mapping_of(event.get("delta"), "content_block_delta")
                )
            case "content_block_stop":
                self._content(event).closed = True
            case "message_delta":
                self._message_delta(event)
            case "message_stop":
                self.done = True

    def finish(self) -> Iterator[Event]:
        """The last events of a whole reply: its tool calls, the bill, and the reply itself."""
        stop, detail = self._stop_reason()
        parts = self._parts(stop)
        calls = [part for part in parts if isinstance(part, ToolCall)]
        for call in calls:
            yield ToolCallFinished(call)
        if calls and stop is StopReason.END:
            stop = StopReason.TOOLS  # some gateways say end_turn; the calls must be answered all the same
        elif not calls and stop is StopReason.TOOLS:
            stop, detail = StopReason.END, detail or "the model announced a tool call and made none"
        yield UsageReported(self.usage)
        yield ReplyFinished(tuple(parts), stop, self._id, detail, self._diagnosis)

    @property
    def usage(self) -> Usage:
        """The bill so far."""
        get = self._usage.get
        write, long, short = get("cache_creation_input_tokens"), get("long"), get("short")
        if write is None and long is not None and short is not None:
            write = long + short
        if write == 0 or (write is not None and long is None and not self._long_asked):
            long = 0
        elif write is None or (long is not None and short is not None and long + short != write):
            long = None  # the total went on counting after the split was told
        return Usage(
            fresh=get("input_tokens"),
            cache_read=get("cache_read_input_tokens"),
            cache_write=write,
            cache_write_long=long,
            output=get("output_tokens"),
            reasoning=get("thinking_tokens"),
            tier=self._tier,
        )

    def _message_start(self, message: Mapping[str, Any]) -> Iterator[Event]:
        self._id = message["id"] if isinstance(message.get("id"), str) else None
        usage = mapping_of(message.get("usage"), "message_start.usage")
        self._merge_input(usage)
        split = usage.get("cache_creation")
        if isinstance(split, Mapping):
            self._usage["short"] = count_of(split.get("ephemeral_5m_input_tokens"))
            self._usage["long"] = count_of(split.get("ephemeral_1h_input_tokens"))
        diagnostics = message.get("diagnostics")
        if isinstance(diagnostics, Mapping) and isinstance(reason := diagnostics.get("cache_miss_reason"), Mapping):
            missed = count_of(reason.get("cache_missed_input_tokens"))
            self._diagnosis = Diagnosis(_DIAGNOSES.get(str(reason.get("type")), str(reason.get("type"))), missed)
        elif "diagnostics" in message and diagnostics is None:
            self._diagnosis = Diagnosis("hit")  # asked, and no divergence from the named response
        yield UsageReported(self.usage)

    def _merge_input(self, usage: Mapping[str, Any]) -> None:
        """Counters are cumulative, and absent ones leave what was known."""
        self._tier = tier_of(usage.get("speed")) or tier_of(usage.get("service_tier")) or self._tier
        self._merge(usage, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

    def _merge_output(self, usage: Mapping[str, Any]) -> None:
        """Told by message_delta only: what message_start says of the output is where it begins, not what is billed."""
        self._merge(usage, "output_tokens")
        details = usage.get("output_tokens_details")
        if isinstance(details, Mapping) and (count := count_of(details.get("thinking_tokens"))) is not None:
            self._usage["thinking_tokens"] = count

    def _merge(self, usage: Mapping[str, Any], *keys: str) -> None:
        for key in keys:
            if (count := count_of(usage.get(key))) is not None:
                self._usage[key] = count

    def _block_start(self, index: int, start: Mapping[str, Any]) -> Iterator[Event]:
        if index in self._contents:
            raise BrokenStreamError(f"content block {index} starts twice")
        content = self._contents[index] = _Content(dict(start))
        match content.kind:
            case "text" if text := text_of(start, "text"):
                content.texts.append(text)
                yield TextDelta(text)
            case "thinking" if text := text_of(start, "thinking"):
                content.texts.append(text)
                yield ThinkingDelta(text)
            case "tool_use":
                call_id, name = text_of(start, "id"), text_of(start, "name")
                if not call_id or not name:
                    raise BrokenStreamError("a tool call without id or name")
                if call_id in self._call_ids:
                    raise BrokenStreamError(f"two tool calls with the id {call_id}")
                self._call_ids.add(call_id)
                yield ToolCallStarted(call_id, name)

    def _block_delta(self, content: _Content, delta: Mapping[str, Any]) -> Iterator[Event]:
        match delta.get("type"):
            case "text_delta" if text := text_of(delta, "text"):
                content.texts.append(text)
                yield TextDelta(text)
            case "thinking_delta" if text := text_of(delta, "thinking"):
                content.texts.append(text)
                yield ThinkingDelta(text)
            case "signature_delta":
                content.start["signature"] = text_of(delta, "signature")
            case "input_json_delta" if text := text_of(delta, "partial_json"):
                content.json_text.append(text)
                if content.kind == "tool_use":
                    yield ToolCallDelta(str(content.start["id"]), text)

    def _message_delta(self, event: Mapping[str, Any]) -> None:
        delta = mapping_of(event.get("delta"), "message_delta")
        if isinstance(delta.get("stop_reason"), str):
            self._stop = delta["stop_reason"]
        if isinstance(delta.get("stop_details"), Mapping):
            self._stop_details = delta["stop_details"]
        if isinstance(usage := event.get("usage"), Mapping):
            self._merge_input(usage)
            self._merge_output(usage)

    def _content(self, event: Mapping[str, Any]) -> _Content:
        content = self._contents.get(index_of(event, "index"))
        if content is None:
            raise BrokenStreamError(f"{event.get('type')} for a content block that never started")
        return content

    def _stop_reason(self) -> tuple[StopReason, str | None]:
        stop = _STOPS.get(self._stop or "")
        if stop is None:
            return StopReason.END, f"unknown stop reason {self._stop!r}"
        if stop is StopReason.REFUSED:
            told = [self._stop_details.get("category"), self._stop_details.get("explanation")]
            return stop, ": ".join(str(word) for word in told if word) or None
        return stop, None

    def _parts(self, stop: StopReason) -> list[Part]:
        contents = [content for _, content in sorted(self._contents.items())]
        parts: list[Part] = []
        for content in contents:
            last_of_cut = stop in _CUT and content is contents[-1]
            part = self._part(content, may_be_cut=last_of_cut)
            if part is not None and not (stop is StopReason.REFUSED and isinstance(part, ToolCall)):
                parts.append(part)
        return parts

    def _part(self, content: _Content, *, may_be_cut: bool) -> Part | None:
        """The part to send back, or None where there is nothing that may be."""
        match content.kind:
            case "text":
                text = "".join(content.texts)
                return Text(text) if text else None
            case "tool_use":
                return _tool_call(content, may_be_cut=may_be_cut)
            case "thinking":
                # Without its signature the API refuses the block; it is missing only where the reply was cut inside it.
                if not content.start.get("signature"):
                    return None
                return self._opaque({**content.start, "thinking": "".join(content.texts)})
            case _ if content.json_text:  # a server tool's call; we use none, but what comes must go back as it came
                return self._opaque({**content.start, "input": tool_input("".join(content.json_text))})
            case _:
                return self._opaque(content.start)

    def _opaque(self, block: Mapping[str, Any]) -> Opaque:
        """The block as JSON bytes, unmodified."""
        return Opaque(self._dialect, dumps(block))


def _tool_call(content: _Content, *, may_be_cut: bool) -> ToolCall | None:
    arguments = "".join(content.json_text)
    if not arguments and content.start.get("input"):  # some gateways send the whole input at the start
        arguments = json.dumps(content.start["input"], ensure_ascii=False)
    if may_be_cut and (not content.closed or not is_object(arguments)):
        return None
    return ToolCall(str(content.start["id"]), str(content.start["name"]), arguments or "{}")
