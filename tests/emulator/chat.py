"""Chat Completions as OpenAI and compatible servers speak it, one API for each flavour of `chat_flavours`.

OpenAI's own is at `/v1/chat/completions` and, like all others, at `/flavours/<name>/v1/chat/completions`; beside it
lies `/v1/models`. Sources: provider rules 3 as of 2026-12-01; openai SDK 3.57.0, `types/chat/`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .api import ApiFactory, Event, Generation, Offer, Reader, Recorded, Surroundings, json_answer
from .bill import Account, Bill
from .chat_flavours import FLAVOURS, Flavour, option_refusal, timings
from .chat_rules import refusal
from .chat_stream import call_ids, finish_reason, message, stream
from .models import Model
from .openai_cache import LONG, AutomaticCache, BreakpointCache, Lookup, Mode
from .openai_diagnostics import settings
from .openai_errors import bracketed, no_key, refused
from .openai_models import traits
from .openai_prefix import Body, Element, chat_elements, default_ttl
from .script import Failure, Reply, Think
from .tokens import text_tokens


class ChatReader:
    """What a scripted model finds in a Chat Completions request."""

    def offers(self, body: Mapping[str, Any]) -> list[Offer]:
        functions = [tool.get("function") or {} for tool in body.get("tools") or []]
        return [
            Offer(each["name"], tuple((each.get("parameters") or {}).get("properties") or {})) for each in functions
        ]

    def steps_taken(self, body: Mapping[str, Any]) -> int:
        """Replies with calls since the last command: user messages between two replies, without tool results."""
        steps, spoken, results = 0, False, False
        for said in reversed(body.get("messages") or []):
            role = said.get("role")
            if role == "assistant":
                if spoken and not results:
                    break
                steps += bool(said.get("tool_calls"))
                spoken = results = False
            results = results or role == "tool"
            spoken = spoken or role == "user"
        return steps


class ChatApi:
    """One server. `context` in tokens overrides what its flavour has."""

    def __init__(self, around: Surroundings, flavour: Flavour) -> None:
        self.name = f"chat-{flavour.name}"
        self.reader: Reader = ChatReader()
        self.around = around
        self.flavour = flavour
        self.breakpoints = BreakpointCache()
        self.automatic = AutomaticCache(step=flavour.step, minimum=flavour.minimum, lifetime=flavour.lifetime)
        self.openai_automatic = AutomaticCache()
        self.thought: set[str] = set()  # ids of calls that were made after thinking
        self._create = _Create(self)

    def env(self, url: str) -> dict[str, str]:
        name = self.flavour.name.upper().replace("-", "_")
        return {f"EMULATOR_{name}_BASE_URL": f"{url}/flavours/{self.flavour.name}/v1"}

    def find(self, method: str, path: str) -> Generation | Callable[[Recorded], Failure] | None:
        rest = path.removeprefix(f"/flavours/{self.flavour.name}")
        if rest == path and self.flavour.name != "openai":
            return None
        if (method, rest) == ("POST", "/v1/chat/completions"):
            return self._create
        if method == "GET" and rest.startswith("/v1/models"):
            return self._models()
        return None

    def error_body(self, failure: Failure, request_id: str) -> Any:
        return self.flavour.errors(failure)

    def option_refusal(self, place: str, option: str) -> Failure:
        written = bracketed(place) if self.flavour.name == "openai" else place
        return option_refusal(self.flavour, written, option)

    def evict_all(self) -> None:
        for cache in (self.breakpoints, self.automatic, self.openai_automatic):
            cache.entries.evict()

    def model(self, body: Body) -> Model | None:
        """The model with its price; None where it has none (local servers)."""
        name = str(body.get("model"))
        if self.flavour.name == "openai":
            return self.around.models.find(name)
        if self.flavour.cache_control:
            return self.around.models.find(name.rpartition("/")[2])
        return self.flavour.models.find(name)

    def context(self, model: Model | None) -> int:
        return traits(model.name).max_input if self.flavour.name == "openai" and model else self.flavour.context

    def _models(self) -> Callable[[Recorded], Failure]:
        def models(request: Recorded) -> Failure:
            names = list(self.flavour.names)
            if self.flavour.name == "openai":
                names = [name for name in self.around.models.rows if name.startswith("gpt")]
            rows = [_model_row(name, self.flavour, int(request.at)) for name in names]
            asked = request.path.partition("/v1/models/")[2]
            if not asked:
                return json_answer({"object": "list", "data": rows})
            found = [row for row in rows if row["id"] == asked]
            if found:
                return json_answer(found[0])
            return refused(f"The model '{asked}' does not exist", "model", "model_not_found", 404)

        return models

    def look_up(self, body: Body, elements: list[Element], at: float, reply: Reply) -> Lookup:
        """What the server's own cache, or that of the provider behind it, makes of a request."""
        model, marked = self.model(body), any(element.mark for element in elements)
        granted = dict.fromkeys(LONG, "5m" if self.flavour.cache_control else "30m") if reply.short_ttl else None
        mode: Mode = (body.get("prompt_cache_options") or {}).get("mode") or "implicit"
        if self.flavour.name == "openai" and model is not None and model.automatic:
            key = settings(body)
            return self.openai_automatic.look_up(
                elements, key=(key.model, key.prompt_cache_key), now=at, lifetime=model.short, evict=reply.evict
            )
        if self.flavour.name == "openai" or (self.flavour.cache_control and marked):
            return self.breakpoints.look_up(
                elements,
                key=settings(body),
                now=at,
                mode="cache_control" if self.flavour.cache_control else mode,
                ttl=default_ttl(body),
                minimum=1024 if model is None else model.minimum,
                granted=granted,
                evict=reply.evict,
            )
        bare = [replace(element, mark=None) for element in elements]
        return self.automatic.look_up(bare, key=str(body.get("model")), now=at, evict=reply.evict)


