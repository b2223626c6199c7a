"""Replies that go back to their second choice, with real inference on SmolLM2 135M."""

from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest_asyncio
from llama_support import Turn, brief, collect, local_backend, result, take_turn

from backends.base import Event, Request, ToolCallFinished, ToolCallStarted, Veto
from backends.llama.backend import LlamaBackend
from backends.llama.drafts import Drafts
from backends.llama.drawing import Drawing
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


class Scripted:
    """A model of three tokens, with what Drawing needs of engine, weights and sampler."""

    PIECES = (b'read","args":{"path":"a', b".txt", b'"}}')
    NEXT: ClassVar = {(): (9.0, 0.0, 0.0), (0,): (0.0, 9.0, 8.0), (0, 1): (0.0, 0.0, 9.0)}

    def __init__(self) -> None:
        self.taken: list[int] = []

    def piece(self, token: int) -> bytes:
        return self.PIECES[token]

    def prefill(self, tokens: "array[int]", *, stop: Callable[[], bool]) -> None: ...

    def generate(
        self, sample: Callable[[int], int], limit: int, stop: Callable[[], bool], drafts: Drafts
    ) -> Iterator[int]:
        return (sample(-1) for _ in range(limit))

    def logits(self, row: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
        return np.array([*self.NEXT[tuple(self.taken)], -9.0], dtype=np.float32)

    def accept_given(self, tokens: list[int]) -> None:
        self.taken = tokens

    def accept(self, token: int) -> None:
        self.taken.append(token)

    def choose(self, logits: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> int:
        return int(logits.argmax())

    def fits(self, token: int) -> bool:
        return token < len(self.PIECES)

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None: ...


def test_the_other_choice_may_be_the_end_of_the_reply() -> None:
    model, told = Scripted(), list[Event]()
    drawing = Drawing(
        engine=model,  # type: ignore[arg-type]
        weights=model,  # type: ignore[arg-type]
        prompt=array("i"),
        given=[],
        sampler=lambda: model,  # type: ignore[arg-type, return-value]
        logits=model.logits,
        call_id="1",
        veto=lambda call: 0 if ".txt" in call.arguments else None,
        tell=told.append,
        stop=lambda: False,
    )
    reader = drawing.run(limit=8)
    assert reader.parts == (ToolCall("1", "read", '{"path":"a"}'),)
    assert list(drawing.tokens) == [0, 2]
    assert [event for event in told if isinstance(event, ToolCallFinished)] == [ToolCallFinished(*reader.parts)]
