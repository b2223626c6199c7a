"""Every failure is one BackendError: its kind, whether a retry can help and when, and one clear line without a key."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from anthropic_support import HEAD, NOW, backend_for, run, user
from emulator import Emulator, Failure, Reply, html_page

from backends.anthropic import AnthropicBackend
from backends.base import BackendError, ErrorKind, MemoryWireStore
from backends.catalog import Catalog

ASK = HEAD.append(user("go"))
K = ErrorKind


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


async def failure(backend: AnthropicBackend) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await run(backend, ASK)
    await backend.aclose()
    error = caught.value
    assert "\n" not in str(error)
    assert "sk-ant" not in str(error)
    return error


async def failed(server: Emulator, answer: Failure | Reply, **options: Any) -> BackendError:
    server.play([answer])
    return await failure(backend_for(server, **options))


def backend_at(url: str, **options: Any) -> AnthropicBackend:
    env = {"ANTHROPIC_API_KEY": "sk-ant-test-key", "ANTHROPIC_BASE_URL": url}
    model = Catalog.load().find("anthropic/claude-sonnet-5-5")
    return AnthropicBackend(model, env=env, wires=MemoryWireStore(), **options)


RETRY = {"retry-after": "3"}


@pytest.mark.parametrize(
    ("status", "kind_on_the_wire", "message", "headers", "kind", "retriable"),
    [
        (400, "invalid_request_error", "messages.1: bad", {}, K.INVALID, False),
        (400, "invalid_request_error", "prompt is too long: 1200000 tokens > 1000000 maximum", {}, K.OVERFLOW, False),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit", {}, K.OVERFLOW, False),
        (413, "request_too_large", "Request exceeds the maximum size", {}, K.OVERFLOW, False),
        (400, "invalid_request_error", "Your credit balance is too low", {}, K.BILLING, False),
        (400, "invalid_request_error", "thinking.budget_tokens: Extra inputs", {}, K.INVALID, False),
        (401, "authentication_error", "invalid api key", {}, K.AUTH, False),
        (402, "billing_error", "no credit", {}, K.BILLING, False),
        (403, "permission_error", "not allowed", {}, K.AUTH, False),
        (404, "not_found_error", "model: claude-sonnet-5-5", {}, K.NOT_FOUND, False),
        (409, "conflict_error", "try again", {}, K.SERVER, True),
        (429, "rate_limit_error", "too many requests", RETRY, K.RATE_LIMIT, True),
        (429, "rate_limit_error", "You have reached your API usage limits", {}, K.BILLING, False),
        (429, "rate_limit_error", "slow down", {}, K.RATE_LIMIT, True),  # a gateway's bare 429
        (429, "rate_limit_error", "Invalid `signature` in `thinking` block", RETRY, K.INVALID, False),
        (500, "api_error", "internal", {}, K.SERVER, True),
        (503, "api_error", "unavailable", {}, K.SERVER, True),
        (504, "timeout_error", "too slow", {}, K.TIMEOUT, True),
        (529, "overloaded_error", "Overloaded", RETRY, K.OVERLOADED, True),
        (500, "api_error", "internal", {"x-should-retry": "false"}, K.SERVER, False),
        (400, "invalid_request_error", "odd", {"x-should-retry": "true"}, K.INVALID, True),
    ],
)
async def test_api_errors(
    server: Emulator,
    status: int,
    kind_on_the_wire: str,
    message: str,
    headers: Mapping[str, str],
    kind: ErrorKind,
    retriable: bool,
) -> None:
    error = await failed(server, Failure(status, (kind_on_the_wire, message), headers=headers))
    assert (error.kind, error.retriable) == (kind, retriable)
    assert message in str(error)
    assert len(server.requests) == 1  # the SDK itself retries nothing


async def test_anthropics_own_429_without_a_time_is_the_spend_cap(server: Emulator) -> None:
    error = await failed(server, Failure(429, ("rate_limit_error", "This request would exceed")), official=True)
    assert (error.kind, error.retriable) == (K.BILLING, False)


async def test_a_spend_limit_by_its_code(server: Emulator) -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    error = await failed(server, Failure(429, ("rate_limit_error", "No."), headers=RETRY, details=details))
    assert (error.kind, error.retriable) == (K.BILLING, False)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Tue, 01 Dec 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
async def test_the_time_to_wait(server: Emulator, headers: dict[str, str], seconds: float | None) -> None:
    assert NOW.isoformat() == "2026-12-01T12:00:00+00:00"
    error = await failed(server, Failure(529, ("overloaded_error", "Overloaded"), headers=headers))
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("wire", "kind", "retriable"),
    [
        ("overloaded_error", K.OVERLOADED, True),
        ("rate_limit_error", K.RATE_LIMIT, True),
        ("api_error", K.SERVER, True),
        ("timeout_error", K.TIMEOUT, True),
        ("invalid_request_error", K.INVALID, False),
        ("error_of_tomorrow", K.SERVER, True),
    ],
)
@pytest.mark.parametrize("after", [1, 4])
async def test_an_error_in_the_middle_of_a_stream(
    server: Emulator, wire: str, kind: ErrorKind, retriable: bool, after: int
) -> None:
    error = await failed(server, Reply.of("one two three", error_after=(after, wire, "Sorry")))
    assert (error.kind, error.retriable) == (kind, retriable)
    assert "Sorry" in str(error)


async def test_no_key_is_told_without_touching_the_network(server: Emulator) -> None:
    error = await failure(backend_for(server, env={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": " "}))
    assert error.kind is K.AUTH
    assert "ANTHROPIC_API_KEY" in str(error)
    assert server.connections == 0


async def test_a_key_with_a_stray_character_is_not_sent_and_not_shown(server: Emulator) -> None:
    env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-ant-ä\u200b key"}
    error = await failure(backend_for(server, env=env))
    assert error.kind is K.AUTH
    assert server.connections == 0


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_a_refused_key_names_the_variable_and_never_the_key(server: Emulator, variable: str) -> None:
    env = {variable: "very-secret", "ANTHROPIC_BASE_URL": server.url}
    answer = Failure(401, ("authentication_error", "Incorrect API key provided: very-secret, sk-ant-other"))
    error = await failed(server, answer, env=env)
    assert variable in str(error)
    assert "very-secret" not in str(error)


@pytest.mark.parametrize("status", [200, 403, 404, 405])
async def test_a_web_page_instead_of_the_api_names_the_host_and_what_to_check(server: Emulator, status: int) -> None:
    error = await failed(server, html_page(status))
    assert (error.kind, error.retriable) == (K.PROTOCOL, False)
    assert "127.0.0.1 answered with a web page" in str(error)
    assert f"Check ANTHROPIC_BASE_URL ({server.url})" in str(error)


async def test_a_proxys_error_page_is_the_servers_fault_and_may_pass(server: Emulator) -> None:
    error = await failed(server, html_page(502, "<h1>Bad gateway</h1>"))
    assert (error.kind, error.retriable) == (K.SERVER, True)


@pytest.mark.parametrize(
    "answer",
    [
        Failure(200, body='{"type": "message"}', headers={"content-type": "application/json"}),
        Failure(200, body="", headers={"content-type": ""}),
        Failure(200, body="event: message_start\ndata: {not json}\n\n", headers={"content-type": "text/event-stream"}),
        Failure(200, body="event: message_start\ndata: [1]\n\n", headers={"content-type": "text/event-stream"}),
        Failure(
            200,
            body='event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{}}\n\n',
            headers={"content-type": "text/event-stream"},
        ),
        Reply.of("one two", garbage_after=2),
    ],
)
async def test_an_answer_that_is_not_what_the_api_promises(server: Emulator, answer: Failure | Reply) -> None:
    error = await failed(server, answer)
    assert (error.kind, error.retriable) == (K.PROTOCOL, False)


@pytest.mark.parametrize("body", ["", ": keep-alive\n\n", 'event: ping\ndata: {"type":"ping"}\n\n'])
async def test_a_stream_that_ends_before_it_begins_may_be_tried_again(server: Emulator, body: str) -> None:
    error = await failed(server, Failure(200, body=body, headers={"content-type": "text/event-stream"}))
    assert (error.kind, error.retriable) == (K.NETWORK, True)


@pytest.mark.parametrize(
    "body",
    ['{"error": "model not found"}', '{"detail": "model not found"}', '{"error": {"message": "model not found"}}'],
)
async def test_errors_in_another_apis_form_are_read_too(server: Emulator, body: str) -> None:
    error = await failed(server, Failure(404, body=body, headers={"content-type": "application/json"}))
    assert error.kind is K.NOT_FOUND
    assert "model not found" in str(error)


async def test_an_api_that_is_not_there() -> None:
    with socket.socket() as unused:  # bound, but nobody listens
        unused.bind(("127.0.0.1", 0))
        error = await failure(backend_at(f"http://127.0.0.1:{unused.getsockname()[1]}"))
    assert (error.kind, error.retriable) == (K.NETWORK, False), (
        "nothing listens on this machine, and waiting brings nobody"
    )
    assert "Cannot reach 127.0.0.1" in str(error)
    far = await failure(backend_at("http://nowhere.invalid"))
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


@pytest.mark.parametrize(
    "url",
    ["localhost:8080", "not a url", "ftp://example.org", "http://[::1", "http://x:99999", "https://", "http://a b"],
)
async def test_a_base_url_that_is_none(url: str) -> None:
    error = await failure(backend_at(url))
    assert (error.kind, error.retriable) == (K.INVALID, False)
    assert "ANTHROPIC_BASE_URL" in str(error)


async def test_a_password_in_the_base_url_is_not_shown(server: Emulator) -> None:
    url = server.url.replace("//", "//me:hunter2@")
    server.play([html_page()])
    error = await failure(backend_at(url))
    assert "hunter2" not in str(error)


async def test_a_damaged_record_is_told_before_anything_is_sent(server: Emulator) -> None:
    store = MemoryWireStore()
    store.put(user("go").digest, "anthropic:claude-sonnet-5-5", b"{broken")
    error = await failure(backend_for(server, wires=store))
    assert error.kind is K.INVALID
    assert server.connections == 0


async def test_preparing_twice_at_once_makes_one_client(server: Emulator) -> None:
    server.play([Reply.of("ok")])
    backend = backend_for(server)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(backend.prepare())
    assert server.connections == 0
    await run(backend, ASK)
    await backend.aclose()
    await backend.aclose()
