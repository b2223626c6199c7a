"""Chat Completions as each emulated server speaks it, through the official SDK.

Shapes and words: see `emulator/chat_flavours.py` for the sources.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from emulator import Call, Edit, Emulator, ManualClock, Read, Reply, Shell, Think, play
from emulator.chat_flavours import FLAVOURS
from emulator.faults import broken_at_each_event, rate_limited
from openai import AsyncOpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {each: {"type": "string"} for each in parameters}},
        },
    }
    for name, parameters in {"read": ["path"], "edit": ["path", "old", "new"], "shell": ["command"]}.items()
]
SYSTEM = {"role": "system", "content": "word " * 2000}
USER: Any = {"role": "user", "content": "Go on."}
MODELS = {"openai": "gpt-6.1-sol", "deepseek": "deepseek-flash", "openrouter": "anthropic/claude-sonnet-5"}
USAGE = {"stream_options": {"include_usage": True}}
every_flavour = pytest.mark.parametrize("flavour", FLAVOURS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as running:
        yield running


class Chat:
    """One server of the emulator, and the SDK that talks to it."""

    def __init__(self, server: Emulator, flavour: str, sdk: AsyncOpenAI) -> None:
        self.server, self.flavour, self.sdk = server, flavour, sdk
        self.model = MODELS.get(flavour, "local-model")

    async def send(self, *messages: Any, **options: Any) -> Any:
        given: dict[str, Any] = {"model": self.model, "tools": TOOLS, **options}
        return await self.sdk.chat.completions.create(messages=list(messages), **given)

    async def stream(self, *messages: Any, **options: Any) -> list[Any]:
        return [chunk async for chunk in await self.send(*messages, stream=True, **options)]

    async def bill(self, *messages: Any, **options: Any) -> tuple[int, int, int]:
        """The true bill of one request: fresh, read, written."""
        await self.send(*messages, **options)
        bill = self.server.bills[-1]
        assert bill is not None
        return bill.fresh, bill.read, bill.write_short + bill.write_long


@pytest.fixture
async def chat(server: Emulator, flavour: str) -> AsyncIterator[Chat]:
    url = f"{server.url}/flavours/{flavour}/v1"
    async with AsyncOpenAI(base_url=url, api_key="sk-test", max_retries=0) as sdk:
        yield Chat(server, flavour, sdk)


only = pytest.mark.parametrize


def said(chunks: list[Any], field: str = "content") -> str:
    return "".join(getattr(chunk.choices[0].delta, field, None) or "" for chunk in chunks if chunk.choices)


def calls_of(chunks: list[Any]) -> dict[int, dict[str, Any]]:
    """The calls of a stream, put together by their index."""
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for delta in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            call = calls.setdefault(delta.index, {"id": delta.id, "name": delta.function.name, "arguments": ""})
            call["arguments"] += delta.function.arguments or ""
    return calls


@every_flavour
async def test_text_thinking_and_parallel_calls_arrive_whole(chat: Chat, flavour: str) -> None:
    reply = Reply.of(Think("Hm, so."), "I look.", Call("read", {"path": "a"}), Call("shell", {"command": "ls"}))
    chat.server.play([reply, reply])
    chunks = await chat.stream(USER)
    assert said(chunks) == "I look."
    calls = calls_of(chunks)
    assert [(call["name"], call["arguments"]) for call in calls.values()] == [
        ("read", '{"path": "a"}'),
        ("shell", '{"command": "ls"}'),
    ]
    assert len({call["id"] for call in calls.values()}) == 2
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == ["tool_calls"]
    whole = (await chat.send(USER)).choices[0]
    assert (whole.message.content, whole.finish_reason) == ("I look.", "tool_calls")
    assert [call.function.arguments for call in whole.message.tool_calls] == ['{"path": "a"}', '{"command": "ls"}']
    field = FLAVOURS[flavour].reasoning
    for name in ("reasoning", "reasoning_content"):
        assert said(chunks, name) == (getattr(whole.message, name, None) or "") == ("Hm, so." if name == field else "")


@every_flavour
async def test_usage_comes_where_it_was_asked_for(chat: Chat, flavour: str) -> None:
    chat.server.play(lambda _: Reply.of("Yes."))
    silent = await chat.stream(USER)
    asked = await chat.stream(USER, **USAGE)
    reported = [chunk for chunk in asked if chunk.usage is not None]
    assert len(reported) == 1
    if flavour == "deepseek":
        assert reported[0].choices[0].finish_reason == "stop", "in the last chunk with a choice, asked or not"
        assert silent[-1].usage is not None
    else:
        assert (reported[0], reported[0].choices) == (asked[-1], [])
        assert all(chunk.usage is None for chunk in silent)
    usage = reported[0].usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens == chat.server.bills[-1].input_total  # type: ignore[union-attr]


REPORTED: dict[str, dict[str, Any]] = {
    "openai": {"prompt_tokens_details": {"cached_tokens": 2007, "cache_write_tokens": 8, "audio_tokens": 0}},
    "deepseek": {
        "prompt_tokens_details": {"cached_tokens": 1984},
        "prompt_cache_hit_tokens": 1984,
    },
    "openrouter": {"prompt_tokens_details": {"cached_tokens": 1984, "cache_write_tokens": 0, "audio_tokens": 0}},
    "vllm": {"prompt_tokens_details": {"cached_tokens": 1984}},
    "vllm-no-details": {"prompt_tokens_details": None},
    "llama-server": {"prompt_tokens_details": {"cached_tokens": 1984}},
    "ollama": {"prompt_tokens_details": {"cached_tokens": 1984}},
    "lmstudio": {},
}


@every_flavour
async def test_each_server_reports_its_cache_in_its_own_shape(chat: Chat, flavour: str) -> None:
    """The same two requests everywhere: a system message of 2,000 tokens, then one more of the user."""
    chat.server.play(lambda _: Reply.of("Yes."))
    system = {"role": "system", "content": "word " * 1995}  # and a frame of 4
    await chat.send(system, USER, tools=[])
    response = await chat.send(system, USER, {"role": "user", "content": "And what now?"}, tools=[])
    bill = chat.server.bills[-1]
    assert bill is not None
    usage = response.usage.model_dump(exclude_unset=True)
    told = {name: usage[name] for name in ("prompt_tokens_details", "prompt_cache_hit_tokens") if name in usage}
    assert told == REPORTED[flavour]
    assert usage["prompt_tokens"] == bill.input_total == 2015
    # OpenAI matches exactly where the last user message ended; the others in steps of 64 tokens
    assert bill.read == (2007 if flavour == "openai" else 1984)
    if flavour == "deepseek":
        assert usage["prompt_cache_miss_tokens"] == 2015 - 1984
    if flavour == "llama-server":
        assert (response.timings["cache_n"], response.timings["prompt_n"]) == (1984, bill.fresh)
    if flavour == "openrouter":
        assert response.usage.cost == pytest.approx(float(bill.usd or 0))


OVERFLOW = {
    "openai": "maximum context length is 922000 tokens. However, your messages resulted in",
    "deepseek": "maximum context length is 1000000 tokens. However, you requested",
    "openrouter": "maximum context length is 1000000 tokens. However, you requested about",
    "vllm": "maximum context length is 131072 tokens. However, your request has",
    "vllm-no-details": "maximum context length is 131072 tokens. However, your request has",
    "llama-server": "exceeds the available context size (131072 tokens)",
    "lmstudio": "Trying to keep the first",
}


@every_flavour
async def test_overflow_in_each_servers_words(chat: Chat, flavour: str) -> None:
    size = 1_000_001 if flavour in MODELS else 131_073
    chat.server.play(lambda _: Reply.of("Yes."))
    if flavour == "ollama":
        usage = (await chat.send({"role": "user", "content": "word " * size})).usage
        assert usage.prompt_tokens == 131_072, "cut silently"
        return
    with pytest.raises(openai.BadRequestError) as refused:
        await chat.send({"role": "user", "content": "word " * size})
    assert OVERFLOW[flavour] in refused.value.response.text
    body = refused.value.response.json()["error"]
    if flavour == "llama-server":
        assert (body["type"], body["n_ctx"]) == ("exceed_context_size_error", 131_072)
        assert body["n_prompt_tokens"] > body["n_ctx"]
    if flavour == "lmstudio":
        assert isinstance(body, str)
    if flavour == "openai":
        assert (body["code"], body["param"]) == ("context_length_exceeded", "messages")


@every_flavour
async def test_a_fault_after_each_single_event_is_never_a_finished_reply(chat: Chat, flavour: str) -> None:
    reply = Reply.of("I look.", Call("read", {"path": "a"}, pieces=2))
    chat.server.play([reply])
    events = len(await chat.stream(USER)) + 1  # and [DONE]
    for name, broken in broken_at_each_event(reply, events - 2):
        chat.server.play([broken])
        seen: list[Any] = []
        try:
            seen = await chat.stream(USER)
        except (openai.APIError, ValueError):
            continue
        assert not any(choice.finish_reason == "tool_calls" for chunk in seen for choice in chunk.choices), name
    chat.server.play([reply])
    assert (await chat.stream(USER))[-1].choices[0].finish_reason == "tool_calls"


@every_flavour
async def test_abstract_actions_are_played_through_the_offered_tools(chat: Chat, flavour: str) -> None:
    chat.server.play(play([Read("a.py"), [Edit("a.py", "x", "y"), Shell("make")]], answer="All done."))
    history: list[Any] = [SYSTEM, USER]
    for _ in range(2):
        names = []
        while True:
            message = (await chat.send(*history)).choices[0].message
            history.append(message.model_dump(exclude_none=True))
            if message.content == "All done.":
                break
            names.append([call.function.name for call in message.tool_calls])
            history += [{"role": "tool", "tool_call_id": c.id, "content": "Nothing."} for c in message.tool_calls]
        assert names == [["read"], ["edit", "shell"]]
        history.append(USER)


@only("flavour", ["vllm"])
async def test_a_notice_beside_tool_results_is_no_command(chat: Chat, flavour: str) -> None:
    chat.server.play(play([Read("a"), Read("b")]))
    message = (await chat.send(USER)).choices[0].message.model_dump(exclude_none=True)
    told = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Nothing."}
    second = await chat.send(USER, message, told, {"role": "user", "content": "The date is now another."})
    assert [call.function.arguments for call in second.choices[0].message.tool_calls] == ['{"path": "b"}']


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "tool_call_id": "c1", "content": "x"}


@every_flavour
@pytest.mark.parametrize(
    "messages",
    [[USER, ASKS, USER], [USER, ASKS], [USER, ASKS, USER, TOLD], [USER, TOLD], [USER, ASKS, TOLD, TOLD]],
    ids=["unanswered", "open end", "too late", "orphan", "twice"],
)
async def test_calls_and_results_are_paired(chat: Chat, flavour: str, messages: list[Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await chat.send(*messages)
    assert "tool_calls" in refused.value.response.text


@every_flavour
async def test_models_are_listed(chat: Chat, flavour: str) -> None:
    names = [model.id async for model in chat.sdk.models.list()]
    assert chat.model in names
    if "/" not in chat.model:
        assert (await chat.sdk.models.retrieve(chat.model)).id == chat.model


@every_flavour
async def test_an_endpoint_can_refuse_a_cache_option_by_its_name(chat: Chat, flavour: str) -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    for option in ("prompt_cache_key", "stream_options", "cache_control"):
        chat.server.refused_options = {option}
        with pytest.raises(openai.BadRequestError) as refused:
            await chat.stream({"role": "user", "content": [part]}, prompt_cache_key="k", **USAGE)
        assert option in refused.value.response.text


@only("flavour", ["lmstudio"])
async def test_lm_studios_errors_are_bare_texts(chat: Chat, flavour: str) -> None:
    """The SDK's own message then says nothing: the words are in the body alone."""
    with pytest.raises(openai.BadRequestError) as refused:
        await chat.send(USER, ASKS)
    assert str(refused.value) == "Error code: 400"
    assert isinstance(refused.value.response.json()["error"], str)


