"""The HTTP server: an event loop in a thread of its own, real sockets, and every way in which a stream can go wrong."""

import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from .api import Api, ApiFactory, Generation, Recorded, Surroundings
from .bill import Account, Bill
from .clock import Clock, SystemClock
from .faults import place_of
from .models import ALL, Models
from .registry import APIS
from .script import Answer, Failure, Gate, Reply

Script = Callable[[Recorded], Answer]
_SCRIPT_THREADS = 64  # scripts may wait for each other


class Emulator:
    """Answers the requests of all its APIs from one script: queued answers, or a function of the request.

    With a script that has run out it answers 400. A function runs in a thread and may wait; what it raises is answered
    with 400 and raised again when the server stops. `log`: a file that gets one JSON line per request (`path`,
    `headers`, `raw`), for readers in other processes. `strict`: refuse what the API would refuse. `watch` is called
    with each whole bill. Use it as a context manager.
    """

    def __init__(
        self,
        script: Script | Iterable[Answer] = (),
        *,
        log: Path | None = None,
        strict: bool = True,
        clock: Clock | None = None,
        models: Models = ALL,
        apis: Iterable[ApiFactory] = APIS,
        port: int = 0,
        watch: Callable[[Recorded, Bill], None] | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.client_left = threading.Event()  # a client closed its connection in the middle of a reply
        self.connections = 0
        self.refused_options: set[str] = set()  # cache options that this endpoint does not know: a 400 names them
        self.ping_gates: dict[Literal["received", "billed"], Gate] = {}  # pings wait there for a gate
        self.short_ttl = False  # grant the short TTL whatever is asked for, in every reply
        self._around = Surroundings(self.clock, models, strict)
        self._apis: list[Api] = [factory(self._around) for factory in apis]
        self._queue: deque[Answer] = deque()
        self._interruptions: deque[Failure] = deque()
        self._function: Script | None = None
        self._errors: list[Exception] = []
        self._log = log
        self._watch = watch
        self._requests: list[Recorded] = []
        self._bills: list[Bill | None] = []
        self._arrived = threading.Condition()
        self.play(script)
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self._scripts = ThreadPoolExecutor(_SCRIPT_THREADS, "emulator-script")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="emulator", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def env(self) -> dict[str, str]:
        """Environment variables that send the SDK of each API here."""
        return {name: value for api in self._apis for name, value in api.env(self.url).items()}

    @property
    def requests(self) -> list[Recorded]:
        """What has come so far, in order."""
        with self._arrived:
            return list(self._requests)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    @property
    def bills(self) -> list[Bill | None]:
        """The true bill of each of `requests`; None for one that was refused or has not begun to be answered."""
        with self._arrived:
            return list(self._bills)

    def play(self, script: Script | Iterable[Answer]) -> None:
        """Queue more answers, or let a function answer everything from now on."""
        if callable(script):
            self._function = script
        else:
            self._queue.extend(script)

    def interrupt(self, *failures: Failure) -> None:
        """Answer the next requests with these, whatever they ask for, before the script is looked at."""
        self._interruptions.extend(failures)

    def evict(self) -> None:
        """Forget all cached prefixes of all APIs. (A `Reply` can do so in the middle of a script.)"""
        for api in self._apis:
            api.evict_all()

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> list[Recorded]:
        """The requests, once there are `count`. Raises TimeoutError."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._requests) >= count, timeout):
                raise TimeoutError(f"{len(self._requests)} requests of {count}")
            return list(self._requests)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._scripts.shutdown(wait=False, cancel_futures=True)
        if self._errors and kind is None:
            raise self._errors[0]

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = _CountingServer(self, self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.05)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def _record(self, http: web.BaseRequest, raw: bytes, body: dict[str, Any], api: Api | None) -> Recorded:
        headers = {name.lower(): value for name, value in http.headers.items()}
        with self._arrived:
            request = Recorded(
                http.path,
                headers,
                raw,
                body,
                len(self._requests) + 1,
                self.clock.now(),
                http.method,
                None if api is None else api.reader,
            )
            self._requests.append(request)
            self._bills.append(None)
            if self._log is not None:
                line = {"path": request.path, "headers": headers, "raw": raw.decode(errors="replace")}
                with self._log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
            self._arrived.notify_all()
        return request

    def _charge(self, request: Recorded, bill: Bill, output: int | None = None) -> None:
        """Keep a bill; with its `output` it is whole."""
        whole = bill if output is None else bill.with_output(output)
        with self._arrived:
            self._bills[request.number - 1] = whole
        if self._watch is not None and output is not None:
            self._watch(request, whole)

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._respond(http)
        except asyncio.CancelledError:
            self.client_left.set()
            raise
        except ConnectionError:  # killed clients are what some tests are about: nothing to report
            self.client_left.set()
            return web.Response()
        except Exception as error:  # noqa: BLE001 (raised again by __exit__, where the test sees it)
            self._errors.append(error)
            return web.Response(status=500, text=f"the emulator failed: {error!r}")

    async def _respond(self, http: web.BaseRequest) -> web.StreamResponse:
        found = next(((api, handler) for api in self._apis if (handler := api.find(http.method, http.path))), None)
        raw = await http.content.read()
        if found is None:
            missing = Failure(404, ("not_found_error", f"no such path: {http.path}"))
            return _plain(missing, self._apis[0].error_body(missing, "req_none"), "req_none")
        api, handler = found
        body = _parsed(raw)
        request = self._record(http, raw, body or {}, api)
        if body is None and http.method == "POST":
            return self._refused(api, request, Failure(400, ("", "The request body is not valid JSON")))
        if self._interruptions:
            return self._refused(api, request, self._interruptions.popleft())
        for option in self.refused_options:
            if (place := place_of(option, request.body)) is not None:
                return self._refused(api, request, api.option_refusal(place, option))
        if callable(handler):
            return self._refused(api, request, handler(request))
        return await self._generate(http, api, handler, request)

    async def _generate(
        self, http: web.BaseRequest, api: Api, generation: Generation, request: Recorded
    ) -> web.StreamResponse:
        if self._around.strict and (refusal := generation.refusal(request)) is not None:
            return self._refused(api, request, refusal)
        ping = generation.unscripted(request)
        answer = ping or await self._ask_script(request)
        if ping is not None and (gate := self.ping_gates.get("received")) is not None:
            await gate.wait()
        if isinstance(answer, Failure):
            return self._refused(api, request, answer)
        if self.short_ttl:
            answer = replace(answer, short_ttl=True)
        account = generation.account(request, answer)
        if generation.streams(request):
            return await self._stream(http, generation, request, answer, account)
        if (gate := answer.gates.get(1)) is not None:
            await gate.wait()
        if answer.cut_after is not None:
            _cut(http)
            return web.Response()
        account.begin()
        self._charge(request, account.bill, answer.output_tokens)
        if ping is not None and (gate := self.ping_gates.get("billed")) is not None:
            await gate.wait()
        return web.json_response(generation.message(request, answer, account), headers=_request_id(request))

    async def _ask_script(self, request: Recorded) -> Answer:
        if self._function is None:
            if self._queue:
                return self._queue.popleft()
            return Failure(400, ("", "the test's script has no reply for this request"))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._scripts, self._function, request)
        except Exception as error:  # noqa: BLE001 (raised again by __exit__, where the test sees it)
            self._errors.append(error)
            return Failure(400, ("", f"the test's script failed: {error!r}"))

    def _refused(self, api: Api, request: Recorded, failure: Failure) -> web.Response:
        request_id = f"req_{request.number:04}"
        return _plain(failure, api.error_body(failure, request_id) if failure.error else None, request_id)

    async def _stream(
        self, http: web.BaseRequest, generation: Generation, request: Recorded, reply: Reply, account: Account
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **_request_id(request)})
        await response.prepare(http)
        sent, begun = 0, False
        if reply.cut_after == 0:
            _cut(http)
            return response
        for event in generation.events(request, reply, account):
            if event.counted:
                sent += 1
                if (gate := reply.gates.get(sent)) is not None:
                    await gate.wait()
            if not begun:
                account.begin()
                self._charge(request, account.bill)
                begun = True
            if event.settles:
                self._charge(request, account.bill, reply.output_tokens)
            await response.write(event.wire())
            if not event.counted:
                continue
            if sent == reply.cut_after:
                _cut(http)
                return response
            if sent == reply.garbage_after:
                await response.write(generation.garbage_event().wire())
            if reply.error_after is not None and sent == reply.error_after[0]:
                await response.write(generation.error_event(*reply.error_after[1:]).wire())
                break
        return response


class _CountingServer(web.Server):
    def __init__(self, owner: Emulator, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._owner = owner

    def connection_made(self, *arguments: Any) -> None:
        self._owner.connections += 1
        super().connection_made(*arguments)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """The JSON object in a body, or None."""
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _request_id(request: Recorded) -> dict[str, str]:
    number = f"req_{request.number:04}"
    return {"request-id": number, "x-request-id": number}


def _plain(failure: Failure, error: Mapping[str, Any] | None, request_id: str) -> web.Response:
    """A whole answer: an API's error if there is one, else the body as it is."""
    body, kind = (failure.body, "text/plain") if error is None else (json.dumps(error), "application/json")
    headers = {"content-type": kind, "request-id": request_id, "x-request-id": request_id, **failure.headers}
    return web.Response(status=failure.status, body=body.encode(), headers=headers)


def _cut(http: web.BaseRequest) -> None:
    """Close the connection behind what was written so far, without an end of the body."""
    if http.transport is not None:
        http.transport.close()
