"""What the tests of the model downloads share: a tiny "model", a hub on loopback and wheels that carry parts."""

import hashlib
import json
import os
import random
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from backends.llama.models import HubFile, ModelSpec, WheelParts

PART = 3_000_000
MODEL = b"GGUF" + random.Random(7).randbytes(3 * PART + 1234)


def tiny_spec(data: bytes = MODEL, **changes: object) -> ModelSpec:
    """A registry entry for `data`, on the hub and in four wheels."""
    values: dict[str, object] = {
        "name": "tiny",
        "title": "Tiny Test Model",
        "file": "tiny-q4.gguf",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "licence": "Apache-2.0",
        "licence_source": "https://example.org/LICENSE",
        "context": 512,
        "hub": HubFile("someone/tiny-GGUF", "tiny-q4.gguf", "0123abc"),
        "wheels": WheelParts("tiny-model-part{n}", "1.0", "tiny_model_part{n}/data/part{n:02}.bin", PART),
    }
    return ModelSpec(**(values | changes))  # type: ignore[arg-type]


def write_wheels(folder: Path, data: bytes = MODEL) -> None:
    """Put the wheels of `tiny_spec(data)` into `folder`, as a registry would serve them."""
    folder.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, len(data), PART), start=1):
        name = f"tiny_model_part{number}"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/data/part{number:02}.bin", data[start : start + PART])
            wheel.writestr(f"{name}/__init__.py", "raise SystemExit('a wheel of a model must never be imported')\n")
            info = f"{name}-1.0.dist-info"
            metadata = f"Metadata-Version: 2.1\nName: tiny-model-part{number}\nVersion: 1.0\n"
            wheel.writestr(f"{info}/METADATA", metadata)
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def pip_env(wheels: Path) -> dict[str, str]:
    """The environment of a user whose pip knows one folder of wheels and no index."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return env | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


@dataclass
class FakeHub:
    """A hub that serves `body` at the one address that `tiny_spec` names, and `files` of the repository
    someone/tiny-GGUF by its file list. Each request for a file has its Range in `ranges`, each request its path and
    token in `asked`.

    `listed`: the file list, if it is not that of `files`; `error_code`: as in X-Error-Code, of lists and files alike.
    `cdn`: another host to which requests for files are redirected.

    `status`: answer with this error. `ignore_ranges`: always send the whole. `break_at`: once, close the connection
    after this many bytes. `hold_at`: send that many bytes, then wait for `go_on`. `linked_etag`: the SHA-256 stated in
    the headers. `redirect`: send the client to another path first, as the real hub does for large files.
    """

    body: bytes = MODEL
    status: int = 200
    ignore_ranges: bool = False
    break_at: int | None = None
    hold_at: int | None = None
    linked_etag: str | None = None
    redirect: bool = False
    content_type: str = "application/octet-stream"
    files: dict[str, bytes] = field(default_factory=dict)
    listed: object = None
    error_code: str = ""
    list_status: int = 200
    cdn: "FakeHub | None" = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    endpoint: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.path, request.headers.get("Authorization")))
        if request.path.startswith("/api/models/"):
            self._list(request)
            return
        name = request.path.removeprefix("/someone/tiny-GGUF/resolve/main/")
        if name in self.files:
            if self.cdn is not None:
                request.send_response(302)
                request.send_header("Location", f"{self.cdn.endpoint}{request.path}")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
            self.ranges.append(request.headers.get("Range"))
            if self.status != 200:
                self._refuse(request, self.status)
            else:
                self._send(request, self.files[name])
            return
        moved = request.path == "/cdn/tiny"
        if not moved and request.path != "/someone/tiny-GGUF/resolve/0123abc/tiny-q4.gguf":
            request.send_error(404)
            return
        if self.redirect and not moved:
            request.send_response(302)
            request.send_header("Location", "/cdn/tiny")
            self._linked(request)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        self.ranges.append(request.headers.get("Range"))
        if self.status != 200:
            request.send_error(self.status)
            return
        self._send(request, self.body)

    def _refuse(self, request: BaseHTTPRequestHandler, status: int) -> None:
        request.send_response(status)
        request.send_header("X-Error-Code", self.error_code)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def _list(self, request: BaseHTTPRequestHandler) -> None:
        if self.list_status != 200:
            self._refuse(request, self.list_status)
            return
        entries = [
            {
                "type": "file",
                "path": path,
                "size": len(data),
                "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)},
            }
            for path, data in self.files.items()
        ]
        body = json.dumps(entries if self.listed is None else self.listed).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _linked(self, request: BaseHTTPRequestHandler) -> None:
        if self.linked_etag:
            request.send_header("X-Linked-ETag", f'"{self.linked_etag}"')

    def _send(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = request.headers.get("Range")
        start = 0 if self.ignore_ranges or asked is None else int(asked.removeprefix("bytes=").removesuffix("-"))
        rest = body[start:]
        request.send_response(206 if asked and not self.ignore_ranges else 200)
        if asked and not self.ignore_ranges:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.send_header("Content-Type", self.content_type)
        request.send_header("Content-Length", str(len(rest)))
        if not self.redirect:
            self._linked(request)
        request.end_headers()
        if self.break_at is not None:
            request.wfile.write(rest[: self.break_at])
            self.break_at = None
            request.close_connection = True
            return
        if self.hold_at is not None:
            request.wfile.write(rest[: self.hold_at])
            self.go_on.wait(timeout=60)
            rest = rest[self.hold_at :]
        request.wfile.write(rest)


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed between two requests is no news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """`hub` on a loopback port, named in `hub.endpoint`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                hub.answer(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client was killed or cancelled: that is what some tests do

        def log_message(self, *_: object) -> None:
            pass

    server = _QuietServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
