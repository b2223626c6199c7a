"""One streamed reply of Chat Completions, chunk by chunk, turned into the events of `backends.base`.

Servers take liberties with the form, so this reads what real ones send: calls without index or id, with one index or
id for several of them, with their arguments in one piece or as an object; reasoning under three names; the usage in a
chunk of its own, in the last one, in every one, or inside the choice. Sources: openai 3.57.0,
types/chat/chat_completion_chunk.py; provider rules of 2026-12-01, section 3; the servers' documentation as named in
endpoints.toml.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backends.base import (
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
from backends.compatible_endpoints import Endpoint
from backends.compatible_usage import read_usage
from backends.payload import BrokenStreamError, dumps, is_object, mapping_of
from context.block import Opaque, Part, Text, ToolCall

_STOPS: Final = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "completed"), StopReason.END),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), StopReason.TOOLS),
    **dict.fromkeys(("length", "max_tokens", "model_length"), StopReason.MAX_OUTPUT),
    **dict.fromkeys(("content_filter", "safety", "refusal", "sensitive", "recitation"), StopReason.REFUSED),
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
}
# Ends that are failures of the server: DeepSeek's page on the API, OpenRouter's on errors in a stream, Z.ai's.
_FAILURES: Final = frozenset({"error", "insufficient_system_resource", "network_error"})
_CUT: Final = frozenset({StopReason.MAX_OUTPUT, StopReason.CONTEXT_FULL, StopReason.REFUSED})
_REASONING: Final = ("reasoning_content", "reasoning")
_EXTRA: Final = "extra_content"


class FailedReplyError(Exception):
    """The server says in the middle of the stream that it failed: `told` is its error."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(str(told))
        self.told = told


@dataclass(slots=True)
class _Call:
    """A tool call while it streams. `place`: its index, if the server gives one."""

    id: str
    place: int | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: object = None

    @property
    def text(self) -> str:
        return "".join(self.arguments)

    @property
    def whole(self) -> bool:
        return is_object(self.text)


