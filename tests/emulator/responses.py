"""OpenAI's Responses API: create, compact and input_tokens, plugged into the emulator's server.

Sources: openai SDK 3.57.0 (`types/responses/`); provider rules 2 as of 2026-12-01.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .api import Event, Generation, Offer, Reader, Recorded, Surroundings, json_answer
from .bill import Account, Bill
from .models import Model
from .openai_cache import LONG, AutomaticCache, BreakpointCache
from .openai_diagnostics import Answered, answered, diagnose, settings
from .openai_errors import bracketed, error_body, no_key, refused, unknown_parameter
from .openai_models import traits
from .openai_prefix import (
    Body,
    Element,
    default_ttl,
    input_items,
    item_kind,
    parts_of,
    responses_elements,
    run_kind,
    without_marker,
)
from .responses_binding import altered, encrypt, withhold
from .responses_rules import COMPACT, COUNT, CREATE, refusal
from .responses_stream import Shape, pieces, stream
from .script import Failure, Reply, Think
from .tokens import text_tokens

_KEPT: Final = 10_000  # responses whose prefixes are remembered for diagnostics


class ResponsesReader:
    """What a scripted model finds in a Responses request."""

    def offers(self, body: Mapping[str, Any]) -> list[Offer]:
        tools = [tool for tool in body.get("tools") or [] if tool.get("type") == "function"]
        return [Offer(tool["name"], tuple((tool.get("parameters") or {}).get("properties") or {})) for tool in tools]

    def steps_taken(self, body: Mapping[str, Any]) -> int:
        """Replies with calls since the last command: user messages between two replies, without tool results."""
        steps, called, spoken, results = 0, False, False, False
        for item in [*reversed(input_items(body)), {"type": "reasoning"}]:
            kind = run_kind(item)
            if kind == "reply":
                if spoken and not results:
                    break
                called = called or item_kind(item) == "function_call"
                spoken = results = False
                continue
            steps, called = steps + called, False
            results = results or kind == "results"
            spoken = spoken or (kind == "message" and item.get("role") == "user")
        return steps


@dataclass(frozen=True)
class _Notes:
    """What the events need besides the reply."""

    prefix: bytes
    removed: list[dict[str, str]]
    diagnostics: Mapping[str, Any] | None
    automatic: bool


class ResponsesApi:
    name = "responses"

    def __init__(self, around: Surroundings) -> None:
        self.reader: Reader = ResponsesReader()
        self.around = around
        self.breakpoints = BreakpointCache()
        self.automatic = AutomaticCache()
        self.earlier: dict[str, Answered] = {}
        self.lock = threading.Lock()
        self._handlers: dict[tuple[str, str], Generation | Callable[[Recorded], Failure]] = {
            ("POST", "/v1/responses"): _Create(self),
            ("POST", "/v1/responses/compact"): _Compact(self),
            ("POST", "/v1/responses/input_tokens"): self._count(),
        }

    def env(self, url: str) -> dict[str, str]:
        return {"OPENAI_API_KEY": "sk-test-key", "OPENAI_BASE_URL": f"{url}/v1"}

    def find(self, method: str, path: str) -> Generation | Callable[[Recorded], Failure] | None:
        return self._handlers.get((method, path))

    def error_body(self, failure: Failure, request_id: str) -> Mapping[str, Any]:
        return error_body(failure)

    def option_refusal(self, place: str, option: str) -> Failure:
        return unknown_parameter(bracketed(place))

    def evict_all(self) -> None:
        self.breakpoints.entries.evict()
        self.automatic.entries.evict()

    def model(self, body: Body) -> Model | None:
        return self.around.models.find(body.get("model"))

    def elements(self, body: Body) -> list[Element]:
        return responses_elements(body, instructions_first=not traits(str(body.get("model"))).instructions_last)

    def refusal(self, request: Recorded, known: frozenset[str]) -> Failure | None:
        if "authorization" not in request.headers:
            return no_key()
        found = refusal(request.body, self.model(request.body), known) or altered(request.body)
        return found or self._overflow(request.body)

    def _overflow(self, body: Body) -> Failure | None:
        size = sum(element.tokens for element in self.elements(body))
        if size <= traits(str(body.get("model"))).max_input or body.get("truncation") == "auto":
            return None
        text = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return refused(text, "input", "context_length_exceeded")

    def _count(self) -> Callable[[Recorded], Failure]:
        def count(request: Recorded) -> Failure:
            if self.around.strict and (failure := self.refusal(request, COUNT)) is not None:
                return failure
            size = sum(element.tokens for element in self.elements(request.body))
            return json_answer({"object": "response.input_tokens", "input_tokens": size})

        return count

    def account(self, request: Recorded, reply: Reply) -> Account:
        """Bill the request by its model's cache."""
        body, removed, prefix = withhold(request.body, binding=traits(str(request.body.get("model"))).binding)
        model, elements = self.model(body), self.elements(body)
        key = settings(body)
        options = body.get("prompt_cache_options") or {}
        automatic = model is not None and model.automatic
        if automatic:
            assert model is not None
            found = self.automatic.look_up(
                elements, key=(key.model, key.prompt_cache_key), now=request.at, lifetime=model.short, evict=reply.evict
            )
        else:
            found = self.breakpoints.look_up(
                elements,
                key=key,
                now=request.at,
                mode=options.get("mode") or "implicit",
                ttl=default_ttl(body),
                minimum=1024 if model is None else model.minimum,
                granted=dict.fromkeys(LONG, "30m") if reply.short_ttl else None,
                evict=reply.evict,
            )
        mine = answered(body, elements, found.reusable)
        diagnostics = reply.diagnostics or self._diagnose(mine, options, found.bill.read, automatic)

        def begin() -> None:
            found.begin()
            with self.lock:
                self.earlier[f"resp_{request.number:04}"] = mine
                while len(self.earlier) > _KEPT:
                    del self.earlier[next(iter(self.earlier))]

        bill = replace(found.bill, model=model)
        return Account(bill, begin, _Notes(prefix, removed, diagnostics, automatic))

    def _diagnose(self, mine: Answered, options: Body, read: int, automatic: bool) -> Mapping[str, Any] | None:
        compared = options.get("comparison_response_id")
        if compared is None or automatic:
            return None
        with self.lock:
            return diagnose(mine, self.earlier.get(compared), read)