def _model_row(name: str, flavour: Flavour, created: int) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": flavour.name}
    if flavour.name.startswith("vllm"):
        row["max_model_len"] = flavour.context
    elif flavour.name == "openrouter":
        row |= {"name": name, "context_length": flavour.context}
    elif flavour.name == "llama-server":
        row |= {"owned_by": "llamacpp", "meta": {"n_ctx_train": flavour.context, "n_ctx": flavour.context}}
    return row


@dataclass(frozen=True)
class _Notes:
    usage: Mapping[str, Any]
    timings: Mapping[str, Any] | None


class _Create:
    """POST …/v1/chat/completions."""

    def __init__(self, api: ChatApi) -> None:
        self._api = api

    def refusal(self, request: Recorded) -> Failure | None:
        flavour, body = self._api.flavour, request.body
        if flavour.strict and "authorization" not in request.headers:
            return no_key()
        model = self._api.model(body)
        if (found := refusal(body, flavour, model) or self._withheld(body)) is not None:
            return found
        context = self._api.context(model)
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        size = sum(element.tokens for element in chat_elements(body))
        both = flavour.name in ("deepseek", "openrouter")
        return flavour.overflow(size, asked, context) if size + (asked if both else 0) > context else None

    def _withheld(self, body: Body) -> Failure | None:
        """DeepSeek: the reasoning before a call must come back with it in its turn; of earlier turns the field must be
        there, but may be empty (continuedev/continue#11285, earendil-works/pi#3835).
        """
        if not self._api.flavour.returns_reasoning:
            return None
        last = max((number for number, said in enumerate(body["messages"]) if said["role"] == "user"), default=0)
        for number, said in enumerate(body["messages"]):
            ids = {call.get("id") for call in said.get("tool_calls") or []}
            told = said.get("reasoning_content") if number > last else "reasoning_content" in said
            if ids & self._api.thought and not told:
                text = f"Missing `reasoning_content` field in the assistant message at message index {number}."
                return refused(text, None, "invalid_request_error")
        return None

    def unscripted(self, request: Recorded) -> Reply | None:
        return None

    def account(self, request: Recorded, reply: Reply) -> Account:
        api, flavour, elements = self._api, self._api.flavour, chat_elements(request.body)
        if flavour.cache_control and request.body.get("cache_control") and elements:
            ttl = request.body["cache_control"].get("ttl") or "5m"
            elements[-1] = replace(elements[-1], mark=ttl)
        found = api.look_up(request.body, elements, request.at, reply)
        bill = replace(found.bill, model=api.model(request.body))
        if flavour.name == "ollama" and bill.input_total > flavour.context:  # cut silently: the prefix is gone
            bill = Bill(flavour.context)
        thought = sum(text_tokens(part.text) for part in reply.parts if isinstance(part, Think))
        true = flavour.usage(bill, reply.output_tokens, min(thought, reply.output_tokens))
        if reply.usage is not None:
            kept = {"completion_tokens": reply.output_tokens}
            true = {key: value for key, value in {**kept, **reply.usage}.items() if value is not None}
        notes = _Notes({**true, **reply.final_usage}, timings(bill, reply.output_tokens) if flavour.timings else None)

        def begin() -> None:
            found.begin()
            if thought:
                api.thought.update(call_ids(reply, request.number))

        return Account(bill, begin, notes)

    def streams(self, request: Recorded) -> bool:
        return bool(request.body.get("stream"))

    def _head(self, request: Recorded, kind: str) -> dict[str, Any]:
        head: dict[str, Any] = {
            "id": f"chatcmpl-{request.number:04}",
            "object": kind,
            "created": int(request.at),
            "model": request.body.get("model"),
        }
        return {**head, "provider": "Test"} if self._api.flavour.name == "openrouter" else head

    def events(self, request: Recorded, reply: Reply, account: Account) -> Iterator[Event]:
        return stream(
            reply,
            self._api.flavour,
            request.number,
            self._head(request, "chat.completion.chunk"),
            account.notes.usage,
            include_usage=bool((request.body.get("stream_options") or {}).get("include_usage")),
            timings=account.notes.timings,
        )

    def message(self, request: Recorded, reply: Reply, account: Account) -> Mapping[str, Any]:
        answer = message(reply, self._api.flavour, request.number)
        choice = {"index": 0, "message": answer, "logprobs": None, "finish_reason": finish_reason(reply)}
        last = {} if account.notes.timings is None else {"timings": account.notes.timings}
        return {**self._head(request, "chat.completion"), "choices": [choice], "usage": account.notes.usage, **last}

    def error_event(self, kind: str, message: str) -> Event:
        error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": kind}
        if self._api.flavour.name == "openrouter":  # an ordinary chunk with the error beside an ended choice
            error = {"message": message, "code": 502, "metadata": {"error_type": kind}}
            choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
            return Event(None, {"object": "chat.completion.chunk", "error": error, "choices": [choice]})
        return Event(None, {"error": error})

    def garbage_event(self) -> Event:
        return Event(None, '{"id":"chatcmpl-1","object":"chat.completion.chu')


def _factory(flavour: Flavour) -> ApiFactory:
    return lambda around: ChatApi(around, flavour)


CHAT_APIS: tuple[ApiFactory, ...] = tuple(_factory(flavour) for flavour in FLAVOURS.values())
"""One API for each flavour; OpenAI's own also answers at `/v1`."""