@only("flavour", ["openai"])
async def test_openai_chat_has_breakpoints_but_only_half_an_hour(chat: Chat, flavour: str, clock: ManualClock) -> None:
    chat.server.play(lambda _: Reply.of("Yes."))
    part = {"type": "text", "text": "word " * 2000, "prompt_cache_breakpoint": {"mode": "explicit"}}
    system = {"role": "developer", "content": [part]}
    explicit: dict[str, Any] = {"prompt_cache_options": {"mode": "explicit"}, "tools": []}
    fresh, read, written = await chat.bill(system, USER, **explicit)
    assert (read, written) == (0, 2005)
    assert fresh > 0
    clock.advance(29 * 60)
    assert await chat.bill(system, USER, **explicit) == (fresh, 2005, 0)
    clock.advance(31 * 60)
    assert (await chat.bill(system, USER, **explicit))[1] == 0
    with pytest.raises(openai.BadRequestError) as refused:
        await chat.send(system, USER, prompt_cache_options={"ttl": "12h"})
    assert refused.value.param == "prompt_cache_options.ttl"


@only("flavour", ["openai"])
@pytest.mark.parametrize(
    ("options", "param", "status"),
    [
        ({"model": "gpt-6.2-sol"}, "tools", 400),
        ({"model": "gpt-9"}, None, 404),
        ({"max_tokens": 5}, "max_tokens", 400),
        ({"temperature": 0}, "temperature", 400),
        ({"extra_body": {"cache_prompt": True}}, "cache_prompt", 400),
        ({"reasoning_effort": "huge"}, "reasoning_effort", 400),
    ],
)
async def test_openai_chat_is_strict(
    chat: Chat, flavour: str, options: dict[str, Any], param: str | None, status: int
) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await chat.send(USER, **options)
    assert (refused.value.param, refused.value.status_code) == (param, status)


