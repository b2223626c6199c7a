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
from backends.llama.tuning import Tuning

pytest_plugins = ["local_models"]


@dataclass
class Desk:
    """A person's machine with a local model and a repository."""

    folder: Path
    model: Path
    seen: list[events.Event] = field(default_factory=list)

    @asynccontextmanager
    async def chat(self, *, again: bool = False) -> AsyncIterator[Conversation]:
        here = self.folder / "repo"
        here.mkdir(exist_ok=True)
        folders = Folders(*(self.folder / name for name in ("config", "data", "models", "cache")))
        settings = Settings(model=f"local:{self.model}", mode="plan", context=4096, max_turns=1)
        nothing = Downloads(lambda _: None, lambda _: None, None)
        around = Surroundings(dict(os.environ), SystemClock(), lambda: 0.0, self.seen.append, nothing, None)
        async with open_conversation(Task("chat", here, again=again), settings, folders, around) as conversation:
            yield conversation

    def reused(self) -> int:
        """Tokens that the last call did not have to read."""
        calls = [event for event in self.seen if isinstance(event, events.CallFinished)]
        return calls[-1].usage.cache_read or 0

    def evaluated(self) -> int:
        calls = [event for event in self.seen if isinstance(event, events.CallFinished)]
        return calls[-1].usage.fresh or 0


@pytest.fixture
def desk(smollm2_path: Path, tmp_path: Path) -> Desk:
    note_trial(smollm2_path, tmp_path / "data" / "trials", Tuning(2, 2))
    return Desk(tmp_path, smollm2_path)


async def test_a_turn_that_comes_early_goes_on_where_the_model_is(desk: Desk) -> None:
    async with desk.chat() as conversation:
        conversation.prewarm()
        await asyncio.sleep(0)  # the person is quick: reading has only begun
        await conversation.turn("Say hello.")
        assert desk.reused() + desk.evaluated() > 300, "the turn was answered"
        assert not conversation.session.ledger.pings.of(conversation.session.id), "reading costs nothing"


async def test_what_was_read_while_the_person_typed_is_not_read_in_the_turn(desk: Desk) -> None:
    async with desk.chat() as conversation:
        conversation.prewarm()
        assert conversation._warming is not None
        await conversation._warming
        await conversation.turn("Say hello.")
    assert desk.reused() > 300  # SYSTEM and PROJECT
    assert desk.evaluated() < 100
    async with desk.chat(again=True) as conversation:  # another process would find it on disk
        conversation.prewarm()
        assert conversation._warming is not None
        await conversation._warming
        await conversation.turn("Say it again.")
    assert desk.evaluated() < 100
