"""One streamed reply of OpenAI's Responses API, event by event, turned into the events of `backends.base`.

Sources: openai 3.57.0, types/responses/response_*_event.py, response.py (`incomplete_details`,
`prompt_cache_diagnostics`, `input_transformations`), response_usage.py. Items are taken from
`response.output_item.done`: what `added` shows of encrypted reasoning may be incomplete.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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
from backends.openai_wire import wrapped
from backends.payload import BrokenStreamError, count_of, index_of, is_object, mapping_of, text_of, tier_of
from context.block import Opaque, Part, ToolCall

_STOPS: Final = {"max_output_tokens": StopReason.MAX_OUTPUT, "content_filter": StopReason.REFUSED}
_DIAGNOSES: Final = {"cache_hit": "hit", "comparison_response_not_found": "not_found"}


@dataclass(slots=True)
class _Item:
    """An output item while it streams. `done`: as the API sends it when it is complete."""

    kind: str
    call_id: str = ""
    texts: list[str] = field(default_factory=list)
    done: Mapping[str, Any] | None = None


class ReplyReader:
    """Feed it the stream's payloads in order; errors (`error`, `response.failed`) are the caller's to raise.

    Tool calls are reported as finished only when the whole reply is there: a stream that breaks, or a reply that is cut
    inside a call's arguments, leaves no call that could be run. `dialect` names the model that the opaque parts belong
    to. `cache`: how the model caches; automatic caches write for free and report no writes. `long_asked`: whether the
    request had a breakpoint with the long TTL.
    """

    def __init__(self, dialect: str, *, cache: Literal["markers", "automatic", "none"], long_asked: bool) -> None:
        self._dialect = dialect
        self._cache = cache
        self._long_asked = long_asked
        self._items: dict[int, _Item] = {}
        self._response: Mapping[str, Any] = {}
        self._end: str | None = None
        self.usage = Usage()

    @property
    def whole(self) -> bool:
        """Whether the reply is complete: its last event has come."""
        return self._end is not None

    def feed(self, payload: object) -> Iterator[Event]:
        """The events that one payload means. Raises BrokenStreamError. Unknown events are passed over."""
        event = mapping_of(payload, "an event")
        kind = event.get("type")
        if isinstance(event.get("response"), Mapping):
            self._response = {**self._response, **_told(event["response"])}
        match kind:
            case "response.output_item.added":
                yield from self._added(index_of(event, "output_index"), mapping_of(event.get("item"), str(kind)))
            case "response.output_item.done":
                yield from self._done(index_of(event, "output_index"), mapping_of(event.get("item"), str(kind)))
            case "response.output_text.delta" | "response.refusal.delta" if text := text_of(event, "delta"):
                self._item(event, "message").texts.append(text)
                yield TextDelta(text)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                if text := text_of(event, "delta"):
                    yield ThinkingDelta(text)
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                yield ThinkingDelta("\n\n")  # between two summaries
            case "response.function_call_arguments.delta" if text := text_of(event, "delta"):
                if call_id := self._item(event, "function_call").call_id:
                    yield ToolCallDelta(call_id, text)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._read_usage(mapping_of(event.get("response"), str(kind)))
                if kind == "response.failed":
                    yield UsageReported(self.usage)
                else:
                    self._end = str(kind)

    def finish(self) -> Iterator[Event]:
        """The last events of a whole reply: its tool calls, the bill, and the reply itself."""
        items = self._output()
        stop, details = self._stop(items)
        parts = self._parts(items, refused=stop is StopReason.REFUSED)
        calls = [part for part in parts if isinstance(part, ToolCall)]
        for call in calls:
            yield ToolCallFinished(call)
        if calls and stop is StopReason.END:
            stop = StopReason.TOOLS
        if withheld := self._withheld():
            details.append(withheld)
        response_id = self._response.get("id")
        yield UsageReported(self.usage)
        yield ReplyFinished(
            tuple(parts),
            stop,
            response_id if isinstance(response_id, str) else None,
            "; ".join(details) or None,
            self._diagnosis(),
        )

    def _added(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        if index in self._items:
            raise BrokenStreamError(f"output item {index} starts twice")
        started = self._items[index] = _Item(str(item.get("type")))
        if started.kind == "function_call":
            started.call_id = self._call_id(item)
            yield ToolCallStarted(started.call_id, str(item["name"]))

    def _done(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        known = self._items.get(index)
        if known is None:
            yield from self._added(index, item)
            known = self._items[index]
        elif known.kind == "function_call" and item.get("call_id") != known.call_id:
            raise BrokenStreamError(f"output item {index} changes its call id")
        if known.done is not None:
            raise BrokenStreamError(f"output item {index} ends twice")
        known.done = item

    def _call_id(self, item: Mapping[str, Any]) -> str:
        call_id, name = text_of(item, "call_id"), text_of(item, "name")
        if not call_id or not name:
            raise BrokenStreamError("a tool call without id or name")
        if any(known.call_id == call_id for known in self._items.values()):
            raise BrokenStreamError(f"two tool calls with the id {call_id}")
        return call_id

    def _item(self, event: Mapping[str, Any], kind: str) -> _Item:
        item = self._items.get(index_of(event, "output_index"))
        if item is None or item.kind != kind:
            raise BrokenStreamError(f"{event.get('type')} for an output item that never started")
        return item

    def _output(self) -> list[Mapping[str, Any]]:
        """The items as they must go back. Where one was not told as done, the last event's list has it; of a message
        that is in neither (it was cut) there is what was streamed.
        """
        listed = self._response.get("output")
        output = dict(enumerate(listed if isinstance(listed, list) else []))
        for index, known in self._items.items():
            if known.done is not None:
                output[index] = known.done
            elif index not in output and known.kind == "message":
                content = [{"type": "output_text", "text": "".join(known.texts)}]
                output[index] = {"type": "message", "role": "assistant", "content": content}
        return [mapping_of(item, "an output item") for _, item in sorted(output.items())]

    def _stop(self, items: Sequence[Mapping[str, Any]]) -> tuple[StopReason, list[str]]:
        if self._end == "response.incomplete":
            details = self._response.get("incomplete_details")
            reason = str(details.get("reason")) if isinstance(details, Mapping) else "no reason"
            stop = _STOPS.get(reason)
            if stop is None:
                return StopReason.END, [f"the reply is incomplete: {reason}"]
            return stop, ["content filter"] if stop is StopReason.REFUSED else []
        contents = [content for item in items if item.get("type") == "message" for content in _contents(item)]
        if any(content.get("type") == "refusal" for content in contents):
            return StopReason.REFUSED, []
        return StopReason.END, []

    def _parts(self, items: Sequence[Mapping[str, Any]], *, refused: bool) -> list[Part]:
        kept: list[tuple[Part, ...]] = []
        call_ids: set[str] = set()
        for item in items:
            kind = item.get("type")
            if kind == "function_call":
                cut = item.get("status") == "incomplete" or (
                    self._end == "response.incomplete" and not is_object(item.get("arguments"))
                )
                if refused or cut:
                    continue
                self._check_call(item, call_ids)
            if parts := wrapped(item, self._dialect):
                kept.append(parts)
        while kept and len(kept[-1]) == 1 and _is_reasoning(kept[-1][0]):
            kept.pop()  # the API refuses reasoning that nothing follows; it is the rest of a reply that was cut
        return [part for parts in kept for part in parts]

    @staticmethod
    def _check_call(item: Mapping[str, Any], call_ids: set[str]) -> None:
        call_id = text_of(item, "call_id")
        if not (call_id and text_of(item, "name")) or not isinstance(item.get("arguments"), str):
            raise BrokenStreamError("a tool call without id, name or arguments")
        if call_id in call_ids:
            raise BrokenStreamError(f"two tool calls with the id {call_id}")
        call_ids.add(call_id)

    def _withheld(self) -> str | None:
        """The provider's word that it did not use reasoning that we sent (an edited prefix, another model)."""
        told = self._response.get("input_transformations")
        reasons = Counter(
            str(each.get("reason")) for each in (told if isinstance(told, list) else []) if isinstance(each, Mapping)
        )
        listed = ", ".join(f"{count} × {reason}" for reason, count in reasons.items())
        return f"reasoning of earlier replies was not used: {listed}" if reasons else None

    def _diagnosis(self) -> Diagnosis | None:
        told = self._response.get("prompt_cache_diagnostics")
        if not isinstance(told, Mapping):
            return None
        kind = str(told.get("type"))
        if kind == "cache_miss":
            return Diagnosis(str(told.get("reason")), count_of(told.get("cache_missed_tokens")))
        return Diagnosis(_DIAGNOSES.get(kind, kind))

    def _read_usage(self, response: Mapping[str, Any]) -> None:
        """Disjoint counters from a total that includes what was cached and what was written."""
        usage = response.get("usage")
        if not isinstance(usage, Mapping):
            return
        details = _part(usage, "input_tokens_details")
        total, read, write = (
            count_of(usage.get("input_tokens")),
            count_of(details.get("cached_tokens")),
            count_of(details.get("cache_write_tokens")),
        )
        if write is None and self._cache != "markers":
            write = 0
        fresh = None if total is None or read is None or write is None else total - read - write
        split = _part(details, "cache_write_tokens_details")
        long = count_of(split.get("ttl_12h_tokens"))
        if write == 0 or (write is not None and long is None and not self._long_asked):
            long = 0
        elif write is None or (long is not None and long > write):
            long = None
        self.usage = Usage(
            fresh=fresh if fresh is None or fresh >= 0 else None,  # a gateway that counts otherwise
            cache_read=read,
            cache_write=write,
            cache_write_long=long,
            output=count_of(usage.get("output_tokens")),
            reasoning=count_of(_part(usage, "output_tokens_details").get("reasoning_tokens")),
            tier=tier_of(response.get("service_tier")),
        )


def _told(response: Mapping[str, Any]) -> dict[str, Any]:
    """What a response says; what it leaves open does not undo what an earlier event said."""
    return {key: value for key, value in response.items() if value is not None}


def _contents(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    contents = item.get("content")
    return [content for content in (contents if isinstance(contents, list) else []) if isinstance(content, Mapping)]


def _is_reasoning(part: Part) -> bool:
    return isinstance(part, Opaque) and json.loads(part.data).get("type") == "reasoning"


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}
