"""Claude, on Anthropic's Messages API through the official SDK, or on any gateway named in ANTHROPIC_BASE_URL.

The SDK (about a second to import) is loaded by `prepare`, in a thread. It does authentication, headers, connections
and time-outs; the body is ours, byte for byte (`anthropic_wire`), and retries are the loop's. The rules are those of
API version 2026-10-21, which anthropic 2.14.0 speaks: no sampling parameters, no forced tool choice on the newest
models, thinking blocks returned unmodified.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from backends.anthropic_errors import OFFICIAL_URL, error_in_stream, from_sdk
from backends.anthropic_reply import ReplyReader
from backends.anthropic_wire import RequestBody, dialect_of
from backends.base import BackendError, CacheOption, Capabilities, Env, ErrorKind, Event, Request, Usage, WireStore
from backends.catalog import ModelInfo
from backends.errors import Endpoint, broken_answer, cut_stream
from backends.growing_body import DamagedWireError
from backends.payload import BrokenStreamError
from backends.sse import check_type, drain
from context.block import Layer

if TYPE_CHECKING:
    import anthropic


# What a request that only writes SYSTEM and PROJECT says: the API wants one message at least. It stands behind the last
# marker, so it is no part of what is cached.
_NO_MESSAGES = ({"role": "user", "content": "."},)


class AnthropicBackend:
    """One Claude model.

    `env` holds ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and perhaps ANTHROPIC_BASE_URL. `official`: whether the base
    URL is Anthropic's own API, which alone answers cache diagnostics (None: told by the URL). Time-outs in seconds: to
    connect, and between two signs of life in a stream.
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
        variable = "ANTHROPIC_API_KEY" if env.get("ANTHROPIC_API_KEY", "").strip() else "ANTHROPIC_AUTH_TOKEN"
        self._key = env.get(variable, "").strip()
        base_url = env.get("ANTHROPIC_BASE_URL", "").strip() or OFFICIAL_URL
        self._endpoint = Endpoint(
            base_url=base_url,
            url_from="ANTHROPIC_BASE_URL",
            url_hint=", it needs no /v1 at its end",
            serves="Anthropic's Messages API",
            model=model.name,
            official=base_url.rstrip("/") == OFFICIAL_URL if official is None else official,
            key_from=variable,
            secrets=(self._key,) if self._key else (),
            now=now,
        )
        self._client: anthropic.AsyncAnthropic | None = None
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
        async with self._preparing:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Run one call: see `Backend.stream`. `request.temperature` is not sent; the API refuses it."""
        await self.prepare()
        body = self._build(request)
        reader = self._reader(request)
        try:
            async with aclosing(self._payloads(body)) as payloads:
                try:
                    async for payload in payloads:
                        for event in reader.feed(payload):
                            yield event
                        if reader.done:
                            break
                except BackendError as error:
                    # A connection that is lost behind the stop reason has lost nothing of the reply.
                    if not (reader.whole and error.kind in (ErrorKind.NETWORK, ErrorKind.TIMEOUT)):
                        raise
                if not reader.whole:
                    raise cut_stream(self._endpoint)
                for event in reader.finish():
                    yield event
                await drain(payloads)
        except BrokenStreamError as error:
            raise broken_answer(self._endpoint, f"a broken stream ({error})") from error

    async def warm(self, request: Request) -> Usage | None:
        """A request for no output (`max_tokens: 0`): written and billed like any other, nothing generated. Source:
        prompt-caching documentation as of 2026-08-22, pre-warming.
        """
        import anthropic
        import httpx2

        await self.prepare()
        assert self._client is not None
        body = self._build(replace(request, max_output=0), stream=False)
        try:
            message = await self._client.post("/v1/messages", content=body, cast_to=anthropic.types.Message)
        except (anthropic.AnthropicError, httpx2.HTTPError) as error:
            raise from_sdk(error, self._endpoint) from error
        if not isinstance(message, anthropic.types.Message):  # what is no JSON comes back as text
            raise broken_answer(self._endpoint, "something that is no message")
        reader = self._reader(request)
        told = message.to_dict()
        try:
            for _ in reader.feed({"type": "message_start", "message": told}):
                pass
            for _ in reader.feed({"type": "message_delta", "delta": {}, "usage": told.get("usage")}):
                pass
        except BrokenStreamError as error:
            raise broken_answer(self._endpoint, f"a broken message ({error})") from error
        return reader.usage

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _check_key(self) -> None:
        if not self._key:
            raise BackendError(
                ErrorKind.AUTH,
                f"No key for {self.name}: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), or use a model on this "
                "machine with --model local/qwen2.5-coder-1.5b.",
            )
        if not all("!" <= char <= "~" for char in self._key):
            raise BackendError(
                ErrorKind.AUTH,
                f"{self._endpoint.key_from} holds a space or a character that no key has. Copy the key again.",
            )

    def _connect(self) -> "anthropic.AsyncAnthropic":
        import anthropic
        import httpx2

        is_key = self._endpoint.key_from == "ANTHROPIC_API_KEY"
        connect, read = self._timeouts
        try:
            return anthropic.AsyncAnthropic(
                api_key=self._key if is_key else None,
                auth_token=None if is_key else self._key,
                base_url=self._endpoint.base_url,
                max_retries=0,
                timeout=httpx2.Timeout(read, connect=connect),
            )
        except httpx2.InvalidURL as error:
            raise BackendError(
                ErrorKind.INVALID,
                f"ANTHROPIC_BASE_URL is no address ({error}). Nothing was sent. Correct it or unset it.",
            ) from error

    def _reader(self, request: Request) -> ReplyReader:
        return ReplyReader(self._dialect, long_asked=any(marker.ttl == "long" for marker in request.markers))

    def _build(self, request: Request, *, stream: bool = True) -> bytes:
        head: dict[str, object] = {"model": self._model.id}
        if self._model.thinking == "adaptive":
            # Without "summarized" the newest models return empty thinking, and hide in it what they say between calls.
            head["thinking"] = {"type": "adaptive", "display": "summarized"}
        # In the tail, so that pre-warming and a real call share every byte up to the end of the messages.
        tail: dict[str, object] = {
            "stream": stream,
            "max_tokens": self._model.max_output if request.max_output is None else request.max_output,
        }
        if request.prompt.length == request.prompt.head(Layer.PROJECT).length:
            tail["messages"] = _NO_MESSAGES
        if request.effort is not None:
            tail["output_config"] = {"effort": request.effort}
        if self._endpoint.official and CacheOption.DIAGNOSTICS not in request.off:
            tail["diagnostics"] = {"previous_message_id": request.previous_response}
        try:
            self._body.extend_to(request.prompt)
        except DamagedWireError as error:
            raise BackendError(
                ErrorKind.INVALID, f"This session's record is damaged ({error}). Nothing was sent. Start a new session."
            ) from error
        return self._body.take(head, request.markers, tail)

    async def _payloads(self, body: bytes) -> AsyncGenerator[Any, None]:
        """Send `body`; the payloads of the stream's events, parsed. Raises BackendError for any failure."""
        import anthropic
        import httpx2

        assert self._client is not None
        try:
            # Not messages.create: it would walk and write the whole history anew for each call, in its own way.
            stream = await self._client.post(
                "/v1/messages",
                content=body,
                cast_to=anthropic.types.Message,
                stream=True,
                stream_cls=anthropic.AsyncStream[anthropic.types.RawMessageStreamEvent],
            )
            try:
                check_type(stream.response, self._endpoint)
                async for event in anthropic.AsyncStream.raw_events(stream.response):
                    if event.data:
                        yield self._parsed(event.data)
            finally:
                await stream.close()
        except (anthropic.AnthropicError, httpx2.HTTPError) as error:
            raise from_sdk(error, self._endpoint) from error
        except UnicodeDecodeError as error:
            raise broken_answer(self._endpoint, "bytes that are no UTF-8") from error

    def _parsed(self, data: str) -> Any:
        try:
            payload = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise broken_answer(self._endpoint, "an event that is no JSON") from error
        if isinstance(payload, dict) and payload.get("type") == "error":
            raise error_in_stream(payload, self._endpoint)
        return payload
