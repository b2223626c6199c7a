"""The emulated Messages API through the official SDK, unmodified: what it sends is taken, what it reads is right."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from emulator import (
    Call,
    Edit,
    Emulator,
    Failure,
    ManualClock,
    Read,
    Redacted,
    Reply,
    Say,
    Shell,
    Think,
    play,
)
from emulator.faults import (
    broken_at_each_event,
    overloaded,
    rate_limited,
    retry_after,
    server_error,
    spend_cap,
    spoiled,
    stalled,
)

MODEL = "claude-sonnet-5-5"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SYSTEM: Any = [{"type": "text", "text": "Be careful. " * 400, "cache_control": MARK}]
TOOLS: Any = [
    {
        "name": "view_file",
        "description": "Show a file.",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
    },
    {
        "name": "str_replace",
        "description": "Change a file.",
        "input_schema": {
            "type": "object",
            "properties": {"file_path": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {}},
        },
    },
    {
        "name": "bash",
        "description": "Run a command.",
        "input_schema": {"type": "object", "properties": {"cmd": {"type": "string"}}},
    },
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as running:
        yield running


@pytest.fixture
def client(server: Emulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="sk-ant-test-key", max_retries=0) as made:
        yield made


def user(text: str, **fields: Any) -> Any:
    return {"role": "user", "content": [{"type": "text", "text": text, **fields}]}


def ask(client: anthropic.Anthropic, *messages: Any, **options: Any) -> anthropic.types.Message:
    options = {"model": MODEL, "max_tokens": 1000, "system": SYSTEM, **options}
    reply = client.messages.create(messages=messages or [user("go")], **options)
    assert isinstance(reply, anthropic.types.Message)
    return reply


WHOLE = Reply.of(Think("Let me see."), "I read it.", Call("bash", {"cmd": "é"}), Redacted("xx"), output_tokens=77)


def test_a_stream_and_a_json_answer_say_the_same(client: anthropic.Anthropic, server: Emulator) -> None:
    server.play([WHOLE, WHOLE])
    whole = ask(client, tools=TOOLS)
    with client.messages.stream(
        model=MODEL, max_tokens=1000, system=SYSTEM, messages=[user("go")], tools=TOOLS
    ) as stream:
        streamed = stream.get_final_message()
    assert [part.type for part in whole.content] == ["thinking", "text", "tool_use", "redacted_thinking"]
    assert whole.stop_reason == streamed.stop_reason == "tool_use"

    def bare(message: anthropic.types.Message) -> list[Any]:
        return [part.model_dump(exclude={"id", "parsed_output"}) for part in message.content]

    assert bare(whole) == bare(streamed)
    assert streamed.usage.output_tokens == whole.usage.output_tokens == 77
    assert (whole.usage.cache_creation_input_tokens or 0) > 500
    assert streamed.usage.cache_read_input_tokens == whole.usage.cache_creation_input_tokens
    first, second = server.bills
    assert first is not None
    assert second is not None
    assert (first.write_short, second.read, second.output) == (second.read, first.write_short, 77)
    assert first.usd is not None
    assert second.usd is not None
    assert second.usd < first.usd


def test_one_script_plays_through_whatever_tools_are_offered(client: anthropic.Anthropic, server: Emulator) -> None:
    server.play(
        play([Read("a.py"), [Edit("a.py", "x", "y"), Shell("make")], [Say("Hm."), Read("b")]], answer="All done.")
    )
    history: list[Any] = [user("first"), {"role": "assistant", "content": "Hello."}, user("go")]
    seen = []
    for _ in range(4):
        reply = ask(client, *history, tools=TOOLS)
        calls = [part for part in reply.content if part.type == "tool_use"]
        seen.append([(call.name, call.input) for call in calls])
        history.append({"role": "assistant", "content": reply.content})
        if calls:
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in calls]
            history.append({"role": "user", "content": results})
    assert seen == [
        [("view_file", {"file_path": "a.py"})],
        [("str_replace", {"file_path": "a.py", "old_str": "x", "new_str": "y"}), ("bash", {"cmd": "make"})],
        [("view_file", {"file_path": "b"})],
        [],
    ]
    assert history[-1]["content"][0].text == "All done."
    assert [part.type for part in history[-3]["content"]] == ["text", "tool_use"]
    (first,) = ask(client, *history, user("once more"), tools=TOOLS).content
    assert first.type == "tool_use", "each command begins the plan anew"


# Thinking that is bound to its prefix


def talk(client: anthropic.Anthropic, server: Emulator, turns: int, model: str = MODEL) -> list[Any]:
    """A conversation in which each reply thinks before it speaks."""
    history: list[Any] = []
    for turn in range(turns):
        history.append(user(f"question {turn}"))
        server.play([Reply.of(Think(f"thought {turn}"), f"answer {turn}")])
        reply = ask(client, *history, model=model)
        history.append({"role": "assistant", "content": [part.model_dump() for part in reply.content]})
    return [*history, user("and now?")]


def say_more(client: anthropic.Anthropic, server: Emulator, history: list[Any], **options: Any) -> Any:
    server.play([Reply.of("Fine.")])
    return ask(client, *history, **options)


def test_an_unchanged_history_and_moving_markers_are_taken(client: anthropic.Anthropic, server: Emulator) -> None:
    history = talk(client, server, 3)
    history[2]["content"][0]["cache_control"] = MARK
    assert say_more(client, server, history).stop_reason == "end_turn"


def changed_text(history: list[Any]) -> None:
    history[0]["content"][0]["text"] += "!"


def changed_thought(history: list[Any]) -> None:
    history[3]["content"][0]["thinking"] += "!"


def missing_in_the_middle(history: list[Any]) -> None:
    del history[3]["content"][0]


def missing_at_the_start(history: list[Any]) -> None:
    del history[1]["content"][0]


@pytest.mark.parametrize("change", [changed_text, changed_thought, missing_in_the_middle])
def test_thinking_behind_a_changed_prefix_is_refused(
    client: anthropic.Anthropic, server: Emulator, change: Any
) -> None:
    history = talk(client, server, 3)
    change(history)
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        ask(client, *history)
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        client.messages.count_tokens(model=MODEL, messages=history, system=SYSTEM)


def test_another_system_text_is_refused_too(client: anthropic.Anthropic, server: Emulator) -> None:
    history = talk(client, server, 1)
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.1\.content\.0: Invalid `signature`"):
        ask(client, *history, system="Be quick.")


def test_the_first_thoughts_may_be_left_out(client: anthropic.Anthropic, server: Emulator) -> None:
    history = talk(client, server, 3)
    missing_at_the_start(history)
    assert say_more(client, server, history).stop_reason == "end_turn"


def test_models_before_preserved_thinking_mind_only_the_text_of_it(
    client: anthropic.Anthropic, server: Emulator
) -> None:
    history = talk(client, server, 2, "claude-opus-5")
    changed_text(history)
    assert say_more(client, server, history, model="claude-opus-5").stop_reason == "end_turn"
    changed_thought(history)
    with pytest.raises(anthropic.BadRequestError, match="signature"):
        ask(client, *history, model="claude-opus-5")


def test_thinking_of_another_model_is_passed_over(client: anthropic.Anthropic, server: Emulator) -> None:
    history = talk(client, server, 2)
    assert say_more(client, server, history, model="claude-opus-5-5").stop_reason == "end_turn"


def test_thinking_that_does_not_fit_can_be_dropped(client: anthropic.Anthropic, server: Emulator) -> None:
    history = talk(client, server, 2)
    changed_text(history)
    server.play([Reply.of("Fine.")])
    reply = client.beta.messages.create(
        model=MODEL,
        max_tokens=100,
        system=SYSTEM,
        messages=history,
        betas=["thinking-binding-controls-2026-08-01"],
        thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    )
    assert reply.input_transformations is not None
    dropped = [(each.type, each.path) for each in reply.input_transformations if each.type == "thinking_dropped"]
    assert dropped == [("thinking_dropped", "messages.1.content.0"), ("thinking_dropped", "messages.3.content.0")]


# Pre-warming, counting, diagnosing, compacting


def test_a_request_for_no_tokens_warms_the_cache_without_the_script(
    client: anthropic.Anthropic, server: Emulator, clock: ManualClock
) -> None:
    warm = ask(client, max_tokens=0)
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ([], "max_tokens", 0)
    clock.advance(299)
    assert ask(client, max_tokens=0).usage.cache_read_input_tokens == warm.usage.cache_creation_input_tokens
    clock.advance(299)
    server.play([Reply.of("ok")])
    assert (
        ask(client, user("the first real question")).usage.cache_read_input_tokens
        == warm.usage.cache_creation_input_tokens
    )
    clock.advance(300)
    assert ask(client, max_tokens=0).usage.cache_read_input_tokens == 0
    with pytest.raises(anthropic.BadRequestError, match="stream"):
        ask(client, max_tokens=0, stream=True)


def test_counted_and_billed_tokens_are_the_same(client: anthropic.Anthropic, server: Emulator) -> None:
    server.play([WHOLE])
    counted = client.messages.count_tokens(model=MODEL, messages=[user("go")], system=SYSTEM, tools=TOOLS)
    ask(client, tools=TOOLS)
    assert server.bills[0] is None, "counting is free"
    assert server.bills[1] is not None
    assert counted.input_tokens == server.bills[1].input_total


def test_what_a_model_can_do(client: anthropic.Anthropic) -> None:
    model = client.models.retrieve("claude-haiku-4-5")
    assert (model.max_input_tokens, model.max_tokens) == (200_000, 64_000)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"messages": [user("go"), {"role": "assistant", "content": "ok"}, user("on")]}, None),
        ({"model": "claude-opus-5"}, "model_changed"),
        ({"system": [{**SYSTEM[0], "text": "Be quick. " * 400}]}, "system_changed"),
        ({"tools": TOOLS[:1]}, "tools_changed"),
        ({"tools": [TOOLS[1], TOOLS[0], TOOLS[2]]}, "tools_changed"),
        ({"messages": [user("GO")]}, "messages_changed"),
        ({"output_config": {"effort": "low"}}, "unavailable"),
        ({"tool_choice": {"type": "none"}}, "unavailable"),
    ],
)
def test_the_reason_for_a_miss_is_told_when_it_is_asked_for(
    client: anthropic.Anthropic, server: Emulator, change: dict[str, Any], reason: str | None
) -> None:
    server.play([Reply.of("ok")] * 2)
    first = ask(client, tools=TOOLS, diagnostics={"previous_message_id": None})
    assert "diagnostics" in first.model_fields_set
    assert first.diagnostics is None
    request = {"tools": TOOLS, **change}
    second = ask(client, *request.pop("messages", []), diagnostics={"previous_message_id": first.id}, **request)
    if reason is None:
        assert second.diagnostics is None
        return
    assert second.diagnostics is not None
    told = second.diagnostics.cache_miss_reason
    assert told is not None
    assert told.type == reason
    if told.type != "unavailable" and told.type != "previous_message_not_found":
        read = second.usage.cache_read_input_tokens or 0
        assert told.cache_missed_input_tokens == (first.usage.cache_creation_input_tokens or 0) - read


def test_an_unknown_message_cannot_be_compared_with(client: anthropic.Anthropic, server: Emulator) -> None:
    server.play([Reply.of("ok")] * 2)
    reply = ask(client, diagnostics={"previous_message_id": "msg_9999"})
    assert reply.diagnostics is not None
    assert reply.diagnostics.cache_miss_reason is not None
    assert reply.diagnostics.cache_miss_reason.type == "previous_message_not_found"
    assert "diagnostics" not in ask(client).model_fields_set


def compacted(client: anthropic.Anthropic, history: list[Any], **options: Any) -> Any:
    return client.beta.messages.create(
        model=MODEL,
        max_tokens=1000,
        messages=history,
        betas=["compact-2026-09-04"],
        compaction={"type": "summarize"},
        **{"system": SYSTEM, **options},
    )


def test_a_compaction_stands_for_what_it_summarises_and_keeps_later_thinking_valid(
    client: anthropic.Anthropic, server: Emulator
) -> None:
    history = talk(client, server, 3)
    reply = compacted(client, history[:4])
    assert reply.stop_reason == "compaction"
    (block,) = reply.content
    assert block.type == "compaction"
    assert block.content
    assert block.signature
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (0, 0)
    (iteration,) = reply.usage.iterations
    assert iteration.type == "compaction"
    assert iteration.cache_read_input_tokens > 500, "the summary reads the warm prefix"
    assert iteration.output_tokens > 0

    stands = {"role": "assistant", "content": [block.model_dump(exclude_none=True)]}
    assert say_more(client, server, [stands, *history[4:]]).stop_reason == "end_turn"
    with pytest.raises(anthropic.BadRequestError, match="different conversation"):
        ask(client, stands, *history[4:], system="Be quick.")
    with pytest.raises(anthropic.BadRequestError, match="different conversation"):
        ask(client, stands, user("left out a turn"), *history[5:])


def test_a_compaction_streams_one_block(client: anthropic.Anthropic, server: Emulator) -> None:
    with client.beta.messages.stream(
        model=MODEL,
        max_tokens=1000,
        messages=[user("go")],
        betas=["compact-2026-09-04"],
        compaction={"type": "summarize"},
    ) as stream:
        reply = stream.get_final_message()
    (block,) = reply.content
    assert block.type == "compaction"
    assert (block.content, bool(block.signature)) == ("Summary of 1 messages.", True)
    assert reply.usage.iterations is not None
    with pytest.raises(anthropic.BadRequestError, match="compaction: Extra inputs"):
        client.beta.messages.create(
            model=MODEL,
            max_tokens=9,
            messages=[user("go")],
            compaction={"type": "summarize"},
        )


# Errors and faults


@pytest.mark.parametrize(
    ("failure", "kind", "wire_type"),
    [
        (rate_limited(retry_after(7)), anthropic.RateLimitError, "rate_limit_error"),
        (rate_limited(retry_after(0.5, "milliseconds")), anthropic.RateLimitError, "rate_limit_error"),
        (
            rate_limited(retry_after(9, "date", now=datetime(2026, 12, 1, tzinfo=UTC))),
            anthropic.RateLimitError,
            "rate_limit_error",
        ),
        (spend_cap(), anthropic.RateLimitError, "rate_limit_error"),
        (overloaded(), anthropic.InternalServerError, "overloaded_error"),
        (server_error(), anthropic.InternalServerError, "api_error"),
        (server_error(504), anthropic.InternalServerError, "timeout_error"),
        (Failure(402, ("", "no credit")), anthropic.APIStatusError, "billing_error"),
        (Failure(400, ("odd_error", "odd"), details={"why": 1}), anthropic.BadRequestError, "odd_error"),
    ],
)
def test_errors_have_their_body_and_their_headers(
    client: anthropic.Anthropic,
    server: Emulator,
    failure: Failure,
    kind: type[anthropic.APIStatusError],
    wire_type: str,
) -> None:
    server.interrupt(failure)
    server.play([Reply.of("ok")])
    with pytest.raises(kind) as caught:
        ask(client)
    error = caught.value
    assert error.status_code == failure.status
    assert isinstance(error.body, dict)
    assert error.body["error"]["type"] == wire_type
    assert error.request_id == error.body["request_id"] == "req_0001"
    for name, value in failure.headers.items():
        assert error.response.headers[name] == value
    assert ask(client).usage.cache_read_input_tokens == 0, "what was refused has written nothing"


def test_what_no_endpoint_can_mean(client: anthropic.Anthropic, server: Emulator) -> None:
    with pytest.raises(anthropic.NotFoundError, match="model: claude-nobody"):
        ask(client, model="claude-nobody")
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 200000 maximum"):
        ask(client, user("word " * 200_001), model="claude-haiku-4-5")
    with pytest.raises(anthropic.BadRequestError, match="no reply"):
        ask(client)
    with pytest.raises(anthropic.NotFoundError, match="no such path"):
        client.beta.files.list()


@pytest.mark.parametrize(
    ("option", "place"), [("ttl", r"system\.0\.cache_control\.ttl"), ("cache_control", r"system\.0\.cache_control")]
)
def test_an_endpoint_may_not_know_a_cache_option(
    client: anthropic.Anthropic, server: Emulator, option: str, place: str
) -> None:
    """Field report 44."""
    server.refused_options = {option}
    server.play([Reply.of("ok")])
    system = [{**SYSTEM[0], "cache_control": HOUR}]
    with pytest.raises(anthropic.BadRequestError, match=f"{place}: Extra inputs are not permitted"):
        ask(client, system=system)
    assert ask(client, system="Be careful.").stop_reason == "end_turn"


def test_an_endpoint_may_grant_less_time_than_was_asked(
    client: anthropic.Anthropic, server: Emulator, clock: ManualClock
) -> None:
    server.short_ttl = True
    system = [{**SYSTEM[0], "cache_control": HOUR}]
    usage = ask(client, system=system, max_tokens=0).usage
    assert usage.cache_creation is not None
    assert usage.cache_creation.ephemeral_1h_input_tokens == 0
    assert usage.cache_creation.ephemeral_5m_input_tokens == usage.cache_creation_input_tokens != 0
    clock.advance(301)
    assert ask(client, system=system, max_tokens=0).usage.cache_read_input_tokens == 0


def test_faults_can_be_put_into_any_script(client: anthropic.Anthropic, server: Emulator) -> None:
    wrong = {"input_tokens": 1, "cache_read_input_tokens": None, "cache_creation_input_tokens": 0}
    script = play([], answer="ok")
    server.play(spoiled(script, {2: overloaded(), 3: {"usage": wrong}, 4: {"evict": "all"}}))
    assert ask(client).usage.cache_creation_input_tokens != 0
    with pytest.raises(anthropic.InternalServerError):
        ask(client)
    third = ask(client).usage
    assert (third.input_tokens, third.cache_read_input_tokens) == (1, None)
    assert server.bills[2] is not None
    assert server.bills[2].read > 0, "the true bill is kept"
    assert ask(client).usage.cache_read_input_tokens == 0
    assert ask(client).usage.cache_read_input_tokens != 0
    server.evict()
    assert ask(client).usage.cache_read_input_tokens == 0


def test_a_stream_can_break_at_every_event_and_each_break_shows(client: anthropic.Anthropic, server: Emulator) -> None:
    def events() -> Iterator[Any]:
        with client.messages.stream(
            model=MODEL, max_tokens=1000, system=SYSTEM, messages=[user("go")], tools=TOOLS
        ) as stream:
            yield from stream._raw_stream  # the SDK's own parser, without its accumulation

    server.play([WHOLE])
    whole = sum(event.type != "ping" for event in events())
    faults = dict(broken_at_each_event(WHOLE, whole))
    assert len(faults) == 3 * whole + 1
    for name, reply in faults.items():
        seen = 0
        server.play([reply])
        with contextlib.suppress(anthropic.APIError, httpx2.TransportError, ValueError):
            for event in events():
                seen += event.type not in ("ping", "error")
        assert seen == int(name.partition("-")[2]), name
        assert (server.bills[-1] is None) == (name == "cut-0"), name


def test_a_stalled_stream_goes_on_when_it_is_let(client: anthropic.Anthropic, server: Emulator) -> None:
    reply, gate = stalled(Reply.of("one two"), before=1)
    server.play([reply, Reply.of("other"), Reply.of("third")])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, client, stream=False)
        server.wait_for_requests(1)
        other = ask(client)
        assert other.usage.cache_read_input_tokens == 0, "the first response has not begun: its entry is no use yet"
        gate.set()
        waiting.result(timeout=60)
    assert (ask(client).usage.cache_read_input_tokens or 0) > 500


def test_a_script_that_fails_fails_the_test() -> None:
    def broken(_: Any) -> Reply:
        raise ZeroDivisionError("the script's fault")

    def run() -> None:
        with (
            Emulator(broken) as server,
            anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as own,
            contextlib.suppress(anthropic.BadRequestError),
        ):
            ask(own)

    with pytest.raises(ZeroDivisionError, match="the script's fault"):
        run()


def test_by_hand() -> None:
    """`python -m tests.emulator` prints the variables that the SDK reads, and a bill for each request."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulator", "--task", "demo"],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        env: dict[str, str] = {}
        while "ANTHROPIC_BASE_URL" not in env:
            name, _, value = process.stdout.readline().removeprefix("export ").strip().partition("=")
            env[name] = value
        with anthropic.Anthropic(base_url=env["ANTHROPIC_BASE_URL"], api_key=env["ANTHROPIC_API_KEY"]) as client:
            reply = ask(client, tools=TOOLS)
        assert [part.name for part in reply.content if part.type == "tool_use"] == ["view_file", "bash"]
        line = next(line for line in process.stdout if "/v1/messages" in line)
        assert "written" in line
        assert "$0.0" in line
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
