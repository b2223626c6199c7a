"""The emulator's Responses API through the official SDK, unmodified: events, items, usage, faults.

Event names and shapes: openai SDK 3.57.0, `types/responses/`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from emulator import Call, Edit, Emulator, Gate, ManualClock, Read, Redacted, Reply, Say, Shell, Think, play
from emulator.faults import broken_at_each_event, rate_limited, retry_after, spend_cap
from emulator.openai_errors import quota_exceeded
from openai import AsyncOpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": name,
        "description": name,
        "parameters": {"type": "object", "properties": {each: {"type": "string"} for each in parameters}},
    }
    for name, parameters in {"read": ["path"], "edit": ["path", "old", "new"], "shell": ["command"]}.items()
]
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
SYSTEM: dict[str, Any] = {
    "role": "developer",
    "content": [{"type": "input_text", "text": "word " * 2000, **BREAKPOINT}],
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as running:
        yield running


@pytest.fixture
async def client(server: Emulator) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as sdk:
        yield sdk


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


async def send(client: AsyncOpenAI, *items: Any, model: str = "gpt-6.2-sol", **options: Any) -> Any:
    given: dict[str, Any] = {"tools": TOOLS, "store": False, "prompt_cache_key": "k", **options}
    return await client.responses.create(model=model, input=list(items), **given)


async def stream(client: AsyncOpenAI, *items: Any, **options: Any) -> list[Any]:
    given: dict[str, Any] = {"model": "gpt-6.2-sol", "tools": TOOLS, "store": False, **options}
    return [event async for event in await client.responses.create(input=list(items), stream=True, **given)]


def replayed(response: Any) -> list[Any]:
    """The output as it goes back: every item, verbatim."""
    return [item.model_dump(exclude_none=True) for item in response.output]


def results(response: Any, output: Any = "Nothing.") -> list[Any]:
    calls = [item for item in response.output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": output} for call in calls]


async def test_events_come_in_the_documented_order(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of(Think("Hm, so."), "I look.", Call("read", {"path": "a"}, pieces=2))])
    events = await stream(client, user("Go on."), reasoning={"summary": "auto"})
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event.output_index for event in events if event.type == "response.output_item.done"] == [0, 1, 2]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text == "I look."
    written = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert written == done[2].arguments == '{"path": "a"}'
    assert events[0].response.usage is None
    assert events[-1].response.usage.total_tokens > 0


async def test_the_reasoning_of_the_added_event_is_not_whole(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of(Think("Hm."), "Yes."), Reply.of("Fine.")])
    events = await stream(client, user("Go on."))
    added, done = (
        next(event.item for event in events if event.type == f"response.output_item.{which}")
        for which in ("added", "done")
    )
    assert done.encrypted_content.startswith(added.encrypted_content)
    assert len(added.encrypted_content) < len(done.encrypted_content)
    assert done.summary == [], "no summary was asked for"
    message = events[-1].response.output[1].model_dump(exclude_none=True)
    with pytest.raises(openai.BadRequestError, match="could not be verified"):
        await send(client, user("Go on."), added.model_dump(exclude_none=True), message, user("And?"))
    assert (await send(client, user("Go on."), *replayed(events[-1].response), user("And?"))).output_text == "Fine."


async def test_a_stream_says_the_same_as_a_whole_answer(server: Emulator, client: AsyncOpenAI) -> None:
    reply = Reply.of(Think("Hm.", "signed"), "I look.", Call("read", {"path": "a"}, id="call_x"))
    server.play([reply, reply])
    events = await stream(client, user("Go on."), prompt_cache_key="k")
    whole = await send(client, user("Go on."))
    bare = {"id"}
    streamed = [item.model_dump(exclude=bare) for item in events[-1].response.output]
    assert streamed == [item.model_dump(exclude=bare) for item in whole.output]
    assert events[-1].response.usage.input_tokens == whole.usage.input_tokens


async def test_a_message_says_whether_it_is_the_last_word(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of("I look.", Call("read", {"path": "a"})), Reply.of("Done.")])
    first = await send(client, user("Go on."))
    last = await send(client, user("Go on."), *replayed(first), *results(first))
    assert [first.output[0].phase, last.output[0].phase] == ["commentary", "final_answer"]


async def test_a_tool_loop_is_billed_as_the_rules_say(
    server: Emulator, client: AsyncOpenAI, clock: ManualClock
) -> None:
    """25 calls side by side; tool results are written only where a breakpoint stands on them."""
    server.play([Reply.of(*(Call("read", {"path": str(n)}) for n in range(25))), Reply.of("Done."), Reply.of("Yes.")])
    first = await send(client, SYSTEM, user("Go on."))
    details = first.usage.input_tokens_details
    assert (details.cached_tokens, details.cache_write_tokens) == (0, first.usage.input_tokens)
    clock.advance(29 * 60)
    answers = results(first)
    answers[-1]["output"] = [{"type": "input_text", "text": "Nothing.", **BREAKPOINT}]
    second = await send(client, SYSTEM, user("Go on."), *replayed(first), *answers)
    assert second.usage.input_tokens_details.cached_tokens == first.usage.input_tokens
    assert second.usage.input_tokens_details.cache_write_tokens == second.usage.input_tokens - first.usage.input_tokens
    clock.advance(29 * 60)
    history = [SYSTEM, user("Go on."), *replayed(first), *answers, *replayed(second)]
    third = await send(client, *history, user("And?"))
    assert third.usage.input_tokens_details.cached_tokens == second.usage.input_tokens
    bills = [bill for bill in server.bills if bill is not None]
    assert [bill.input_total for bill in bills] == [response.usage.input_tokens for response in (first, second, third)]
    assert all(bill.usd is not None and bill.usd > 0 for bill in bills)


async def test_effort_key_and_model_divide_the_cache(server: Emulator, client: AsyncOpenAI) -> None:
    server.play(lambda _: Reply.of("Yes."))
    changes: list[dict[str, Any]] = [
        {},
        {"reasoning": {"effort": "low"}},
        {"prompt_cache_key": "other"},
        {"model": "gpt-6.1-sol"},
        {"service_tier": "fast"},
        {},
        {"reasoning": {"effort": "medium"}},
    ]
    reads = []
    for change in changes:
        usage = (await send(client, SYSTEM, user("Go on."), **change)).usage
        reads.append(usage.input_tokens_details.cached_tokens > 0)
    assert reads == [False] * 5 + [True, True], "an explicit default is the same as none"


async def test_prewarming_writes_and_says_nothing(server: Emulator, client: AsyncOpenAI) -> None:
    warm = await send(client, SYSTEM, user("x"), prompt_cache_options={"mode": "explicit", "prewarm": True})
    assert (warm.output, warm.status) == ([], "completed")
    assert warm.usage.output_tokens == 0
    assert warm.usage.input_tokens_details.cache_write_tokens > 2000
    server.play([Reply.of("Yes.")])
    usage = (await send(client, SYSTEM, user("Go on."))).usage
    assert usage.input_tokens_details.cached_tokens == warm.usage.input_tokens_details.cache_write_tokens


async def test_a_miss_is_explained_when_asked(server: Emulator, client: AsyncOpenAI, clock: ManualClock) -> None:
    server.play(lambda _: Reply.of("Yes."))
    first = await send(client, SYSTEM, user("Go on."), prompt_cache_options={"comparison_response_id": None})
    assert first.prompt_cache_diagnostics is None
    options = {"comparison_response_id": first.id}
    again = await send(client, SYSTEM, user("Go on."), user("And?"), prompt_cache_options=options)
    assert again.prompt_cache_diagnostics.type == "cache_hit"
    assert again.prompt_cache_options.comparison_response_id == first.id
    changed = await send(client, SYSTEM, user("Go on."), tools=TOOLS[:1], prompt_cache_options=options)
    assert changed.prompt_cache_diagnostics.type == "cache_miss"
    assert changed.prompt_cache_diagnostics.reason == "tools_changed"
    clock.advance(13 * 3600)
    late = await send(client, SYSTEM, user("Go on."), prompt_cache_options=options)
    assert late.prompt_cache_diagnostics.type == "unavailable"


async def test_an_older_model_caches_by_itself(server: Emulator, client: AsyncOpenAI, clock: ManualClock) -> None:
    server.play(lambda _: Reply.of("Yes."))
    system = {"role": "developer", "content": "word " * 2000}
    usages = []
    for wait in (0, 23 * 3600, 25 * 3600):
        clock.advance(wait)
        usages.append((await send(client, system, user("Go on."), model="gpt-5.5", tools=[])).usage)
    reads = [usage.input_tokens_details.cached_tokens for usage in usages]
    assert reads == [0, 1920, 0]
    assert "cache_write_tokens" not in usages[0].input_tokens_details.model_fields_set


async def test_an_entry_is_usable_only_when_the_first_response_has_begun(server: Emulator, client: AsyncOpenAI) -> None:
    gate = Gate()
    server.play([Reply.of("Yes.", gates={1: gate}), Reply.of("Yes."), Reply.of("Yes.")])
    waiting = asyncio.create_task(stream(client, SYSTEM, user("Go on."), prompt_cache_key="k"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    await send(client, SYSTEM, user("Go on."), reasoning={"effort": "low"})
    gate.set()
    await waiting
    usage = (await send(client, SYSTEM, user("Go on."))).usage
    assert usage.input_tokens_details.cached_tokens == usage.input_tokens


# --- reasoning, bound to its prefix ---


async def test_reasoning_behind_an_altered_prefix_is_withheld_and_reported(
    server: Emulator, client: AsyncOpenAI
) -> None:
    server.play(lambda _: Reply.of(Think("Hm. " * 50), "Yes."))
    first = await send(client, SYSTEM, user("Go on."))
    same = await send(client, SYSTEM, user("Go on."), *replayed(first), user("And?"))
    assert same.input_transformations is None
    altered = await send(client, SYSTEM, user("Go off."), *replayed(first), user("And?"))
    assert [(each.id, each.action, each.reason) for each in altered.input_transformations] == [
        (first.output[0].id, "removed", "prefix_mismatch")
    ]
    assert altered.usage.input_tokens < same.usage.input_tokens - 50, "what is withheld is not billed"
    history = [SYSTEM, user("Go off."), *replayed(first), user("And?"), *replayed(altered), user("So?")]
    later = await send(client, *history)
    assert len(later.input_transformations) == 1, "reasoning written without the other stays good without it"


async def test_reasoning_that_moves_to_another_place_is_withheld(server: Emulator, client: AsyncOpenAI) -> None:
    server.play(lambda _: Reply.of(Think("Hm."), "Yes."))
    first = await send(client, user("Go on."))
    thought, message = replayed(first)
    moved = await send(client, user("Go on."), message, user("And?"), thought, message, user("So?"))
    assert [each.reason for each in moved.input_transformations] == ["prefix_mismatch"]


async def test_a_marker_that_moves_does_not_alter_the_prefix(server: Emulator, client: AsyncOpenAI) -> None:
    server.play(lambda _: Reply.of(Think("Hm."), Call("read", {"path": "a"}), Think("So."), "Yes."))
    unmarked = {"role": "developer", "content": "word " * 2000}
    first = await send(client, SYSTEM, user("Go on."))
    second = await send(client, unmarked, user("Go on."), *replayed(first), *results(first))
    assert second.input_transformations is None
    assert (await send(client, SYSTEM, user("Go on."), *replayed(first), *results(first))).input_transformations is None


async def test_other_models_and_other_tools(server: Emulator, client: AsyncOpenAI) -> None:
    server.play(lambda _: Reply.of(Think("Hm."), "Yes."))
    first = await send(client, user("Go on."), model="gpt-6.1-sol")
    history = [user("Go on."), *replayed(first), user("And?")]
    foreign = await send(client, *history)
    assert foreign.input_transformations[0].reason == "model_mismatch"
    assert (await send(client, *history, model="gpt-6.1-sol", tools=[])).input_transformations is None
    mine = await send(client, user("Go on."))
    changed = await send(client, user("Go on."), *replayed(mine), user("And?"), tools=TOOLS[:1])
    assert changed.input_transformations[0].reason == "prefix_mismatch"


# --- compaction and counting ---


async def test_compaction_keeps_the_users_words_and_one_opaque_item(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of("Yes."), Reply.of("Still yes.")])
    first = await send(client, SYSTEM, user("Go on."))
    history = [SYSTEM, user("Go on."), *replayed(first), user("And?")]
    compacted = await client.responses.compact(model="gpt-6.2-sol", input=history, prompt_cache_key="k")
    kinds = [(item.type, getattr(item, "role", None)) for item in compacted.output]
    assert kinds == [("message", "user"), ("message", "user"), ("compaction", None)]
    assert compacted.usage.input_tokens > 2000
    items = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
    options = {"comparison_response_id": first.id}
    later = await send(client, *items, user("So?"), prompt_cache_options=options)
    assert later.output_text == "Still yes."
    assert getattr(later.prompt_cache_diagnostics, "reason", None) in ("context_compacted", "tools_changed")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.compact(
            model="gpt-6.2-sol",
            input=history,
            prompt_cache_options={"ttl": "12h"},  # type: ignore[arg-type]
        )
    assert refused.value.param == "prompt_cache_options.ttl"


async def test_the_count_is_the_billed_size(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of("Yes.")])
    items: list[Any] = [SYSTEM, user("Go on.")]
    count = await client.responses.input_tokens.count(model="gpt-6.2-sol", input=items, tools=TOOLS)
    usage = (await send(client, *items)).usage
    assert (count.object, count.input_tokens) == ("response.input_tokens", usage.input_tokens)
    assert len(server.bills) == 2
    assert server.bills[0] is None


# --- unusual ends ---


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_a_reply_that_is_cut_is_incomplete(server: Emulator, client: AsyncOpenAI, reason: str) -> None:
    server.play([Reply.of("I look.", Call("read", '{"pa'), stop=reason)])
    events = await stream(client, user("Go on."))
    assert events[-1].type == "response.incomplete"
    response = events[-1].response
    assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)
    assert [item.status for item in response.output] == ["completed", "incomplete"]
    assert response.usage.output_tokens == 20


async def test_failed_refused_and_error(server: Emulator, client: AsyncOpenAI) -> None:
    server.play(
        [
            Reply.of("I", stop="failed", stop_details={"code": "rate_limit_exceeded", "message": "Slow down."}),
            Reply.of("No.", stop="refusal"),
            Reply.of("I look.", error_after=(3, "server_error", "Broken.")),
        ]
    )
    failed = (await stream(client, user("Go on.")))[-1]
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert (failed.response.error.code, failed.response.error.message) == ("rate_limit_exceeded", "Slow down.")
    refused = await stream(client, user("Go on."))
    assert "response.refusal.delta" in [event.type for event in refused]
    assert refused[-1].response.output[0].content[0].refusal == "No."
    broken = await stream(client, user("Go on."))
    assert (broken[-1].type, broken[-1].code, broken[-1].message) == ("error", "server_error", "Broken.")


async def test_padding_of_deltas_can_be_left_out(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of("Yes.")] * 2)
    padded = await stream(client, user("x"))
    bare = await stream(client, user("x"), stream_options={"include_obfuscation": False})
    padded, bare = ([event for event in events if event.type.endswith("text.delta")] for events in (padded, bare))
    assert len(padded) == len(bare) == 2
    assert all(event.obfuscation for event in padded)
    assert not any(hasattr(event, "obfuscation") for event in bare)


# --- faults ---


async def test_a_fault_after_each_single_event_is_never_a_finished_reply(server: Emulator, client: AsyncOpenAI) -> None:
    reply = Reply.of(Think("Hm."), "I look.", Call("read", {"path": "a"}))
    server.play([reply])
    events = len(await stream(client, user("Go on.")))
    for name, broken in broken_at_each_event(reply, events - 1):
        server.play([broken])
        seen: list[Any] = []
        try:
            seen = await stream(client, user("Go on."))
        except (openai.APIError, ValueError):
            continue
        assert not any(event.type == "response.completed" for event in seen), name
    server.play([reply])
    assert (await stream(client, user("Go on.")))[-1].type == "response.completed", "the server is still well"


async def test_what_was_written_before_a_cut_is_there(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of("Yes.", cut_after=0), Reply.of("Yes.", cut_after=1), Reply.of("Yes.")])
    for _ in range(2):
        with pytest.raises(openai.APIConnectionError):
            await stream(client, SYSTEM, user("Go on."), prompt_cache_key="k")
    usage = (await send(client, SYSTEM, user("Go on."))).usage
    assert usage.input_tokens_details.cached_tokens == usage.input_tokens
    bills = server.bills
    assert bills[0] is None, "never answered, never billed"
    assert bills[1] is not None
    assert bills[1].output == 0


async def test_rate_limits_and_used_up_quotas_differ_in_their_code(server: Emulator, client: AsyncOpenAI) -> None:
    codes = []
    for failure in (rate_limited(retry_after(7)), quota_exceeded(), spend_cap()):
        server.interrupt(failure)
        with pytest.raises(openai.RateLimitError) as refused:
            await send(client, user("Go on."))
        codes.append((refused.value.code, refused.value.response.headers.get("retry-after")))
    assert codes == [("rate_limit_exceeded", "7"), ("insufficient_quota", None), ("insufficient_quota", None)]


@pytest.mark.parametrize(
    ("option", "param"),
    [
        ("prompt_cache_options", "prompt_cache_options"),
        ("comparison_response_id", "prompt_cache_options.comparison_response_id"),
        ("prompt_cache_key", "prompt_cache_key"),
        ("prompt_cache_breakpoint", "input[0].content[0].prompt_cache_breakpoint"),
        ("ttl", "input[0].content[0].prompt_cache_breakpoint.ttl"),
        ("stream_options", "stream_options"),
    ],
)
async def test_an_endpoint_can_refuse_a_cache_option_by_its_name(
    server: Emulator, client: AsyncOpenAI, option: str, param: str
) -> None:
    server.refused_options.add(option)
    marked = {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    options = {"prompt_cache_options": {"comparison_response_id": "resp_1"}, "stream_options": {}}
    with pytest.raises(openai.BadRequestError) as refused:
        await stream(client, {"role": "developer", "content": [marked]}, user("x"), prompt_cache_key="k", **options)
    assert (refused.value.param, refused.value.code) == (param, "unknown_parameter")
    assert param in str(refused.value)


async def test_wrong_usage_eviction_and_a_shorter_time_to_live(
    server: Emulator, client: AsyncOpenAI, clock: ManualClock
) -> None:
    asked: dict[str, Any] = {"prompt_cache_options": {"ttl": "12h"}}
    server.play(
        [
            Reply.of("Yes.", short_ttl=True),
            Reply.of("Yes.", evict="all"),
            Reply.of("Yes.", usage={"input_tokens": 7, "input_tokens_details": None}),
        ]
    )
    short, evicted, wrong = [(await send(client, SYSTEM, user("Go on."), **asked)).usage for _ in range(3)]
    assert short.input_tokens_details.cache_write_tokens_details.ttl_12h_tokens == 0
    assert evicted.input_tokens_details.cached_tokens == 0
    assert evicted.input_tokens_details.cache_write_tokens_details.ttl_12h_tokens == evicted.input_tokens
    assert wrong.input_tokens == 7
    assert "input_tokens_details" not in wrong.model_fields_set
    true = server.bills[-1]
    assert true is not None
    assert true.read == evicted.input_tokens


# --- scripts ---


async def test_abstract_actions_are_played_through_the_offered_tools(server: Emulator, client: AsyncOpenAI) -> None:
    steps: list[Any] = [Read("a.py"), [Edit("a.py", "x", "y"), Shell("make")], [Say("Soon."), Shell("ls")]]
    server.play(play(steps, answer="All done."))
    history: list[Any] = [SYSTEM, user("Go on.")]
    for command in ("Once more.", "And again."):
        names: list[list[str]] = []
        for _ in itertools.count():
            response = await send(client, *history)
            history += [*replayed(response), *results(response)]
            if response.output_text == "All done.":
                break
            names.append([item.name for item in response.output if item.type == "function_call"])
        assert names == [["read"], ["edit", "shell"], ["shell"]]
        history.append(user(command))


async def test_a_notice_beside_tool_results_is_no_command(server: Emulator, client: AsyncOpenAI) -> None:
    server.play(play([Read("a"), Read("b")]))
    first = await send(client, user("Go on."))
    second = await send(client, user("Go on."), *replayed(first), *results(first), user("The date is now another."))
    assert [item.arguments for item in second.output if item.type == "function_call"] == ['{"path": "b"}']


async def test_reasoning_that_is_never_shown(server: Emulator, client: AsyncOpenAI) -> None:
    server.play([Reply.of(Redacted("opaque"), "Yes."), Reply.of("Fine.")])
    first = await send(client, user("Go on."), reasoning={"summary": "auto"})
    assert (first.output[0].type, getattr(first.output[0], "summary", None)) == ("reasoning", [])
    assert (await send(client, user("Go on."), *replayed(first), user("And?"))).output_text == "Fine."
