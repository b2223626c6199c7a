"""The Chat Completions backend against the emulator's servers: caches, errors, broken streams, and whole tasks."""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from compatible_support import FLAVOURS, HEAD, Talk, backend_at, backend_for, calls, finished, run, usage, user
from emulator import Call, Edit, Emulator, Failure, Gate, Read, Reply, Shell, Think, html_page, play, raw_prefix

from backends.base import BackendError, CacheOption, ErrorKind, Request, StopReason, TextDelta, Usage
from context.block import Text

REPORTING = [name for name in FLAVOURS if name not in ("lmstudio", "vllm-no-details")]
LOOP = [
    Reply.of(Think("Hm."), "Look.", Call("read", {"path": "a"}), Call("shell", {"command": "ls"})),
    Reply.of(Think("Hm."), Call("read", {"path": "b"})),
    Reply.of("done"),
    Reply.of("done"),
]


async def converse(talk: Talk) -> list[Usage]:
    """A command, two steps with tools, an answer, and another command."""
    seen = [await talk.turn(user("go"))]
    seen.append(await talk.turn(talk.answers()))
    seen.append(await talk.turn(talk.answers("ü" * 50)))
    seen.append(await talk.turn(user("and now?")))
    await talk.backend.aclose()
    return [usage(events) for events in seen]


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_bodies_grow_byte_for_byte_through_a_tool_loop(emulator: Emulator, flavour: str) -> None:
    emulator.play(LOOP)
    await converse(Talk(backend_for(emulator, flavour)))
    prefixes = [raw_prefix(request.raw) for request in emulator.requests]
    assert len(prefixes) == 4
    for before, after in pairwise(prefixes):
        assert after.startswith(before)


@pytest.mark.parametrize("flavour", REPORTING)
async def test_counters_are_those_of_the_servers_own_account_and_the_cache_is_read(
    emulator: Emulator, flavour: str
) -> None:
    emulator.play(LOOP)
    found = await converse(Talk(backend_for(emulator, flavour)))
    assert [(each.fresh, each.cache_read, each.cache_write, each.output) for each in found] == [
        (bill.fresh, bill.read, bill.write_short, bill.output) for bill in emulator.bills if bill
    ]
    reads = [each.cache_read for each in found]
    assert reads == sorted(reads), "field report 41: reads rise with each turn"
    assert reads[1] > 2_000


@pytest.mark.parametrize("flavour", ["lmstudio", "vllm-no-details"])
async def test_a_server_that_reports_no_cache_leaves_it_unknown(emulator: Emulator, flavour: str) -> None:
    """Field report 92."""
    emulator.play(LOOP)
    for each in await converse(Talk(backend_for(emulator, flavour))):
        assert (each.fresh, each.cache_read, each.cache_write) == (None, None, None)
        assert each.output == 20


async def test_deepseek_gets_the_reasoning_of_its_calls_back(emulator: Emulator) -> None:
    """The emulator answers 400 without it, as DeepSeek does."""
    emulator.play(LOOP)
    await converse(Talk(backend_for(emulator, "deepseek")))
    said = [message for message in emulator.bodies[-1]["messages"] if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in said] == ["Hm.", "Hm.", None]


async def test_openrouter_carries_markers_for_claude_and_a_session_for_everyone(emulator: Emulator) -> None:
    emulator.play(LOOP)
    await converse(Talk(backend_for(emulator, "openrouter")))
    assert all(1 <= json.dumps(body).count('"cache_control"') <= 4 for body in emulator.bodies)
    assert len({body["session_id"] for body in emulator.bodies}) == 1
    emulator.play(LOOP)
    other = backend_at(f"{emulator.url}/flavours/openrouter/v1", "openrouter", "openai/gpt-6.1-sol")
    await converse(Talk(other))
    assert '"cache_control"' not in json.dumps(emulator.bodies[4:])


