"""A model in this process, end to end, with real inference on SmolLM2 135M."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from llama_support import TOOLS, block, brief, collect, conversation, local_backend, plain, result, take_turn, user

from backends.base import (
    BackendError,
    ErrorKind,
    MemoryWireStore,
    Prefill,
    ReplyFinished,
    Request,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from backends.llama.backend import LlamaBackend
from backends.llama.loaded import KvOptions
from backends.llama.sampling import Sampling
from backends.llama.weights import Kind
from context.block import Layer, Opaque, Role, Text, ToolCall
from context.layers.history import results_block
from context.prompt import Prompt

pytest_plugins = ["local_models", "tiny_models"]


async def test_a_turn_is_told_in_order_and_accounts_for_every_token(backend: LlamaBackend) -> None:
    turn = await take_turn(backend, conversation())
    total = turn.prefill[-1].total
    assert [event.done for event in turn.prefill] == sorted({event.done for event in turn.prefill})
    assert (turn.prefill[0].done, turn.prefill[-1].done) == (0, total)
    assert turn.usage.fresh == total
    assert turn.usage.cache_read == turn.usage.cache_write == turn.usage.reasoning == 0
    opaque = turn.finished.parts[-1]
    assert isinstance(opaque, Opaque)
    assert opaque.dialect == backend.dialect
    assert turn.usage.output == len(opaque.data) // 4
    kinds = [type(event) for event in turn.events]
    assert kinds.index(UsageReported) > max(index for index, kind in enumerate(kinds) if kind is Prefill)
    assert kinds[-2:] == [UsageReported, ReplyFinished]


async def test_a_turn_that_appends_n_tokens_evaluates_about_n(backend: LlamaBackend) -> None:
    first = await take_turn(backend, conversation())
    prompt = conversation().append(first.reply)
    calls = first.reply.tool_calls
    prompt = prompt.append(results_block(calls, {}) if calls else user("And now?"))
    second = await take_turn(backend, prompt)
    assert second.prefill[0].reused == second.usage.cache_read
    held = second.usage.cache_read or 0
    given = (first.usage.fresh or 0) + (first.usage.output or 0)
    assert held in (given - 1, given)  # the last token was drawn and not evaluated, unless it had been guessed
    assert second.usage.fresh == second.prefill[-1].total - held
    assert second.usage.fresh < 40


async def test_greedy_replies_are_the_same_in_two_fresh_runs(smollm2_path: Path, trials: Path) -> None:
    replies = []
    for _ in range(2):
        backend = local_backend(smollm2_path, trials)
        replies.append((await take_turn(backend, brief())).finished)
        await backend.aclose()
    assert replies[0] == replies[1]


async def test_the_prompt_survives_the_process_token_for_token(smollm2_path: Path, trials: Path) -> None:
    wires = MemoryWireStore()
    first = local_backend(smollm2_path, trials, wires=wires)
    turn = await take_turn(first, brief())
    await first.aclose()
    prompt = brief().extend([turn.reply, user("go on")])
    second = local_backend(smollm2_path, trials, wires=wires)
    replayed = await take_turn(second, brief().append(turn.reply), max_output=0)
    resumed = await take_turn(second, prompt, max_output=1)
    await second.aclose()
    assert replayed.usage.fresh == turn.prefill[-1].total + (turn.usage.output or 0)
    assert resumed.usage.cache_read == replayed.usage.fresh


async def test_evaluating_a_prompt_ahead_makes_the_first_turn_warm(backend: LlamaBackend) -> None:
    system = brief().head(Layer.SYSTEM)
    ahead = await take_turn(backend, system, max_output=0)
    assert ahead.finished.parts == ()
    assert ahead.usage.output == 0
    turn = await take_turn(backend, brief(), max_output=1)
    assert turn.usage.cache_read == ahead.usage.fresh


async def test_at_temperature_1_every_reply_parses(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials, sampling=Sampling(top_k=0, top_p=1.0, min_p=0.0))
    names = {tool.name: set(tool.schema["properties"]) for tool in TOOLS}
    called = 0
    for number in range(12):
        turn = await take_turn(backend, brief(f"Read file{number}.py, edit it"), max_output=32, temperature=1.0)
        for call in turn.reply.tool_calls:
            called += 1
            assert set(json.loads(call.arguments)) <= names[call.name]
        assert (turn.finished.stop is StopReason.TOOLS) == bool(turn.reply.tool_calls)
        finished = [event.call for event in turn.events if isinstance(event, ToolCallFinished)]
        assert finished == list(turn.reply.tool_calls)
    await backend.aclose()
    assert called >= 2


async def test_a_call_is_told_while_it_is_written(backend: LlamaBackend) -> None:
    turn = await take_turn(backend, brief())
    started = [event for event in turn.events if isinstance(event, ToolCallStarted)]
    fragments = [event.fragment for event in turn.events if isinstance(event, ToolCallDelta)]
    (finished,) = [event.call for event in turn.events if isinstance(event, ToolCallFinished)]
    assert started == [ToolCallStarted(finished.id, finished.name)]
    assert len(fragments) > 1
    assert "".join(fragments) == finished.arguments
    assert turn.finished.stop is StopReason.TOOLS


SAID = "汉字 😀 é"


def parrot(text: str = SAID) -> Prompt:
    """A conversation in which even the smallest model says `text` once more."""
    said = block(Role.ASSISTANT, Text(text))
    return plain("Say it.").extend([said, user("Say it."), said, user("Say it.")])


async def test_text_beyond_ascii_arrives_whole(backend: LlamaBackend) -> None:
    turn = await take_turn(backend, parrot())
    deltas = [event.text for event in turn.events if isinstance(event, TextDelta)]
    assert "".join(deltas) == turn.reply.text == SAID
    assert len(deltas) < (turn.usage.output or 0)  # characters of several tokens came in one piece


async def test_a_character_that_is_cut_off_by_the_limit_is_left_out(backend: LlamaBackend) -> None:
    whole = (await take_turn(backend, parrot())).usage.output or 0
    for limit in range(8, whole - 1):
        turn = await take_turn(backend, parrot(), max_output=limit)
        assert SAID.startswith(turn.reply.text)
        assert turn.finished.stop is StopReason.MAX_OUTPUT
        assert turn.usage.output == limit


async def test_a_call_that_the_limit_cuts_off_is_no_call(backend: LlamaBackend) -> None:
    prompt = brief("Read file0.py")
    for limit in (1, 5):
        cut = await take_turn(backend, prompt, max_output=limit)
        assert not cut.reply.tool_calls
        assert cut.finished.stop is StopReason.MAX_OUTPUT
        after = await take_turn(backend, prompt.extend([cut.reply, user("Go on.")]), max_output=1)
        given = cut.prefill[-1].total + limit
        assert after.usage.cache_read in (given - 1, given)  # the last token was not evaluated, unless it was guessed


async def test_a_stopped_prefill_is_not_lost(backend: LlamaBackend) -> None:
    prompt = brief("word " * 200)
    async with aclosing(backend.stream(Request(prompt))) as stream:
        async for event in stream:
            if isinstance(event, Prefill) and event.done >= 256:
                break
    turn = await take_turn(backend, prompt, max_output=2)
    assert turn.usage.cache_read is not None
    assert turn.usage.cache_read >= 256
    assert turn.usage.fresh == turn.prefill[-1].total - turn.usage.cache_read


async def test_cancelling_the_task_stops_the_reply(backend: LlamaBackend) -> None:
    first = asyncio.Event()

    async def listen() -> None:
        async with aclosing(backend.stream(Request(plain("Count to a thousand."), max_output=400))) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    first.set()

    task = asyncio.create_task(listen())
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    turn = await take_turn(backend, plain("Count to a thousand."), max_output=4)
    assert turn.usage.output == 4
    assert turn.usage.fresh == 1  # the prompt was still there


async def test_after_an_interruption_the_next_request_extends_the_last(backend: LlamaBackend) -> None:
    prompt = brief("first")
    async with aclosing(backend.stream(Request(prompt))) as stream:
        async for event in stream:
            if isinstance(event, UsageReported):
                total = event.usage.fresh
                break
    turn = await take_turn(backend, prompt.append(user("second")), max_output=2)
    assert turn.usage.cache_read is not None
    assert total is not None
    assert turn.usage.cache_read >= total


async def test_two_calls_at_once_are_served_one_after_the_other(backend: LlamaBackend) -> None:
    one, other = await asyncio.gather(
        take_turn(backend, plain("Say one."), max_output=6), take_turn(backend, plain("Say two."), max_output=6)
    )
    alone = await take_turn(backend, plain("Say one."), max_output=6)
    assert one.finished == alone.finished
    assert one.finished.parts != () != other.finished.parts


async def test_a_prompt_that_does_not_fit_says_both_numbers_and_what_to_do(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials, context=512)
    with pytest.raises(BackendError) as caught:
        await take_turn(backend, brief("word " * 600))
    assert caught.value.kind is ErrorKind.OVERFLOW
    assert "512" in str(caught.value)
    assert "779" in str(caught.value)
    assert "--context" in str(caught.value)
    assert (await take_turn(backend, plain("Hello"), max_output=2)).usage.output == 2
    await backend.aclose()


async def test_a_full_context_ends_the_reply(backend: LlamaBackend, smollm2_path: Path, trials: Path) -> None:
    prompt = parrot(" ".join(map(str, range(100, 140))))
    total = (await take_turn(backend, prompt, max_output=1)).prefill[-1].total
    small = local_backend(smollm2_path, trials, context=total + 64)
    turn = await take_turn(small, prompt, max_output=200)
    await small.aclose()
    assert turn.finished.stop is StopReason.CONTEXT_FULL
    assert turn.usage.output == 64
    assert turn.reply.text.startswith("100 101 102")


async def test_capabilities_are_known_before_the_model_is_loaded(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials, context=None)
    assert backend.capabilities.context == 8192
    assert backend.capabilities.profile == "compact"
    assert backend.capabilities.cache.max_markers == 0
    await backend.aclose()


async def test_a_context_beyond_training_is_refused(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials, context=9000)
    with pytest.raises(BackendError, match=r"8,192.*--context"):
        await backend.prepare()
    await backend.aclose()


async def test_too_little_memory_is_said_before_it_is_taken(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials, available_memory=lambda: 1_000_000)
    with pytest.raises(BackendError, match=r"needs 0\.0 GB|smaller context") as caught:
        await backend.prepare()
    assert caught.value.kind is ErrorKind.LOCAL
    await backend.aclose()


@pytest.mark.parametrize("kind", Kind)
async def test_a_limit_of_memory_is_kept_by_every_kind_of_model(
    tiny_models: dict[Kind, Path], trials: Path, kind: Kind
) -> None:
    """A generous one is no order to take it all."""
    for megabytes in (2, 1_000_000_000):
        backend = local_backend(tiny_models[kind], trials, cache=KvOptions(memory=megabytes * 1_000_000))
        try:
            await backend.prepare()
        finally:
            await backend.aclose()


async def test_a_closed_backend_says_so(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials)
    stream = backend.stream(Request(plain("Count to a thousand."), max_output=400))
    events = [await anext(stream)]
    await backend.aclose()
    await backend.aclose()
    with pytest.raises(BackendError, match="closed"):
        events += await collect(stream)
    with pytest.raises(BackendError, match="closed"):
        await take_turn(backend, plain("Hello"))


async def test_an_event_loop_that_ends_early_leaves_the_worker_in_peace(smollm2_path: Path, trials: Path) -> None:
    backend = local_backend(smollm2_path, trials)

    async def start() -> None:
        stream = backend.stream(Request(plain("Count to a thousand."), max_output=200))
        await anext(stream)
        await stream.aclose()

    await asyncio.to_thread(asyncio.run, start())
    turn = await take_turn(backend, plain("Count to a thousand."), max_output=2)
    assert turn.usage.output == 2
    await backend.aclose()


async def test_history_of_another_model_can_be_continued(backend: LlamaBackend) -> None:
    foreign = block(Role.ASSISTANT, ToolCall("x", "grep", '{"q": 1}'), Opaque("other", b"1"))
    turn = await take_turn(backend, brief().extend([foreign, result("x", "found")]), max_output=4)
    assert turn.usage.output == 4
