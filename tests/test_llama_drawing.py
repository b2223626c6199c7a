"""Replies that go back to their second choice, with real inference on SmolLM2 135M."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from llama_support import Turn, brief, collect, local_backend, result, take_turn

from backends.base import Request, ToolCallFinished, ToolCallStarted, Veto
from backends.llama.backend import LlamaBackend
from context.block import Opaque, ToolCall

pytest_plugins = ["local_models"]

PROMPT = brief("Read the file with the notes")  # which file that is, the model is not sure of


@pytest_asyncio.fixture
async def backend(smollm2_path: Path, tmp_path: Path) -> AsyncIterator[LlamaBackend]:
    backend = local_backend(smollm2_path, tmp_path)
    yield backend
    await backend.aclose()


async def draw(backend: LlamaBackend, veto: Veto | None = None) -> Turn:
    return Turn(await collect(backend.stream(Request(PROMPT, max_output=64, veto=veto))))


def call_of(turn: Turn) -> ToolCall:
    (call,) = turn.reply.tool_calls
    return call


async def test_a_vetoed_call_comes_out_otherwise_from_the_given_place_on(backend: LlamaBackend) -> None:
    first = call_of(await draw(backend)).arguments
    at = first.index(".")
    turn = await draw(backend, lambda call: at if call.arguments == first else None)
    second = call_of(turn)
    assert second.arguments[:at] == first[:at]
    assert second.arguments[at:] != first[at:]
    assert [event.call for event in turn.events if isinstance(event, ToolCallFinished)] == [second]
    assert sum(isinstance(event, ToolCallStarted) for event in turn.events) == 1


async def test_what_stands_before_the_given_place_is_not_taken_back(backend: LlamaBackend) -> None:
    first = call_of(await draw(backend)).arguments
    assert call_of(await draw(backend, lambda _: len(first))).arguments == first


async def test_what_is_sent_back_is_what_stands(backend: LlamaBackend) -> None:
    """The next turn reuses the reply as it came out, not the one that was taken back."""
    first = call_of(await draw(backend)).arguments
    turn = await draw(backend, lambda call: 0 if call.arguments == first else None)
    opaque = turn.finished.parts[-1]
    assert isinstance(opaque, Opaque)
    kept = len(opaque.data) // 4  # tokens
    assert (turn.usage.output or 0) > kept  # what was taken back was drawn as well
    following = await take_turn(backend, PROMPT.append(turn.reply).append(result(call_of(turn).id, "TAX = 3")))
    assert following.usage.cache_read == (turn.usage.cache_read or 0) + (turn.usage.fresh or 0) + kept - 1


async def test_a_veto_of_everything_ends_with_a_call_all_the_same(backend: LlamaBackend) -> None:
    asked: list[str] = []

    def refuse(call: ToolCall) -> int:
        asked.append(call.arguments)
        return 0

    turn = await draw(backend, refuse)
    assert turn.reply.tool_calls
    assert len(asked) == len(set(asked)) > 1  # never the same call twice


async def test_without_an_objection_nothing_changes(backend: LlamaBackend) -> None:
    plain = await draw(backend)
    asked = await draw(backend, lambda _: None)
    assert call_of(asked).arguments == call_of(plain).arguments
    assert asked.usage.output == plain.usage.output
