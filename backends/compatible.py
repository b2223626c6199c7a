"""Any model behind an endpoint that speaks OpenAI's Chat Completions, through the official SDK.

The SDK (about a second to import) is loaded by `prepare`, in a thread. It does authentication, connections and
time-outs; the body is ours, byte for byte (`compatible_wire`), and retries are the loop's. No sampling parameters are
sent: reasoning models refuse them, and a local server's own settings are its maker's advice. Where endpoints differ is
data (`endpoints.toml`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from backends.base import BackendError, CacheOption, Capabilities, Env, ErrorKind, Event, Request, Usage, WireStore
from backends.catalog import ModelInfo
from backends.compatible_endpoints import Endpoint
from backends.compatible_reply import FailedReplyError, ReplyReader
from backends.compatible_wire import RequestBody, dialect_of
from backends.errors import Endpoint as Place
from backends.errors import Fault, api_error, broken_answer, cut_stream, from_response, from_transport, timed_out
from backends.growing_body import DamagedWireError
from backends.payload import BrokenStreamError
from backends.sse import check_type
from context.block import Layer
from context.breakpoints import Marker

if TYPE_CHECKING:
    import openai

_BILL_S: Final = 10.0  # how long the bill may take behind the end of a reply
_KEY_LENGTH: Final = 40  # characters of the value for affinity; no provider takes fewer than 64
_NO_KEY: Final = "none"  # servers without keys ignore it; the SDK wants one


class CompatibleBackend:
    """One model on one endpoint (`endpoint` as `Endpoint.for_model` gives it).

    `env` holds the endpoint's key. Time-outs in seconds: to connect, and between two signs of life in a stream.
    """

    def __init__(
        self,
        model: ModelInfo,
        endpoint: Endpoint,
        *,
        env: Env,
        wires: WireStore,
        connect_timeout: float = 10.0,
        read_timeout: float = 600.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._model = model
        self._quirks = endpoint
        self._timeouts = (connect_timeout, read_timeout)
        self._dialect = dialect_of(endpoint, model.id)
        self._body = RequestBody(wires, endpoint, self._dialect)
        self._env = env
        self._key = env.get(endpoint.key_env, "").strip() if endpoint.key_env else ""
        self._place = Place(
            base_url=endpoint.base_url,
            url_from=f"base_url of [endpoints.{endpoint.name}] in config.toml",
            url_hint="; it usually ends in /v1",
            serves="OpenAI's Chat Completions",
            model=model.name,
            official=endpoint.built_in and not endpoint.start,
            key_from=endpoint.key_env,
            secrets=(self._key,) if self._key else (),
            now=now,
        )
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
        return self._place.address

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    async def prepare(self) -> None:
        """Load the SDK and make the client, in a thread, so that the caller can do other work meanwhile.

        Sends nothing. Raises BackendError at once when there is no usable key or base URL. Idempotent; `stream` does
        it when nobody did.
        """
        self._check_key()
        self._place.check()
        async with self._preparing:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Run one call: see `Backend.stream`. `request.temperature` is not sent."""
        await self.prepare()
        markers = self._markers(request)
        body = self._build(request, markers)
        reader = ReplyReader(
            self._quirks,
            self._dialect,
            seed=request.prompt.digest[:12],
            marked=bool(markers),
            long_asked=any(marker.ttl == "long" for marker in markers),
        )
        try:
            async with aclosing(self._chunks(body, self._headers(request), reader)) as chunks:
                async for chunk in chunks:
                    for event in reader.feed(chunk):
                        yield event
                    if reader.done:
                        break
            if not reader.whole:
                raise cut_stream(self._place)
            for event in reader.finish():
                yield event
        except BrokenStreamError as error:
            raise broken_answer(self._place, f"a broken stream ({error})") from error
        except FailedReplyError as error:
            raise api_error(Fault.read(error.told), self._place) from error

    async def warm(self, request: Request) -> Usage | None:
        """None: no endpoint of the table has a request that writes its cache and generates nothing."""
        return None

    async def served_models(self) -> list[str]:
        """The ids of the models that the endpoint says it serves. Raises BackendError."""
        import httpx2
        import openai

        await self.prepare()
        assert self._client is not None
        try:
            told = await self._client.get("/models", cast_to=object)
        except openai.APIStatusError as error:
            raise from_response(error.response, self._place) from error
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise self._failure(error, begun=False) from error
        rows = told.get("data") if isinstance(told, dict) else None
        if not isinstance(rows, list):
            raise broken_answer(self._place, "something that is no list of models")
        return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _check_key(self) -> None:
        variable = self._quirks.key_env
        if variable is None:
            return
        if not self._key:
            unless = ""
            if not self._quirks.built_in:
                unless = f' If it needs none, say key_env = "" under [endpoints.{self._quirks.name}] in config.toml.'
            raise BackendError(ErrorKind.AUTH, f"No key for {self.name}: set {variable}.{unless}")
        if not all("!" <= char <= "~" for char in self._key):
            raise BackendError(
                ErrorKind.AUTH, f"{variable} holds a space or a character that no key has. Copy the key again."
            )

    def _connect(self) -> "openai.AsyncOpenAI":
        import httpx2
        import openai

        connect, read = self._timeouts
        # What the environment says for OpenAI's own API is not for other hosts.
        lines = self._env.get("OPENAI_CUSTOM_HEADERS", "").splitlines()
        foreign: dict[str, Any] = {line.partition(":")[0].strip(): openai.Omit() for line in lines if ":" in line}
        client = openai.AsyncOpenAI(
            api_key=self._key or _NO_KEY,
            base_url=self._place.base_url,
            max_retries=0,
            timeout=httpx2.Timeout(read, connect=connect),
            default_headers=foreign,
        )
        client.organization = client.project = None
        return client

    def _markers(self, request: Request) -> tuple[Marker, ...]:
        """The markers that may be sent: of the time to live that the endpoint takes."""
        if self._quirks.cache_control == "no" or CacheOption.MARKERS in request.off:
            return ()
        if self._quirks.cache_control == "short" or CacheOption.LONG_TTL in request.off:
            return tuple(Marker(marker.blocks, "short") for marker in request.markers)
        return request.markers

    def _build(self, request: Request, markers: tuple[Marker, ...]) -> bytes:
        quirks = self._quirks
        tail: dict[str, Any] = {"stream": True}
        if quirks.include_usage and CacheOption.USAGE not in request.off:
            tail["stream_options"] = {"include_usage": True}
        if request.max_output is not None:
            tail[quirks.max_tokens] = request.max_output
        elif not self._model.assumed:
            tail[quirks.max_tokens] = self._model.max_output
        if request.effort is not None:
            outer, _, inner = quirks.effort.partition(".")
            tail[outer] = {inner: request.effort} if inner else request.effort
        if quirks.affinity_field and CacheOption.KEY not in request.off:
            tail[quirks.affinity_field] = self._affinity(request)
        if quirks.template:
            tail["chat_template_kwargs"] = dict(quirks.template)
        try:
            self._body.extend_to(request.prompt)
        except DamagedWireError as error:
            raise BackendError(
                ErrorKind.INVALID, f"This session's record is damaged ({error}). Nothing was sent. Start a new session."
            ) from error
        return self._body.take({"model": self._model.id}, markers, tail)

    def _headers(self, request: Request) -> dict[str, str]:
        header = self._quirks.affinity_header
        return {header: self._affinity(request)} if header and CacheOption.KEY not in request.off else {}

    @staticmethod
    def _affinity(request: Request) -> str:
        """The same for all requests of an epoch, and of its forks."""
        return request.prompt.head(Layer.PROJECT).digest[:_KEY_LENGTH]

    async def _chunks(self, body: bytes, headers: dict[str, str], reader: ReplyReader) -> AsyncGenerator[Any, None]:
        """Send `body`; the stream's chunks, parsed. Raises BackendError for any failure that costs part of the reply:
        one behind its end costs the bill at most.
        """
        import httpx2
        import openai

        assert self._client is not None
        begun = False
        try:
            # Not chat.completions.create: it would walk and write the whole history anew for each call, in its own way.
            stream = await self._client.post(
                "/chat/completions",
                content=body,
                options={"headers": headers},
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            begun = True
            try:
                check_type(stream.response, self._place)
                while True:
                    async with asyncio.timeout(_BILL_S if reader.whole else None):
                        chunk = await anext(stream, None)
                    if chunk is None:
                        return
                    yield chunk
            finally:
                await stream.close()
        except openai.APIStatusError as error:
            raise from_response(error.response, self._place) from error
        except (openai.OpenAIError, httpx2.HTTPError, TimeoutError) as error:
            if not reader.whole:
                raise self._failure(error, begun=begun) from error
        except ValueError as error:  # no JSON, or no UTF-8
            raise broken_answer(self._place, f"an event that is no JSON ({error})") from error

    def _failure(self, error: Exception, *, begun: bool) -> BackendError:
        import httpx2
        import openai

        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__
            if isinstance(error, openai.APITimeoutError):
                return timed_out(self._place)
            if isinstance(cause, httpx2.ConnectError) and self._quirks.start is not None:
                return BackendError(ErrorKind.NETWORK, self._not_running(), retriable=self._place.remote)
            return from_transport(cause or error, self._place, begun=begun)
        if isinstance(error, openai.APIError):  # an error event in the middle of the stream
            told = error.body if isinstance(error.body, dict) else {"message": error.message}
            return api_error(Fault.read({"error": told}), self._place)
        return from_transport(error, self._place, begun=begun)

    def _not_running(self) -> str:
        return (
            f"Nothing answers at {self._place.shown_url}: {self._quirks.name} does not run there. Start it "
            f"({self._quirks.start}), or set {self._place.url_from}."
        )
