"""The Hugging Face hub as a source, against a hub on loopback."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from models_support import MODEL, FakeHub, serving, tiny_spec

from backends.llama.sources import HubSource, SourceError

SPEC = tiny_spec()


def source(endpoint: str, connect_s: float = 5.0) -> HubSource:
    assert SPEC.hub is not None
    return HubSource(SPEC, SPEC.hub, endpoint, connect_s)


async def read_all(hub: HubSource, offset: int = 0) -> bytes:
    return b"".join([chunk async for chunk in hub.read(offset, lambda _: None)])


@pytest.mark.parametrize("redirect", [False, True])
@pytest.mark.parametrize("ignore_ranges", [False, True])
async def test_the_rest_of_the_file_from_any_offset(redirect: bool, ignore_ranges: bool) -> None:
    hub = FakeHub(redirect=redirect, ignore_ranges=ignore_ranges, linked_etag=SPEC.sha256)
    with serving(hub):
        for offset in (0, 1, 2_345_678, len(MODEL) - 1):
            assert await read_all(source(hub.endpoint), offset) == MODEL[offset:]
    assert hub.ranges[1] == "bytes=1-"


async def test_a_connection_that_breaks_off_is_worth_another_try() -> None:
    with serving(FakeHub(break_at=2_000_000)) as hub:
        got = bytearray()

        async def read() -> None:
            async for chunk in source(hub.endpoint).read(0, lambda _: None):
                got.extend(chunk)

        with pytest.raises(SourceError, match="the connection broke") as caught:
            await read()
        assert caught.value.interrupted
        assert got + await read_all(source(hub.endpoint), len(got)) == MODEL


@pytest.mark.parametrize(
    ("hub", "reason"),
    [
        (FakeHub(status=404), "HTTP 404 for someone/tiny-GGUF/tiny-q4.gguf"),
        (FakeHub(status=401), "refuses access .*HF_TOKEN"),
        (FakeHub(status=503), "HTTP 503"),
        (FakeHub(body=b"<html>log in</html>", content_type="text/html", ignore_ranges=True), "19 bytes, text/html"),
        (FakeHub(linked_etag="0" * 64), "something else under that name"),
        (FakeHub(linked_etag="0" * 64, redirect=True), "something else under that name"),
    ],
)
async def test_an_answer_that_is_not_our_file_is_refused_before_its_bytes(hub: FakeHub, reason: str) -> None:
    with serving(hub):
        with pytest.raises(SourceError, match=reason) as caught:
            await read_all(source(hub.endpoint))
        assert not caught.value.interrupted


async def test_a_refused_connection_is_found_out_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(SourceError, match="cannot be reached") as caught:
        await read_all(source(f"http://127.0.0.1:{port}"))
    assert not caught.value.interrupted
    assert time.monotonic() - started < 20


async def test_a_hub_that_does_not_answer_the_connection_is_given_up_after_the_time_out() -> None:
    # A listening socket whose queue is full drops new connections, as a firewall does.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        try:
            async with asyncio.timeout(60):
                with pytest.raises(SourceError, match=r"no connection within 0.3 s"):
                    await read_all(source(f"http://127.0.0.1:{server.getsockname()[1]}", connect_s=0.3))
        finally:
            for filler in fillers:
                filler.close()


async def test_an_address_that_is_none_is_a_reason_not_a_crash() -> None:
    for endpoint in ("no-scheme", "http://[bad", "ftp://127.0.0.1"):
        with pytest.raises(SourceError):
            await read_all(source(endpoint))


async def test_closing_stops_the_download() -> None:
    with serving(FakeHub(hold_at=2_000_000)) as hub:
        chunks = source(hub.endpoint).read(0, lambda _: None)
        assert await anext(chunks) == MODEL[: 1 << 20]
        async with asyncio.timeout(60):
            await chunks.aclose()


def run_with(env: dict[str, str]) -> str:
    code = (
        "import asyncio, sys; from test_models_hub import *\n"
        "hub = HubSource(SPEC, SPEC.hub)\n"
        "try: print(len(asyncio.run(read_all(hub))))\n"
        "except SourceError as error: print(error)\n"
    )
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests.parent)])
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path} | env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_users_own_hub_settings_are_honoured() -> None:
    with serving(FakeHub()) as hub:
        assert run_with({"HF_ENDPOINT": hub.endpoint}) == str(len(MODEL))
        assert "HF_HUB_OFFLINE" in run_with({"HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "1"})
