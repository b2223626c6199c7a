"""Anthropic's Messages API as it plugs into the server: messages, token counts, models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .anthropic_binding import compaction_signature, mismatches, signer, without
from .anthropic_cache import PromptCache, size, usage_of
from .anthropic_diagnosis import Fingerprint, diagnose
from .anthropic_rules import BINDING_BETA, MOST_BYTES, refusal
from .anthropic_wire import AnthropicReader, error_body, events, message
from .api import Event, Handler, Reader, Recorded, Surroundings, json_answer
from .bill import Account, Bill
from .bodies import Body
from .models import ANTHROPIC, Model
from .script import Failure, Reply
from .tokens import text_tokens

_UNKNOWN = replace(ANTHROPIC[0], name="unknown", minimum=1024, binding=False)


@dataclass(frozen=True)
class _Notes:
    """`body`: the request as the model reads it; `said`: extra fields of the message; `dropped`: the thinking that is
    not read, None if the client did not ask to be told.
    """

    body: Body
    said: Mapping[str, Any]
    dropped: list[dict[str, Any]] | None


class AnthropicApi:
    """Keeps the cached prefixes and what diagnostics compare with."""

    name = "anthropic"
    reader: Reader = AnthropicReader()

    def __init__(self, around: Surroundings) -> None:
        self._models = around.models
        self._strict = around.strict
        self._cache = PromptCache()
        self._fingerprints: dict[str, Fingerprint] = {}

    def env(self, url: str) -> dict[str, str]:
        return {"ANTHROPIC_API_KEY": "sk-ant-test-key", "ANTHROPIC_BASE_URL": url}

    def find(self, method: str, path: str) -> Handler | None:
        match method, path:
            case "POST", "/v1/messages":
                return self
            case "POST", "/v1/messages/count_tokens":
                return self._count
            case "GET", _ if path.startswith("/v1/models/claude-"):
                return self._model_info
        return None

    def error_body(self, failure: Failure, request_id: str) -> dict[str, Any]:
        return error_body(failure, request_id)

    def option_refusal(self, place: str, option: str) -> Failure:
        return Failure(400, ("invalid_request_error", f"{place}: Extra inputs are not permitted"))

    def evict_all(self) -> None:
        self._cache.evict_all()

    def _model(self, body: Body) -> Model:
        return self._models.find(body.get("model")) or _UNKNOWN

    # What is refused

    def refusal(self, request: Recorded, *, counting: bool = False) -> Failure | None:
        if not (request.headers.get("authorization") or request.headers.get("x-api-key")):
            return Failure(401, ("authentication_error", "no API key was sent"))
        if "anthropic-version" not in request.headers:
            return Failure(400, ("invalid_request_error", "anthropic-version: header is required"))
        if len(request.raw) > MOST_BYTES:
            return Failure(413, ("request_too_large", "Request exceeds the maximum size"))
        if self._models.find(request.body.get("model")) is None:
            return Failure(404, ("not_found_error", f"model: {request.body.get('model')}"))
        model = self._model(request.body)
        reason = refusal(request.body, model, _betas(request), counting=counting) or self._bound(request.body, model)
        if reason is not None:
            return Failure(400, ("invalid_request_error", reason))
        total = size(request.body)
        if total > model.context:
            reason = f"prompt is too long: {total} tokens > {model.context} maximum"
            return Failure(400, ("invalid_request_error", reason))
        return None

    def _bound(self, body: Body, model: Model) -> str | None:
        """Thinking that stands in another conversation is refused, unless the client wants it dropped."""
        binding = (body.get("thinking") or {}).get("block_binding") or {}
        if binding.get("prefix_mismatch_behavior") == "drop_block":
            return None
        for mismatch in mismatches(body, model):
            if mismatch.reason == "prefix_binding_mismatch":
                return (
                    f"{mismatch.path}: Invalid `signature` in `thinking` block. "
                    "The block is bound to a different conversation."
                )
        return None

    # What a model answers

    def unscripted(self, request: Recorded) -> Reply | None:
        if request.body.get("max_tokens") == 0:
            return Reply(stop="max_tokens", output_tokens=0)
        if request.body.get("compaction") is not None:
            text = f"Summary of {len(request.body['messages'])} messages."
            return Reply.of(text, stop="compaction", output_tokens=text_tokens(text))
        return None

    def account(self, request: Recorded, reply: Reply) -> Account:
        model = self._model(request.body)
        unfit = mismatches(request.body, model)
        body = without(request.body, {mismatch.place for mismatch in unfit}) if self._strict else request.body
        account = self._cache.account(body, model, request.at, reply)
        fingerprint = Fingerprint.of(body, model)
        said: dict[str, Any] = {}
        if "diagnostics" in request.body:
            said["diagnostics"] = self._diagnosis(request.body["diagnostics"], fingerprint, account.bill.read)
        if reply.diagnostics is not None:
            said["diagnostics"] = reply.diagnostics
        dropped = [{"type": "thinking_dropped", "path": each.path, "reason": each.reason} for each in unfit]

        def begin() -> None:
            account.begin()
            self._fingerprints[f"msg_{request.number:04}"] = fingerprint

        notes = _Notes(body, said, dropped if BINDING_BETA in _betas(request) else None)
        return Account(account.bill, begin, notes)

    def _diagnosis(self, asked: Mapping[str, Any] | None, now: Fingerprint, read: int) -> Mapping[str, Any] | None:
        previous = (asked or {}).get("previous_message_id")
        return None if previous is None else diagnose(now, self._fingerprints.get(previous), read)

    def streams(self, request: Recorded) -> bool:
        return bool(request.body.get("stream"))

    def events(self, request: Recorded, reply: Reply, account: Account) -> Iterator[Event]:
        notes: _Notes = account.notes
        usage, compaction = self._usage(request, reply, account.bill), _compaction(request)
        final = {} if notes.dropped is None else {"input_transformations": notes.dropped}
        if "iterations" in usage:
            reply = replace(reply, final_usage={"iterations": usage.pop("iterations"), **reply.final_usage})
        payloads = events(
            replace(reply, output_tokens=0) if compaction else reply,
            number=request.number,
            model=request.body["model"],
            usage=usage,
            sign=signer(notes.body),
            extra=notes.said,
            final=final,
            compaction=compaction,
        )
        first = next(payloads)
        yield Event(first["type"], first)
        yield Event("ping", {"type": "ping"}, counted=False)
        for payload in payloads:
            yield Event(payload["type"], payload, settles=payload["type"] == "message_delta")

    def message(self, request: Recorded, reply: Reply, account: Account) -> Mapping[str, Any]:
        notes: _Notes = account.notes
        compaction = _compaction(request)
        extra = dict(notes.said)
        if notes.dropped is not None:
            extra["input_transformations"] = notes.dropped
        return message(
            replace(reply, output_tokens=0) if compaction else reply,
            number=request.number,
            model=request.body["model"],
            usage=self._usage(request, reply, account.bill),
            sign=signer(notes.body),
            extra=extra,
            compaction=compaction,
        )

    def _usage(self, request: Recorded, reply: Reply, bill: Bill) -> dict[str, Any]:
        """The counters to report. What a compaction costs stands in its iteration alone."""
        if reply.usage is not None:
            return dict(reply.usage)
        if _compaction(request) is None:
            return {**usage_of(bill), "service_tier": "standard"}
        iteration = {"type": "compaction", **usage_of(bill), "output_tokens": reply.output_tokens}
        return {**usage_of(Bill(0)), "iterations": [iteration]}

    def error_event(self, kind: str, message: str) -> Event:
        return Event("error", {"type": "error", "error": {"type": kind, "message": message}})

    def garbage_event(self) -> Event:
        return Event("content_block_delta", '{"type": "content_block_de')

    # What needs no model

    def _count(self, request: Recorded) -> Failure:
        refused = self.refusal(request, counting=True) if self._strict else None
        return refused or json_answer({"input_tokens": size(request.body)})

    def _model_info(self, request: Recorded) -> Failure:
        model = self._models.find(request.path.rpartition("/")[2])
        if model is None:
            return Failure(404, ("not_found_error", f"model: {request.path.rpartition('/')[2]}"))
        return json_answer(
            {
                "type": "model",
                "id": model.name,
                "display_name": model.name,
                "created_at": "1970-01-01T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": model.context,
                "max_tokens": model.max_output,
            }
        )


def _betas(request: Recorded) -> frozenset[str]:
    return frozenset(beta.strip() for beta in request.headers.get("anthropic-beta", "").split(",") if beta.strip())


def _compaction(request: Recorded) -> str | None:
    """The signature of the block that the request asks for, if it asks for one."""
    return None if request.body.get("compaction") is None else compaction_signature(request.body)
