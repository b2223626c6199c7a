"""Every way in which a call to the Responses API fails is one BackendError with one clear line."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from emulator import Emulator, Failure, Reply, html_page
from emulator.faults import retry_after
from emulator.openai_errors import quota_exceeded, rate_limited
from openai_support import HEAD, NOW, backend_for, run, user

from backends.base import BackendError, ErrorKind, MemoryWireStore, Request
from backends.catalog import Catalog
from backends.openai import OpenAIBackend
from context.breakpoints import Marker

ASK = HEAD.append(user("go"))
K = ErrorKind


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


async def failure(backend: OpenAIBackend) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await run(backend, ASK)
    await backend.aclose()
    error = caught.value
    assert "\n" not in str(error)
    assert "sk-test" not in str(error)
    return error


async def failed(server: Emulator, answer: Failure | Reply, **options: Any) -> BackendError:
    server.play([answer])
    return await failure(backend_for(server, **options))


def backend_at(url: str, **options: Any) -> OpenAIBackend:
    env = {"OPENAI_API_KEY": "sk-test-key", "OPENAI_BASE_URL": url}
    return OpenAIBackend(Catalog.load().find("openai/gpt-6.2-sol"), env=env, wires=MemoryWireStore(), **options)


TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


@pytest.mark.parametrize(
    ("status", "kind_on_the_wire", "code", "message", "headers", "kind", "retriable"),
    [
        (400, "invalid_request_error", None, "Invalid value: 'x'.", {}, K.INVALID, False),
        (400, "invalid_request_error", "context_length_exceeded", TOO_LONG, {}, K.OVERFLOW, False),
        (400, "invalid_request_error", "integer_above_max_value", "max_output_tokens", {}, K.INVALID, False),
        (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: sk-test-key", {}, K.AUTH, False),
        (403, "invalid_request_error", "unsupported_country", "Country not supported", {}, K.AUTH, False),
        (404, "invalid_request_error", "model_not_found", "The model does not exist", {}, K.NOT_FOUND, False),
        (409, "", None, "conflict", {}, K.SERVER, True),
        (422, "invalid_request_error", None, "no", {}, K.INVALID, False),
        (429, "tokens", "rate_limit_exceeded", "Rate limit reached", {"retry-after": "3"}, K.RATE_LIMIT, True),
        (500, "server_error", None, "internal", {}, K.SERVER, True),
        (503, "server_error", "server_is_overloaded", "Overloaded", {}, K.OVERLOADED, True),
        (503, "server_error", "slow_down", "Slow down", {}, K.OVERLOADED, True),
        (500, "server_error", None, "internal", {"x-should-retry": "false"}, K.SERVER, False),
    ],
)
async def test_api_errors(
    server: Emulator,
    status: int,
    kind_on_the_wire: str,
    code: str | None,
    message: str,
    headers: Mapping[str, str],
    kind: ErrorKind,
    retriable: bool,
) -> None:
    answer = Failure(status, (kind_on_the_wire, message), headers=headers, details={"code": code, "param": None})
    error = await failed(server, answer)
    assert (error.kind, error.retriable) == (kind, retriable)
    assert message.removesuffix(" sk-test-key") in str(error)
    assert len(server.requests) == 1  # the SDK itself retries nothing


async def test_a_quota_that_is_used_up_is_no_rate_limit(server: Emulator) -> None:
    assert (await failed(server, quota_exceeded())).kind is K.BILLING
    limited = await failed(server, rate_limited(wait="6ms"))
    assert (limited.kind, limited.retry_after) == (K.RATE_LIMIT, 0.006)


@pytest.mark.parametrize("form", ["seconds", "milliseconds", "date"])
async def test_the_time_to_wait(server: Emulator, form: Any) -> None:
    error = await failed(server, rate_limited(retry_after(130, form, now=NOW)))
    assert (error.retry_after, error.retriable) == (130, True)


@pytest.mark.parametrize(
    ("code", "message", "kind", "retriable"),
    [
        ("server_error", "oops", K.SERVER, True),
        ("rate_limit_exceeded", "Rate limit reached", K.RATE_LIMIT, True),
        ("insufficient_quota", "You exceeded your current quota", K.BILLING, False),
        ("context_length_exceeded", TOO_LONG, K.OVERFLOW, False),
        ("invalid_prompt", "flagged", K.INVALID, False),
        ("bio_policy", "No.", K.INVALID, False),
        ("misalignment_policy_violation", "No.", K.INVALID, False),
        ("code_of_tomorrow", "?", K.SERVER, True),
    ],
)
@pytest.mark.parametrize("how", ["failed", "error event"])
async def test_a_response_that_fails_in_the_middle(
    server: Emulator, how: str, code: str, message: str, kind: ErrorKind, retriable: bool
) -> None:
    answer = {
        "failed": Reply.of("one two", stop="failed", stop_details={"code": code, "message": message}),
        "error event": Reply.of("one two", error_after=(4, code, message)),
    }[how]
    error = await failed(server, answer)
    assert (error.kind, error.retriable) == (kind, retriable)
    assert message in str(error)


async def test_an_error_event_in_the_form_of_other_servers(server: Emulator) -> None:
    event = 'event: error\ndata: {"type":"error","error":{"message":"Input does not fit in context length."}}\n\n'
    error = await failed(server, Failure(200, body=event, headers={"content-type": "text/event-stream"}))
    assert error.kind is K.OVERFLOW


async def test_no_key_is_told_without_touching_the_network(server: Emulator) -> None:
    error = await failure(backend_for(server, env={"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": " "}))
    assert error.kind is K.AUTH
    assert "OPENAI_API_KEY" in str(error)
    error = await failure(backend_for(server, env={**server.env, "OPENAI_API_KEY": "sk-ä\u200b key"}))
    assert error.kind is K.AUTH
    assert server.connections == 0


@pytest.mark.parametrize("status", [200, 403, 404, 405])
async def test_a_web_page_instead_of_the_api_names_the_host_and_what_to_check(server: Emulator, status: int) -> None:
    error = await failed(server, html_page(status))
    assert (error.kind, error.retriable) == (K.PROTOCOL, False)
    assert "answered with a web page" in str(error)
    assert f"Check OPENAI_BASE_URL ({server.url}/v1)" in str(error)


async def test_a_wrong_path_of_the_base_url_is_named(server: Emulator) -> None:
    error = await failure(backend_at(f"{server.url}/v2"))
    assert error.kind is K.NOT_FOUND
    assert f"OPENAI_BASE_URL ({server.url}/v2)" in str(error)


async def test_a_proxys_error_page_is_the_servers_fault_and_may_pass(server: Emulator) -> None:
    error = await failed(server, html_page(502, "<h1>Bad gateway</h1>"))
    assert (error.kind, error.retriable) == (K.SERVER, True)


EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.parametrize(
    "answer",
    [
        Failure(200, body='{"object": "response"}', headers={"content-type": "application/json"}),
        Failure(200, body="", headers={"content-type": ""}),
        Failure(200, body="data: {not json}\n\n", headers=EVENTS),
        Failure(200, body="data: [1]\n\n", headers=EVENTS),
        Failure(200, body='data: {"type":"response.output_text.delta","delta":"x"}\n\n', headers=EVENTS),
    ],
)
async def test_an_answer_that_is_not_what_the_api_promises(server: Emulator, answer: Failure) -> None:
    error = await failed(server, answer)
    assert (error.kind, error.retriable) == (K.PROTOCOL, False)


@pytest.mark.parametrize("body", ["", ": keep-alive\n\n", 'data: {"type":"response.queued"}\n\n', "data: [DONE]\n\n"])
async def test_a_stream_that_ends_too_early_may_be_tried_again(server: Emulator, body: str) -> None:
    error = await failed(server, Failure(200, body=body, headers=EVENTS))
    assert (error.kind, error.retriable) == (K.NETWORK, True)


async def test_an_api_that_is_not_there() -> None:
    with socket.socket() as unused:  # bound, but nobody listens
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        error = await failure(backend_at(f"http://{address}/v1"))
    assert (error.kind, error.retriable) == (K.NETWORK, False), (
        "nothing listens on this machine, and waiting brings nobody"
    )
    assert f"Cannot reach {address}" in str(error)
    far = await failure(backend_at("http://nowhere.invalid/v1"))
    assert (far.kind, far.retriable) == (K.NETWORK, True), "a network may come back"


async def test_an_api_that_closes_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10)

        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(hang_up))
            error = await failure(backend_at(f"http://127.0.0.1:{listener.getsockname()[1]}"))
    assert (error.kind, error.retriable) == (K.NETWORK, True)
    assert "before it answered" in str(error)


async def test_an_api_that_stays_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the system takes the connection, and nobody reads
        error = await failure(backend_at(f"http://127.0.0.1:{listener.getsockname()[1]}", read_timeout=0.2))
    assert (error.kind, error.retriable) == (K.TIMEOUT, True)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://example.org", "http://[::1", "http://x:99999", "https://"])
async def test_a_base_url_that_is_none(url: str) -> None:
    error = await failure(backend_at(url))
    assert (error.kind, error.retriable) == (K.INVALID, False)
    assert "OPENAI_BASE_URL" in str(error)


async def test_a_damaged_record_is_told_before_anything_is_sent(server: Emulator) -> None:
    store = MemoryWireStore()
    store.put(user("go").digest, "openai:gpt-6.2-sol", b"{broken")
    error = await failure(backend_for(server, wires=store))
    assert error.kind is K.INVALID
    assert server.connections == 0


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Failure(429, ("tokens", "slow"), headers={"retry-after": "3"}), K.RATE_LIMIT),
        (html_page(), K.PROTOCOL),
        (Failure(200, body="[]", headers={"content-type": "application/json"}), K.PROTOCOL),
        (
            Failure(
                200,
                body='{"status": "failed", "error": {"code": "server_error", "message": "oops"}}',
                headers={"content-type": "application/json"},
            ),
            K.SERVER,
        ),
    ],
)
async def test_a_prewarm_fails_as_clearly(server: Emulator, answer: Failure, kind: ErrorKind) -> None:
    server.interrupt(answer)
    backend = backend_for(server)
    with pytest.raises(BackendError) as caught:
        await backend.warm(Request(HEAD, markers=(Marker(2, "short"),)))
    await backend.aclose()
    assert caught.value.kind is kind


def test_two_gateways_on_one_host_are_two_endpoints() -> None:
    assert backend_at("http://localhost:8080/v1").endpoint == "localhost:8080"
    assert backend_at("").endpoint == "api.openai.com"