async def test_openais_own_chat_api_which_refuses_what_it_does_not_know_takes_the_body(emulator: Emulator) -> None:
    emulator.play(LOOP)
    backend = backend_at(f"{emulator.url}/flavours/openai/v1", "mine", "gpt-5.5", key_env="MINE_KEY")
    found = await converse(Talk(backend))
    assert found[-1].cache_read is not None
    assert found[-1].cache_read > 1_024


async def test_the_key_of_an_epoch_goes_where_each_endpoint_looks_for_it(emulator: Emulator) -> None:
    """Field report 48: a fork has the parent's key, another project another one."""
    emulator.play(lambda _: Reply.of("ok"))
    url = f"{emulator.url}/flavours/vllm/v1"
    for name in ("xai", "mistral"):
        backend = backend_at(url, name, "local-model")
        await run(backend, HEAD.append(user("a")))
        await run(backend, HEAD.append(user("b")))
        await run(backend, HEAD.at(1).append(user("a")))
        await run(backend, HEAD.append(user("a")), off=frozenset({CacheOption.KEY}))
        await backend.aclose()
    headers = [request.headers.get("x-grok-conv-id") for request in emulator.requests]
    fields = [body.get("prompt_cache_key") for body in emulator.bodies]
    for keys in (headers[:4], fields[4:]):
        assert keys[0] == keys[1] != keys[2]
        assert keys[0]
        assert keys[3] is None
    assert set(headers[4:]) | set(fields[:4]) == {None}


async def test_only_what_is_known_or_asked_for_limits_the_output(emulator: Emulator) -> None:
    emulator.play(lambda _: Reply.of("ok"))
    for flavour, asked in (("vllm", None), ("vllm", 5), ("deepseek", None)):
        backend = backend_for(emulator, flavour)
        await run(backend, HEAD.append(user("a")), max_output=asked, effort="high")
        await backend.aclose()
    assert [body.get("max_tokens") for body in emulator.bodies] == [None, 5, 384_000]
    assert emulator.bodies[0]["reasoning_effort"] == "high"
    assert "temperature" not in emulator.bodies[0]


async def test_what_the_environment_says_for_openai_stays_with_openai(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {"OPENAI_API_KEY": "sk-mine", "OPENAI_ORG_ID": "org", "OPENAI_PROJECT_ID": "proj"}
    foreign["OPENAI_CUSTOM_HEADERS"] = "X-Secret: token\nX-Other: more"
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    emulator.play(lambda _: Reply.of("ok"))
    for flavour in ("ollama", "deepseek"):
        backend = backend_for(emulator, flavour, env=foreign)
        await run(backend, HEAD.append(user("a")))
        await backend.aclose()
    for request in emulator.requests:
        assert not {"openai-organization", "openai-project", "x-secret", "x-other"} & {*request.headers}
        assert "sk-mine" not in json.dumps(dict(request.headers))
    assert emulator.requests[1].headers["authorization"] == "Bearer key-for-tests-0123456789"


# --- errors ---


async def failure(backend: Any, **options: Any) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await run(backend, HEAD.append(user("a")), **options)
    await backend.aclose()
    return caught.value


@pytest.mark.parametrize(("name", "start"), [("ollama", "ollama serve"), ("lmstudio", "lms server start")])
async def test_a_server_that_does_not_run_is_named_with_the_command_that_starts_it(name: str, start: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await failure(backend_at(f"http://127.0.0.1:{port}/v1", name, "m"))
    assert error.kind is ErrorKind.NETWORK
    assert start in str(error)
    assert f"127.0.0.1:{port}" in str(error)


async def test_a_missing_key_is_told_before_anything_is_sent(emulator: Emulator) -> None:
    error = await failure(backend_for(emulator, "deepseek", env={"DEEPSEEK_API_KEY": " "}))
    assert (error.kind, emulator.requests) == (ErrorKind.AUTH, [])
    assert "DEEPSEEK_API_KEY" in str(error)


@pytest.mark.parametrize("flavour", ["deepseek", "openrouter", "vllm", "llama-server", "lmstudio"])
async def test_a_prompt_that_is_too_long_is_recognised_in_each_servers_words(emulator: Emulator, flavour: str) -> None:
    emulator.play(lambda _: Reply.of("ok"))
    backend = backend_for(emulator, flavour)
    with pytest.raises(BackendError) as caught:
        await run(backend, HEAD.append(user("word " * 1_200_000)))
    await backend.aclose()
    assert caught.value.kind is ErrorKind.OVERFLOW


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Failure(401, ("", "bad key key-for-tests-0123456789")), ErrorKind.AUTH),
        (Failure(402, ("", "no credit")), ErrorKind.BILLING),
        (Failure(404, ("", "no such model")), ErrorKind.NOT_FOUND),
        (Failure(429, ("", "slow down"), headers={"retry-after": "7"}), ErrorKind.RATE_LIMIT),
        (Failure(503, body="upstream"), ErrorKind.SERVER),
        (html_page(), ErrorKind.PROTOCOL),
        (html_page(404), ErrorKind.PROTOCOL),
    ],
)
async def test_each_failure_is_one_line_without_the_key(emulator: Emulator, answer: Failure, kind: ErrorKind) -> None:
    emulator.play([answer])
    error = await failure(backend_for(emulator, "deepseek"))
    assert error.kind is kind
    assert "key-for-tests" not in str(error)
    assert "\n" not in str(error)
    assert error.retry_after == (7 if kind is ErrorKind.RATE_LIMIT else None)


