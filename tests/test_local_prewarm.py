"""While a person types, a local model reads what the next turn begins with."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from llama_support import note_trial

from agent import events
from agent.backend_choice import Downloads
from agent.clock import SystemClock
from agent.config import Folders, Settings
from agent.conversation import Conversation
from agent.opening import Surroundings, Task, open_conversation
from backends.base import Usage
from backends.llama.tuning import Tuning

pytest_plugins = ["local_models"]


@dataclass
class Desk:
    """A person's machine with a local model and a repository."""

    folder: Path
    model: Path
    seen: list[events.Event] = field(default_factory=list)
    replies: asyncio.Event = field(default_factory=asyncio.Event)

    def emit(self, event: events.Event) -> None:
        self.seen.append(event)
        if isinstance(event, events.TextDelta | events.ThinkingDelta | events.ToolWriting):
            self.replies.set()

    async def read(self, conversation: Conversation, command: str) -> Usage:
        """What was read until the reply to `command` began; how it goes on does not matter here."""
        self.replies.clear()
        turn = asyncio.create_task(conversation.turn(command))
        await self.replies.wait()
        turn.cancel()
        await asyncio.wait([turn])
        return conversation.session.ledger.calls(conversation.session.id)[-1].usage

    @asynccontextmanager
    async def chat(self, *, again: bool = False) -> AsyncIterator[Conversation]:
        here = self.folder / "repo"
        here.mkdir(exist_ok=True)
        folders = Folders(*(self.folder / name for name in ("config", "data", "models", "cache")))
        settings = Settings(model=f"local:{self.model}", mode="plan", context=4096, max_turns=1)
        nothing = Downloads(lambda _: None, lambda _: None, None)
        around = Surroundings(dict(os.environ), SystemClock(), lambda: 0.0, self.emit, nothing, None)
        async with open_conversation(Task("chat", here, again=again), settings, folders, around) as conversation:
            yield conversation


@pytest.fixture
def desk(smollm2_path: Path, tmp_path: Path) -> Desk:
    note_trial(smollm2_path, tmp_path / "data" / "trials", Tuning(2, 2))
    return Desk(tmp_path, smollm2_path)


async def test_a_turn_that_comes_early_goes_on_where_the_model_is(desk: Desk) -> None:
    async with desk.chat() as conversation:
        conversation.prewarm()
        await asyncio.sleep(0)  # the person is quick: reading has only begun
        usage = await desk.read(conversation, "Say hello.")
        assert (usage.input_total or 0) > 300, "the turn was answered"
        assert not conversation.session.ledger.pings.of(conversation.session.id), "reading costs nothing"


async def test_what_was_read_while_the_person_typed_is_not_read_in_the_turn(desk: Desk) -> None:
    async with desk.chat() as conversation:
        conversation.prewarm()
        assert conversation._warming is not None
        await conversation._warming
        first = await desk.read(conversation, "Say hello.")
    assert (first.cache_read or 0) > 300  # SYSTEM and PROJECT
    assert first.fresh is not None
    assert first.fresh < 100
    async with desk.chat(again=True) as conversation:  # another process would find it on disk
        conversation.prewarm()
        assert conversation._warming is not None
        await conversation._warming
        second = await desk.read(conversation, "Say it again.")
    assert second.fresh is not None
    assert second.fresh < 100