@only("flavour", ["deepseek", "vllm", "llama-server", "ollama", "lmstudio"])
async def test_others_take_what_they_do_not_know_but_not_the_role_developer(chat: Chat, flavour: str) -> None:
    chat.server.play(lambda _: Reply.of("Yes."))
    await chat.send(USER, max_tokens=5, temperature=0, extra_body={"cache_prompt": True})
    with pytest.raises(openai.BadRequestError) as refused:
        await chat.send({"role": "developer", "content": "x"}, USER)
    assert "developer" in refused.value.response.text


@only("flavour", ["deepseek"])
async def test_deepseek_wants_its_reasoning_back_in_a_tool_loop(chat: Chat, flavour: str) -> None:
    chat.server.play(lambda _: Reply.of(Think("Hm."), Call("read", {"path": "a"})))
    message = (await chat.send(USER)).choices[0].message.model_dump(exclude_none=True)
    told = {**TOLD, "tool_call_id": message["tool_calls"][0]["id"]}
    await chat.send(USER, message, told)
    bare = {key: value for key, value in message.items() if key != "reasoning_content"}
    with pytest.raises(openai.BadRequestError, match="reasoning_content"):
        await chat.send(USER, bare, told)


@only("flavour", ["openrouter"])
async def test_openrouter_hands_cache_control_on(chat: Chat, flavour: str, clock: ManualClock) -> None:
    chat.server.play(lambda _: Reply.of("Yes."))
    part = {"type": "text", "text": "word " * 2000, "cache_control": {"type": "ephemeral"}}
    system = {"role": "system", "content": [part]}
    assert await chat.bill(system, USER, tools=[]) == (7, 0, 2005)
    clock.advance(4 * 60)
    assert await chat.bill(system, USER, tools=[]) == (7, 2005, 0)
    clock.advance(5 * 60)
    assert await chat.bill(system, USER, tools=[]) == (7, 0, 2005)
    long = {"role": "system", "content": [{**part, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}
    clock.advance(6 * 60)
    assert await chat.bill(long, USER, tools=[]) == (7, 0, 2005)
    assert chat.server.bills[-1].write_long == 2005  # type: ignore[union-attr]
    clock.advance(59 * 60)
    assert await chat.bill(long, USER, tools=[], extra_body={"cache_control": {"type": "ephemeral"}}) == (0, 2005, 7)


@only("flavour", ["openrouter"])
async def test_an_error_in_the_middle_of_openrouters_stream_is_a_chunk(chat: Chat, flavour: str) -> None:
    chat.server.play([Reply.of("I look.", error_after=(2, "provider_unavailable", "Upstream died."))])
    with pytest.raises(openai.APIError, match="Upstream died"):
        await chat.stream(USER)


@only("flavour", ["deepseek", "openrouter"])
async def test_comments_between_events_keep_the_connection_alive(chat: Chat, flavour: str) -> None:
    chat.server.play([Reply.of("Yes.")] * 2)
    async with chat.sdk.chat.completions.with_streaming_response.create(
        model=chat.model,
        messages=[USER],
        stream=True,
    ) as response:
        lines = [line async for line in response.iter_lines()]
    assert sum(line.startswith(": ") for line in lines) == 1
    assert said(await chat.stream(USER)) == "Yes."


@only("flavour", ["ollama", "vllm"])
async def test_ollama_sends_a_call_in_one_piece(chat: Chat, flavour: str) -> None:
    chat.server.play([Reply.of(Call("read", {"path": "a"}, pieces=3))])
    deltas = [chunk for chunk in await chat.stream(USER) if chunk.choices and chunk.choices[0].delta.tool_calls]
    assert len(deltas) == (1 if flavour == "ollama" else 4)


@only("flavour", ["lmstudio", "openai", "vllm"])
async def test_wrong_usage_and_rate_limits(chat: Chat, flavour: str) -> None:
    chat.server.play([Reply.of("Yes.", usage={"prompt_tokens": 1, "total_tokens": 2})])
    assert (await chat.send(USER)).usage.model_dump(exclude_unset=True) == {
        "completion_tokens": 20,
        "prompt_tokens": 1,
        "total_tokens": 2,
    }
    chat.server.interrupt(rate_limited({"retry-after": "3"}))
    with pytest.raises(openai.RateLimitError) as refused:
        await chat.send(USER)
    assert refused.value.response.headers["retry-after"] == "3"


@only("flavour", ["vllm"])
async def test_an_automatic_cache_forgets_after_an_hour(chat: Chat, flavour: str, clock: ManualClock) -> None:
    chat.server.play(lambda _: Reply.of("Yes."))
    reads = []
    for wait in (0, 59 * 60, 59 * 60, 61 * 60):
        clock.advance(wait)
        reads.append((await chat.bill(SYSTEM, USER))[1] > 0)
    assert reads == [False, True, True, False]