class ReplyReader:
    """Feed it the stream's chunks in order.

    Tool calls are reported as finished only when the whole reply is there: a stream that breaks, or a reply that is
    cut inside a call's arguments, leaves no call that could be run. `seed` makes the ids of calls that come without
    one; it must differ between the requests of a session. `marked` and `long_asked` are those of `read_usage`.
    """

    def __init__(
        self, endpoint: Endpoint, dialect: str, *, seed: str, marked: bool = False, long_asked: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._seed = seed
        self._marked = marked
        self._long_asked = long_asked
        self._texts: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._told: dict[str, Any] = {}
        self._id: str | None = None
        self._stop: str | None = None
        self._billed = False  # the last chunk was a bill and nothing else
        self.done = False

    @property
    def whole(self) -> bool:
        """Whether the reply's content is complete: the stop reason has been told, or the stream ends with the bill."""
        return self._stop is not None or self._billed

    @property
    def usage(self) -> Usage:
        """The bill so far."""
        return read_usage(self._told, self._endpoint, marked=self._marked, long_asked=self._long_asked)

    def feed(self, payload: object) -> Iterator[Event]:
        """The events that one chunk means. Raises BrokenStreamError and FailedReplyError."""
        chunk = mapping_of(payload, "a chunk")
        if chunk.get("error") or chunk.get("object") == "error" or chunk.get("type") == "error":
            raise FailedReplyError(chunk)
        if isinstance(chunk.get("id"), str) and chunk["id"]:
            self._id = self._id or chunk["id"]
        choices = chunk.get("choices")
        if choices is not None and not isinstance(choices, list):
            raise BrokenStreamError("choices is no list")
        choice: Mapping[str, Any] = mapping_of(choices[0], "a choice") if choices else {}
        if choice:
            yield from self._choice(choice)
        yield from self._usage_in(chunk, choice)
        self._billed = not choices and isinstance(chunk.get("usage"), Mapping)
        self.done = self.done or (self._billed and self._stop is not None)

    def finish(self) -> Iterator[Event]:
        """The last events of a whole reply: its tool calls, the bill, and the reply itself."""
        stop, detail = self._stop_reason()
        calls = self._whole_calls(stop)
        for call in calls:
            yield ToolCallFinished(call)
        if calls and stop is StopReason.END:
            stop = StopReason.TOOLS  # many servers say "stop"; the calls must be answered all the same
        elif not calls and stop is StopReason.TOOLS:
            stop, detail = StopReason.END, detail or "the model announced a tool call and made none"
        text = "".join(self._texts) or (detail or "" if stop is StopReason.REFUSED and self._refusal else "")
        parts: list[Part] = [*self._opaque(calls), *([Text(text)] if text else []), *calls]
        yield UsageReported(self.usage)
        yield ReplyFinished(tuple(parts), stop, self._id, detail)

    def _usage_in(self, chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> Iterator[Event]:
        groq = chunk.get("x_groq")
        places = (chunk, choice, groq if isinstance(groq, Mapping) else {})  # Moonshot: in the choice
        usage = next((place["usage"] for place in places if isinstance(place.get("usage"), Mapping)), None)
        first = "usage" not in self._told
        if usage is not None:
            self._told["usage"] = usage
        if isinstance(chunk.get("timings"), Mapping):
            self._told["timings"] = chunk["timings"]
        if chunk.get("service_tier"):
            self._told["service_tier"] = chunk["service_tier"]
        if usage is not None and first:
            yield UsageReported(self.usage)

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[Event]:
        delta = choice.get("delta") or choice.get("message") or {}
        yield from self._delta(mapping_of(delta, "delta"))
        stop = choice.get("finish_reason")
        if isinstance(stop, str) and stop:
            self._stop = stop.lower()
            if self._stop in _FAILURES:
                raise FailedReplyError({"message": f"the reply ended with {stop!r}", "code": "server_error"})

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        for name in _REASONING:
            if isinstance(thought := delta.get(name), str) and thought:
                self._reasoning.setdefault(name, []).append(thought)
                if name == "reasoning_content" or not delta.get("reasoning_content"):  # some send both
                    yield ThinkingDelta(thought)
        if isinstance(details := delta.get("reasoning_details"), list):
            self._add_details(details)
        yield from self._content(delta.get("content"))
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal.append(refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for fragment in calls:
                yield from self._fragment(mapping_of(fragment, "a tool call"))
        elif isinstance(legacy := delta.get("function_call"), Mapping):
            yield from self._fragment({"index": 0, "function": legacy})

    def _content(self, content: object) -> Iterator[Event]:
        """A text, or a list of parts (Mistral's reasoning models)."""
        if isinstance(content, str):
            if content:
                self._texts.append(content)
                yield TextDelta(content)
        elif isinstance(content, list):
            for part in content:
                match part:
                    case {"type": "text", "text": str(text)} if text:
                        self._texts.append(text)
                        yield TextDelta(text)
                    case {"type": "thinking", "thinking": [*inner]}:
                        for item in inner:
                            match item:
                                case {"text": str(thought)} if thought:
                                    yield ThinkingDelta(thought)
        elif content is not None:
            raise BrokenStreamError("content is no text")

    def _add_details(self, details: list[Any]) -> None:
        """OpenRouter's reasoning: pieces of one entry have its index and type; they must go back as one."""
        for piece in details:
            if not isinstance(piece, dict):
                continue
            last = self._details[-1] if self._details else {}
            if not all(last.get(key) == piece.get(key) for key in ("type", "index")) or "data" in piece or not last:
                self._details.append(dict(piece))
                continue
            for key, value in piece.items():
                if key in ("text", "summary") and isinstance(value, str) and isinstance(last.get(key), str):
                    last[key] += value
                elif value is not None:
                    last[key] = value

    def _fragment(self, fragment: Mapping[str, Any]) -> Iterator[Event]:
        function = fragment.get("function")
        told = function if isinstance(function, Mapping) else fragment
        name, arguments = told.get("name"), told.get("arguments")
        name = name if isinstance(name, str) else ""
        call = self._call_of(fragment, name, begins=bool(name and arguments))
        if name and not call.name:
            call.name = name
            yield ToolCallStarted(call.id, name)
        if isinstance(arguments, Mapping):  # an object where a text is promised
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str) and arguments:
            call.arguments.append(arguments)
            yield ToolCallDelta(call.id, arguments)
        if fragment.get(_EXTRA) is not None:
            call.extra = fragment[_EXTRA]

    def _call_of(self, fragment: Mapping[str, Any], name: str, *, begins: bool) -> _Call:
        """The call that a fragment belongs to: by its index, else by its id, else the last one; a new one where an id
        or a name shows that another call begins. `begins`: whether the fragment could be the first of a call.
        """
        index, told_id = fragment.get("index"), fragment.get("id")
        place = index if isinstance(index, int) and not isinstance(index, bool) else None
        call_id = told_id if isinstance(told_id, str) else ""
        if place is not None:
            found = next((call for call in reversed(self._calls) if call.place == place), None)
            if found is not None and call_id and call_id != found.id and name:
                found = None  # one index for several calls
        elif call_id:
            found = next((call for call in reversed(self._calls) if call.id == call_id), None)
        else:
            found = self._calls[-1] if self._calls else None
        if found is not None and begins and not call_id and found.name and found.whole:
            found = None  # that one is complete, and here is a name with arguments again
        if found is None:
            found = _Call(self._new_id(call_id), place)
            self._calls.append(found)
        return found

    def _new_id(self, call_id: str) -> str:
        if not call_id:
            return f"call_{self._seed}_{len(self._calls)}"
        taken = any(call.id == call_id for call in self._calls)
        return f"{call_id}_{len(self._calls)}" if taken else call_id

    def _stop_reason(self) -> tuple[StopReason, str | None]:
        refusal = "".join(self._refusal)
        if refusal and not self._texts and not self._calls:
            return StopReason.REFUSED, refusal
        if self._stop is None:
            return StopReason.END, None
        stop = _STOPS.get(self._stop)
        if stop is None:
            return StopReason.END, f"unknown stop reason {self._stop!r}"
        return stop, refusal or None

    def _whole_calls(self, stop: StopReason) -> list[ToolCall]:
        """The calls that can be run. Of a reply that was cut, some may be half: servers send them side by side."""
        if stop is StopReason.REFUSED:
            return []
        whole = [call for call in self._calls if call.name and (call.whole or stop not in _CUT)]
        return [ToolCall(call.id, call.name, call.text or "{}") for call in whole]

    def _opaque(self, calls: list[ToolCall]) -> list[Opaque]:
        """What must go back besides text and calls, as fields of the message: one JSON object."""
        kept: dict[str, Any] = {}
        wanted = self._endpoint.reasoning
        if wanted == "reasoning_details":
            if self._details:
                kept[wanted] = self._details
        elif wanted is not None and self._reasoning:
            name = next(name for name in _REASONING if name in self._reasoning)
            kept[wanted] = "".join(self._reasoning[name])
        ids = {call.id for call in calls}
        extras = {call.id: call.extra for call in self._calls if call.extra is not None and call.id in ids}
        if extras:
            kept[_EXTRA] = extras
        if not kept:
            return []
        return [Opaque(self._dialect, dumps(kept))]
