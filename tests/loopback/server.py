"""The HTTP server: one thread a connection, real sockets, and every way in which a stream can go wrong."""

import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .cache import PrefixCache
from .rules import refusal, signature_for
from .script import Failure, Reply, events

Answer = Reply | Failure
_POLL_S = 0.02  # how often a waiting reply looks whether its client is still there


@dataclass(frozen=True)
class Recorded:
    """One request. `raw` is its body as it came, `body` the same parsed; header names are in lower case."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]


class ScriptedServer:
    """Answers POST /v1/messages from a script: queued answers, or a function of the request.

    With a script that has run out it answers 400. `log`: a file that gets one JSON line per request (`path`,
    `headers`, `raw`), for readers in other processes. `strict`: refuse what the API would refuse. Use it as a context
    manager.
    """

    def __init__(
        self,
        script: Callable[[Recorded], Answer] | Iterable[Answer] = (),
        *,
        log: Path | None = None,
        strict: bool = True,
        cache: PrefixCache | None = None,
    ) -> None:
        self.cache = cache or PrefixCache()
        self.strict = strict
        self.client_left = threading.Event()  # a client closed its connection in the middle of a reply
        self.connections = 0
        self._queue: deque[Answer] = deque()
        self._function: Callable[[Recorded], Answer] | None = None
        self._log = log
        self._requests: list[Recorded] = []
        self._arrived = threading.Condition()
        self.play(script)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """Environment variables that send a client here."""
        return {"ANTHROPIC_API_KEY": "sk-ant-test-key", "ANTHROPIC_BASE_URL": self.url}

    @property
    def requests(self) -> list[Recorded]:
        """What has come so far, in order."""
        with self._arrived:
            return list(self._requests)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def play(self, script: Callable[[Recorded], Answer] | Iterable[Answer]) -> None:
        """Queue more answers, or let a function answer everything from now on."""
        if callable(script):
            self._function = script
        else:
            self._queue.extend(script)

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> list[Recorded]:
        """The requests, once there are `count`. Raises TimeoutError."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._requests) >= count, timeout):
                raise TimeoutError(f"{len(self._requests)} requests of {count}")
            return list(self._requests)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def record(self, request: Recorded) -> int:
        """Keep a request; its number, from 1."""
        with self._arrived:
            self._requests.append(request)
            if self._log is not None:
                line = {"path": request.path, "headers": request.headers, "raw": request.raw.decode()}
                with self._log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
            self._arrived.notify_all()
            return len(self._requests)

    def answer(self, request: Recorded) -> Answer:
        if self.strict and (reason := refusal(request.body)) is not None:
            return Failure(400, ("invalid_request_error", reason))
        if self._function is not None:
            return self._function(request)
        with self._arrived:
            if self._queue:
                return self._queue.popleft()
        return Failure(400, ("invalid_request_error", "the test's script has no reply for this request"))


class _ClientLeftError(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    owner: ScriptedServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.owner.connections += 1
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the standard library's)
        """Nothing on the terminal."""

    def do_GET(self) -> None:
        self._send(Failure(404, ("not_found_error", f"no such path: {self.path}")))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/messages":
            self._send(Failure(404, ("not_found_error", f"no such path: {self.path}")))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(self.path, headers, raw, json.loads(raw))
        number = self.owner.record(request)
        answer = self.owner.answer(request)
        if isinstance(answer, Failure):
            self._send(answer)
            return
        try:
            self._stream(answer, request, number)
        except (_ClientLeftError, ConnectionError):
            self.owner.client_left.set()
            self.close_connection = True

    def _send(self, failure: Failure) -> None:
        kind, body = failure.payload()
        headers = {"content-type": kind, "request-id": "req_test", **failure.headers, "content-length": str(len(body))}
        self.send_response(failure.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, reply: Reply, request: Recorded, number: int) -> None:
        usage = self.owner.cache.bill(request.body) if reply.usage is None else reply.usage
        self.send_response(200)
        for name, value in (("content-type", "text/event-stream"), ("request-id", f"req_{number:04}")):
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if reply.cut_after == 0:
            self._cut()
            return
        payloads = events(
            reply, number=number, model=request.body["model"], usage=usage, signature=signature_for(request.body)
        )
        for sent, payload in enumerate(payloads, start=1):
            if (gate := reply.gates.get(sent)) is not None:
                self._wait(gate)
            self._event(payload["type"], json.dumps(payload))
            if sent == 1:
                self._event("ping", '{"type": "ping"}')
            if sent == reply.cut_after:
                self._cut()
                return
            if sent == reply.garbage_after:
                self._event("content_block_delta", '{"type": "content_block_de')
            if reply.error_after is not None and sent == reply.error_after[0]:
                _, kind, message = reply.error_after
                self._event("error", json.dumps({"type": "error", "error": {"type": kind, "message": message}}))
                break
        self._chunk(b"")

    def _event(self, name: str, data: str) -> None:
        self._chunk(f"event: {name}\ndata: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _wait(self, gate: threading.Event) -> None:
        """Wait for `gate` as long as the client is there."""
        while not gate.wait(_POLL_S):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
                raise _ClientLeftError

    def _cut(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True