class _Create:
    """POST /v1/responses."""

    def __init__(self, api: ResponsesApi) -> None:
        self._api = api

    def refusal(self, request: Recorded) -> Failure | None:
        return self._api.refusal(request, CREATE)

    def unscripted(self, request: Recorded) -> Reply | None:
        prewarm = (request.body.get("prompt_cache_options") or {}).get("prewarm")
        return Reply(output_tokens=0) if prewarm else None

    def account(self, request: Recorded, reply: Reply) -> Account:
        return self._api.account(request, reply)

    def streams(self, request: Recorded) -> bool:
        return bool(request.body.get("stream"))

    def events(self, request: Recorded, reply: Reply, account: Account) -> Iterator[Event]:
        begun = _response(request, account.notes)
        yield from stream(reply, _shape(request, account.notes), begun, _ended(request, reply, account))

    def message(self, request: Recorded, reply: Reply, account: Account) -> Mapping[str, Any]:
        return _ended(request, reply, account)

    def error_event(self, kind: str, message: str) -> Event:
        data = {"type": "error", "code": kind, "message": message, "param": None, "sequence_number": 0}
        return Event("error", data)

    def garbage_event(self) -> Event:
        return Event("response.output_text.delta", '{"type":"response.output_text.del')


class _Compact(_Create):
    """POST /v1/responses/compact: all messages of the user, and one item that only the provider can read."""

    def refusal(self, request: Recorded) -> Failure | None:
        options = request.body.get("prompt_cache_options") or {}
        for name in options:
            if name not in ("mode", "ttl"):
                return unknown_parameter(f"prompt_cache_options.{name}")
        if options.get("ttl") not in (None, "30m"):
            return refused("Invalid value: '12h'. Supported values are: '30m'.", "prompt_cache_options.ttl")
        return self._api.refusal(request, COMPACT)

    def unscripted(self, request: Recorded) -> Reply | None:
        return Reply()

    def streams(self, request: Recorded) -> bool:
        return False

    def message(self, request: Recorded, reply: Reply, account: Account) -> Mapping[str, Any]:
        users = [item for item in input_items(request.body) if item_kind(item) == "message" and item["role"] == "user"]
        output: list[Any] = [
            {
                "id": f"msg_{request.number:04}_{index}",
                "type": "message",
                "status": "completed",
                "role": "user",
                "content": [without_marker(part) for part in parts_of(item.get("content"), "input_text")],
            }
            for index, item in enumerate(users)
        ]
        content = encrypt(str(request.body["model"]), account.notes.prefix, "what was said so far")
        output.append({"id": f"cmp_{request.number:04}", "type": "compaction", "encrypted_content": content})
        return {
            "id": f"resp_{request.number:04}",
            "object": "response.compaction",
            "created_at": int(request.at),
            "output": output,
            "usage": _usage(reply, account),
        }