@pytest.mark.parametrize(
    ("told", "option"),
    [
        ("Unknown parameter: 'session_id'.", None),
        ("Unknown parameter: 'prompt_cache_key'.", CacheOption.KEY),
        ("messages[0].content[0].cache_control: Extra inputs are not permitted", CacheOption.MARKERS),
        ("stream_options: Extra inputs are not permitted", CacheOption.USAGE),
    ],
)
async def test_a_refused_cache_option_is_named(emulator: Emulator, told: str, option: CacheOption | None) -> None:
    emulator.play([Failure(400, ("invalid_request_error", told))])
    error = await failure(backend_for(emulator, "openrouter"))
    assert (error.kind, error.option) == (ErrorKind.INVALID, option)


async def test_refused_options_are_left_out(emulator: Emulator) -> None:
    emulator.play(lambda _: Reply.of("ok"))
    backend = backend_for(emulator, "openrouter")
    talk = Talk(backend)
    await talk.turn(user("a"), off=frozenset({CacheOption.MARKERS, CacheOption.KEY, CacheOption.USAGE}))
    await backend.aclose()
    assert not {"session_id", "stream_options"} & {*emulator.bodies[0]}
    assert '"cache_control"' not in json.dumps(emulator.bodies[0])


async def test_a_long_time_to_live_goes_only_where_it_is_taken(emulator: Emulator) -> None:
    from context.breakpoints import Marker

    emulator.play(lambda _: Reply.of("ok"))
    marks = (Marker(2, "long"), Marker(3, "short"))
    backend = backend_for(emulator, "openrouter")
    await run(backend, HEAD.append(user("a")), markers=marks)
    await run(backend, HEAD.append(user("b")), markers=marks, off=frozenset({CacheOption.LONG_TTL}))
    await backend.aclose()
    assert ['"ttl"' in json.dumps(body) for body in emulator.bodies] == [True, False]
    assert emulator.bills[0] is not None
    assert emulator.bills[0].write_long > 0


# --- broken streams ---

CALLING = Reply.of("Look.", Call("shell", {"command": "rm x"}))


