"""OpenAI's models on the Responses API, through the official SDK or any gateway named in OPENAI_BASE_URL.

Stateless: nothing is stored at the provider, and encrypted reasoning comes back with every request. Models from
gpt-5.6 on cache at breakpoints that we set; older ones cache any prefix by themselves. The body is ours, byte for byte
(`openai_wire`), and retries are the loop's. Sources: openai 3.57.0, types/responses/response_create_params.py; provider
rules 2.1 and 2.2, 2026-12-01.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from backends.base import BackendError, CacheOption, Capabilities, Env, ErrorKind, Event, Request, Usage, WireStore
from backends.catalog import ModelInfo
from backends.errors import Endpoint, Fault, api_error, broken_answer, cut_stream
from backends.growing_body import DamagedWireError
from backends.openai_client import connect, post, stream
from backends.openai_reply import ReplyReader
from backends.openai_wire import RequestBody, dialect_of
from backends.payload import BrokenStreamError
from backends.sse import drain
from context.block import Layer
from context.breakpoints import Marker
from context.prompt import Prompt

if TYPE_CHECKING:
    import openai

OFFICIAL_URL: Final = "https://api.openai.com/v1"

_PATH: Final = "/responses"
_LEAST_OUTPUT: Final = 16  # tokens; the API refuses less
# "Your organization must be verified to generate reasoning summaries", or the field's name.
_NO_SUMMARIES: Final = re.compile(r"reasoning[. ]summar", re.IGNORECASE)


class OpenAIBackend:
    """One model on the Responses API.

    `env` holds OPENAI_API_KEY, and perhaps OPENAI_BASE_URL. `official`: whether the base URL is OpenAI's own API, which
    alone is asked for cache diagnostics (None: told by the URL). Time-outs in seconds: to connect, and between two
    signs of life in a stream.
    """

    def __init__(
        self,
        model: ModelInfo,
        *,
        env: Env,
        wires: WireStore,
        official: bool | None = None,
        connect_timeout: float = 10.0,
        read_timeout: float = 600.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._model = model
        self._timeouts = (connect_timeout, read_timeout)
        self._dialect = dialect_of(model.id)
        self._body = RequestBody(wires, self._dialect)
        self._key = env.get("OPENAI_API_KEY", "").strip()
        base_url = env.get("OPENAI_BASE_URL", "").strip() or OFFICIAL_URL
        self._endpoint = Endpoint(
            base_url=base_url,
            url_from="OPENAI_BASE_URL",
            url_hint=", it mostly ends in /v1",
            serves="OpenAI's Responses API",
            model=model.name,
            official=base_url.rstrip("/") == OFFICIAL_URL if official is None else official,
            key_from="OPENAI_API_KEY",
            secrets=(self._key,) if self._key else (),
            now=now,
        )
        self._summaries = model.thinking == "reasoning"  # until the API says that this organisation gets none
        self._client: openai.AsyncOpenAI | None = None
        self._preparing = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def dialect(self) -> str:
        return self._dialect

    @property
    def endpoint(self) -> str:
        return self._endpoint.address

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    async def prepare(self) -> None:
        """Load the SDK and make the client, in a thread, so that the caller can do other work meanwhile.

        Sends nothing. Raises BackendError at once when there is no usable key or base URL. Idempotent; `stream` does
        it when nobody did.
        """
        self._check_key()
        self._endpoint.check()
        await self._connected()

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Run one call: see `Backend.stream`. `request.temperature` is not sent; reasoning models refuse it."""
        try:
            async with aclosing(self._attempt(request)) as events:
                async for event in events:
                    yield event
            return
        except BackendError as error:  # a 400, so nothing has begun
            if not (self._summaries and error.kind is ErrorKind.INVALID and _NO_SUMMARIES.search(str(error))):
                raise
            self._summaries = False
        async with aclosing(self._attempt(request)) as events:
            async for event in events:
                yield event

    async def _attempt(self, request: Request) -> AsyncGenerator[Event, None]:
        await self.prepare()
        client = await self._connected()
        body = self._build(request)
        reader = self._reader(request)
        try:
            async with aclosing(stream(client, _PATH, body, self._endpoint)) as payloads:
                async for payload in payloads:
                    for event in reader.feed(payload):
                        yield event
                    self._raise_failure(payload)
                    if reader.whole:
                        break  # a connection that is lost from here on has lost nothing of the reply
                if not reader.whole:
                    raise cut_stream(self._endpoint)
                for event in reader.finish():
                    yield event
                await drain(payloads)
        except BrokenStreamError as error:
            raise broken_answer(self._endpoint, f"a broken stream ({error})") from error

    async def warm(self, request: Request) -> Usage | None:
        """A request with `prewarm`: it writes or reads the breakpoints and generates nothing. None, and nothing is
        sent, for a model that caches by itself, without a marker, and where the endpoint refuses the option.
        """
        if self._model.cache != "markers" or not self._markers(request) or CacheOption.MODE in request.off:
            return None
        await self.prepare()
        client = await self._connected()
        answer = await post(client, _PATH, self._build(request, prewarm=True), self._endpoint)
        failed = {"type": "response.failed"} if answer.get("status") == "failed" else {}
        ended = {"type": "response.completed", **failed, "response": answer}
        self._raise_failure(ended)
        reader = self._reader(request)
        try:
            for _ in reader.feed(ended):
                pass
        except BrokenStreamError as error:
            raise broken_answer(self._endpoint, f"a broken response ({error})") from error
        return reader.usage

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connected(self) -> "openai.AsyncOpenAI":
        async with self._preparing:
            if self._client is None:
                self._client = await asyncio.to_thread(connect, self._endpoint, self._key, self._timeouts)
            return self._client

    def _check_key(self) -> None:
        if not self._key:
            raise BackendError(
                ErrorKind.AUTH,
                f"No key for {self.name}: set OPENAI_API_KEY, or use a model on this machine with --model "
                "local/qwen2.5-coder-1.5b.",
            )
        if not all("!" <= char <= "~" for char in self._key):
            raise BackendError(
                ErrorKind.AUTH, "OPENAI_API_KEY holds a space or a character that no key has. Copy the key again."
            )

    def _reader(self, request: Request) -> ReplyReader:
        long_asked = any(marker.ttl == "long" for marker in self._markers(request))
        return ReplyReader(self._dialect, cache=self._model.cache, long_asked=long_asked)

    def _markers(self, request: Request) -> tuple[Marker, ...]:
        """The request's markers as this model and this endpoint take them."""
        if self._model.cache != "markers" or CacheOption.MARKERS in request.off:
            return ()
        if CacheOption.LONG_TTL in request.off:
            return tuple(Marker(marker.blocks, "short") for marker in request.markers)
        return request.markers

    def _build(self, request: Request, *, prewarm: bool = False) -> bytes:
        head: dict[str, object] = {"model": self._model.id, "store": False}
        if self._model.thinking == "reasoning":
            head["include"] = ["reasoning.encrypted_content"]
        head["parallel_tool_calls"] = True
        try:
            self._body.extend_to(request.prompt)
        except DamagedWireError as error:
            raise BackendError(
                ErrorKind.INVALID, f"This session's record is damaged ({error}). Nothing was sent. Start a new session."
            ) from error
        return self._body.take(head, self._markers(request), self._tail(request, prewarm=prewarm))

    def _tail(self, request: Request, *, prewarm: bool) -> dict[str, object]:
        """All that may differ between two requests of a conversation."""
        off = request.off
        tail: dict[str, object] = {"stream": not prewarm}
        if not prewarm and CacheOption.USAGE not in off:
            tail["stream_options"] = {"include_obfuscation": False}
        limit = self._model.max_output if request.max_output is None else request.max_output
        tail["max_output_tokens"] = max(_LEAST_OUTPUT, limit)
        effort = {} if request.effort is None else {"effort": request.effort}
        summary = {"summary": "auto"} if self._summaries else {}
        if effort or summary:
            tail["reasoning"] = {**effort, **summary}
        if CacheOption.KEY not in off:
            tail["prompt_cache_key"] = cache_key(request.prompt)
        if self._model.cache == "automatic" and CacheOption.LONG_TTL not in off:
            tail["prompt_cache_retention"] = "24h"
        if self._model.cache == "markers" and CacheOption.MODE not in off:
            options: dict[str, object] = {}
            if CacheOption.MARKERS not in off:  # without breakpoints of ours the explicit mode would cache nothing
                options["mode"] = "explicit"
            if prewarm:
                options["prewarm"] = True
            elif self._endpoint.official and request.previous_response and CacheOption.DIAGNOSTICS not in off:
                options["comparison_response_id"] = request.previous_response
            if options:
                tail["prompt_cache_options"] = options
        return tail

    def _raise_failure(self, payload: Any) -> None:
        """Raises BackendError for an event that ends a stream in failure."""
        match payload:
            case {"type": "response.failed", "response": Mapping() as response}:
                told = response.get("error") or {"message": "the response failed without a word why"}
            case {"type": "error"}:
                told = payload
            case _:
                return
        fault = Fault.read(told) if isinstance(told, Mapping) else Fault(str(told))
        raise api_error(fault, self._endpoint)


def cache_key(prompt: Prompt) -> str:
    """The name of the cache that a prompt's requests share: stable for an epoch, and the same for forks and for other
    sessions on the same snapshot of the same project.
    """
    return f"keepwarm-{prompt.head(Layer.PROJECT).digest[:32]}"