def _shape(request: Recorded, notes: _Notes) -> Shape:
    body = request.body
    asked = (body.get("reasoning") or {}).get("summary") is not None
    obfuscate = (body.get("stream_options") or {}).get("include_obfuscation", True)
    return Shape(request.number, str(body.get("model")), notes.prefix, asked, bool(obfuscate))


def _response(request: Recorded, notes: _Notes) -> dict[str, Any]:
    """The response as it begins."""
    body = request.body
    text = body.get("text") or {}
    tier = {"fast": "priority", "auto": "default", None: "default"}.get(body.get("service_tier"), "default")
    response: dict[str, Any] = {
        "id": f"resp_{request.number:04}",
        "object": "response",
        "created_at": int(request.at),
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": body.get("model"),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": settings(body).effort, "summary": (body.get("reasoning") or {}).get("summary")},
        "service_tier": tier,
        "store": body.get("store", True),
        "temperature": None,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "truncation": body.get("truncation", "disabled"),
        "usage": None,
    }
    if notes.removed:
        response["input_transformations"] = notes.removed
    if not notes.automatic:
        options = body.get("prompt_cache_options") or {}
        response["prompt_cache_options"] = {
            "mode": options.get("mode") or "implicit",
            "ttl": options.get("ttl") or "30m",
            "comparison_response_id": options.get("comparison_response_id"),
        }
    return response


def _ended(request: Recorded, reply: Reply, account: Account) -> dict[str, Any]:
    """The response as it ends: completed, incomplete (`max_output_tokens`, `content_filter`) or failed."""
    notes: _Notes = account.notes
    response = _response(request, notes)
    response["output"] = [piece.item for piece in pieces(reply, _shape(request, notes))]
    response["usage"] = _usage(reply, account)
    if notes.diagnostics is not None:
        response["prompt_cache_diagnostics"] = notes.diagnostics
    if reply.stop == "failed":
        given = reply.stop_details or {}
        error = {"code": "server_error", "message": "The server had an error processing your request.", **given}
        return {**response, "status": "failed", "error": error}
    if reply.stop in ("max_output_tokens", "content_filter", "max_messages"):
        return {**response, "status": "incomplete", "incomplete_details": {"reason": reply.stop}}
    return {**response, "status": "completed", "completed_at": int(request.at)}


def _usage(reply: Reply, account: Account) -> dict[str, Any]:
    """The usage as it is reported: the true bill, unless the script says otherwise."""
    bill: Bill = account.bill
    details: dict[str, Any] = {"cached_tokens": bill.read}
    if not account.notes.automatic:
        details["cache_write_tokens"] = bill.write_short + bill.write_long
        details["cache_write_tokens_details"] = {
            "ttl_30m_tokens": bill.write_short,
            "ttl_12h_tokens": bill.write_long,
        }
    thought = sum(text_tokens(part.text) for part in reply.parts if isinstance(part, Think))
    true = {
        "input_tokens": bill.input_total,
        "input_tokens_details": details,
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": min(thought, reply.output_tokens)},
        "total_tokens": bill.input_total + reply.output_tokens,
    }
    if reply.usage is not None:
        kept = {key: value for key, value in true.items() if key.startswith("output")}
        true = {key: value for key, value in {**kept, **reply.usage}.items() if value is not None}
    return {**true, **reply.final_usage}