@pytest.mark.parametrize("event", range(1, 8))
async def test_a_stream_cut_after_any_event_leaves_no_call_to_run(emulator: Emulator, event: int) -> None:
    """Field reports 126 and 127. What is cut behind the end has lost the bill at most."""
    emulator.play([Reply(CALLING.parts, cut_after=event)])
    backend = backend_for(emulator, "vllm")
    events: list[Any] = []
    failed: BackendError | None = None
    try:
        async with aclosing(backend.stream(Request(HEAD.append(user("a"))))) as stream:
            async for each in stream:
                events.append(each)
    except BackendError as error:
        failed = error
    await backend.aclose()
    if failed is not None:
        assert (failed.kind, failed.retriable) == (ErrorKind.NETWORK, True)
        assert calls(events) == []
    else:
        assert [call.arguments for call in calls(events)] == ['{"command":"rm x"}']
        assert finished(events).stop is StopReason.TOOLS


@pytest.mark.parametrize("flavour", ["openrouter", "vllm"])
async def test_an_error_in_the_middle_of_the_reply_is_that_error(emulator: Emulator, flavour: str) -> None:
    emulator.play([Reply(CALLING.parts, error_after=(2, "overloaded_error", "too many"))])
    error = await failure(backend_for(emulator, flavour))
    assert error.retriable
    assert "too many" in str(error)


async def test_garbage_in_the_stream_is_a_broken_answer(emulator: Emulator) -> None:
    emulator.play([Reply(CALLING.parts, garbage_after=2)])
    assert (await failure(backend_for(emulator, "vllm"))).kind is ErrorKind.PROTOCOL


async def test_a_cancelled_call_ends_at_once(emulator: Emulator) -> None:
    gate = Gate()
    emulator.play([Reply.of("a" * 100, gates={3: gate})])
    backend = backend_for(emulator, "vllm")
    begun = asyncio.Event()

    async def call() -> None:
        async with aclosing(backend.stream(Request(HEAD.append(user("a"))))) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    begun.set()

    async with asyncio.timeout(60):
        task = asyncio.create_task(call())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    gate.set()
    await backend.aclose()


async def test_a_bill_that_never_comes_is_unknown_and_the_reply_whole(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.compatible._BILL_S", 0.05)
    gate = Gate()
    emulator.play([Reply.of("ok", gates={5: gate})])  # role, two deltas, the end; then the bill
    backend = backend_for(emulator, "vllm")
    async with asyncio.timeout(60):
        events = await run(backend, HEAD.append(user("a")))
    gate.set()
    await backend.aclose()
    assert finished(events).parts == (Text("ok"),)
    assert usage(events) == Usage()


# --- whole tasks ---


@pytest.mark.parametrize("flavour", ["deepseek", "openrouter", "llama-server", "lmstudio"])
def test_one_and_the_same_task_is_done_on_every_server(
    emulator: Emulator, flavour: str, home: Path, repository: Path, run_agent: Callable[..., CompletedProcess[str]]
) -> None:
    name, model = FLAVOURS[flavour]
    (home / "config.toml").write_text(f'[endpoints.{name}]\nbase_url = "{emulator.url}/flavours/{flavour}/v1"\n')
    keys = {"DEEPSEEK_API_KEY": "k", "OPENROUTER_API_KEY": "k"}
    emulator.play(
        play([Read("price.py"), Edit("price.py", "price - tax", "price + tax"), Shell("python check.py")], "Fixed.")
    )
    done = run_agent("run", "--model", f"{name}/{model}", "--mode", "auto", "mend price.py", env=keys)
    assert (done.returncode, done.stdout.strip()) == (0, "Fixed."), done.stderr
    assert "price + tax" in (repository / "price.py").read_text()
    again = run_agent("run", "--continue", "--mode", "auto", "--model", f"{name}/{model}", "and now?", env=keys)
    assert again.returncode == 0, again.stderr
    prefixes = [raw_prefix(request.raw) for request in emulator.requests]
    assert len(prefixes) >= 5
    for before, after in pairwise(prefixes):
        assert after.startswith(before)
