"""A session that is held open: what the cache costs while its person types, thinks, is asked, or has gone home."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from emulator import Emulator, Recorded, Reply, Shell, play, raw_prefix
from waiting import LEASE_S, MODELS, Waiting, opened

from agent import events, head
from agent.backend_choice import find_model, load_catalog, pricing
from agent.config import Settings
from agent.gate import Answer
from agent.ledger import Ledger
from agent.permissions import Ask
from agent.reports.pings import ping_totals
from backends.base import Usage
from context.forecast import Cause
from context.pauses import Pause
from context.repo.deleted import DeletedFiles
from context.repo.files import Listing

pytest_plugins = ["waiting_fixtures"]


def pauses(waiting: Waiting) -> list[Pause]:
    with Ledger.open(waiting.folders.ledger) as ledger:
        return ledger.pauses.seen(waiting.clock.now() + 13 * 3600)


def last_cause(waiting: Waiting) -> Cause | None:
    verdict = waiting.calls()[-1].verdict
    return verdict.cause if verdict else None


async def test_a_pause_a_little_longer_than_the_lease_loses_nothing(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    """Six minutes of five."""
    async with opened(waiting) as conversation:
        await conversation.wait(await conversation.turn("begin"))
        await waiting.idle()
        began = waiting.clock.now()
        await waiting.clock.advance(LEASE_S[api] * 1.2, waiting.pinged)
        await conversation.turn("go on")
    (ping,) = waiting.pings()
    assert (ping.activity, ping.status, ping.at - began) == ("idle", "done", LEASE_S[api] - 30)
    assert ping.saving_usd is not None
    assert ping.cost_usd is not None
    assert ping.saving_usd > ping.cost_usd
    assert raw_prefix(server.requests[1].raw) == raw_prefix(server.requests[0].raw)
    assert last_cause(waiting) is Cause.NONE
    assert [pause.seconds for pause in pauses(waiting)] == [LEASE_S[api] * 1.2]


@pytest.mark.parametrize(("late", "saves"), [(60, True), (-10, False)])
async def test_pings_say_what_they_have_saved(waiting: Waiting, api: str, late: float, saves: bool) -> None:
    """Who is back before the lease would have ended has saved nothing."""
    async with opened(waiting) as conversation:
        await conversation.wait(await conversation.turn("begin"))
        await waiting.idle()
        await waiting.clock.advance(LEASE_S[api] + late, waiting.pinged)
        pricer = pricing(find_model(MODELS[api], load_catalog(waiting.folders)))
        assert ping_totals(waiting.pings(), waiting.calls(), pricer).saved_usd == 0, "nobody is back yet"
        await conversation.turn("go on")
    totals = ping_totals(waiting.pings(), waiting.calls(), pricer)
    (ping,) = waiting.pings()
    tokens, at = ping.usage.cache_read, datetime.fromtimestamp(waiting.clock.now(), UTC)
    written, read = pricer(Usage(0, 0, tokens, 0, 0, 0), at)[0], pricer(Usage(0, tokens, 0, 0, 0, 0), at)[0]
    assert written is not None
    assert read is not None
    assert written > read
    assert (totals.count, totals.usd) == (1, ping.cost_usd)
    assert totals.saved_usd == (written - read if saves else 0)


async def test_a_night_is_not_pinged_through_and_the_end_is_told(waiting: Waiting, api: str) -> None:
    waiting.settings = replace(waiting.settings, keepalive_minutes=24 * 60)
    async with opened(waiting) as conversation:
        await conversation.wait(await conversation.turn("begin"))
        await waiting.idle()
        await waiting.clock.advance(14 * 3600, waiting.pinged)
        await conversation.turn("good morning")
    (stopped,) = [event for event in waiting.seen if isinstance(event, events.KeepaliveStopped)]
    assert (stopped.activity, stopped.why) == ("idle", "stopped")
    assert 0 < len(waiting.pings()) * LEASE_S[api] < 4 * 3600
    assert last_cause(waiting) is Cause.EXPIRED


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports changes so far")
async def test_while_nothing_happens_the_files_are_not_looked_at_again(
    waiting: Waiting, server: Emulator, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    real = head.list_files

    def counted(root: Path, env: Mapping[str, str], deleted: DeletedFiles | None = None) -> Listing:
        looked.append(root)
        return real(root, env, deleted)

    async with opened(waiting) as conversation:
        await conversation.turn("begin")
        watch = conversation.look.watch
        assert watch is not None
        assert await asyncio.to_thread(watch.ready)
        await conversation.turn("what was made before it was watched")
        monkeypatch.setattr(head, "list_files", counted)
        await conversation.turn("go on")
        assert looked == []
        (waiting.repository / "new.py").write_text("x")
        await conversation.turn("and on")
    assert len(looked) == 1
    assert "New files (1):\\nnew.py" in server.requests[-1].raw.decode()


async def test_a_large_idle_session_is_summed_up_before_it_goes_cold(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    """Field report 58: 300,000 tokens, and half a minute before the cache is gone."""

    def script(request: Recorded) -> Reply:
        asked = "replaced by a summary" in request.raw.decode()
        return Reply.of("A long text was read; the cat is called Mio." if asked else "Read.")

    server.play(script)
    waiting.settings = replace(waiting.settings, keepalive_minutes=24 * 60, cache_ttl="short")
    async with opened(waiting) as conversation:
        await conversation.turn("My cat is called Mio. " + "word " * 300_000)
        await conversation.wait(await conversation.turn("What did you read?"))
        await waiting.idle()

        async def settled() -> None:
            await waiting.pinged()
            if any(isinstance(event, events.KeepaliveStopped) for event in waiting.seen):
                await waiting.until(events.CompactionFinished)

        await waiting.clock.advance(14 * 3600, settled)
        (done,) = [event for event in waiting.seen if isinstance(event, events.CompactionFinished)]
        assert done.status == "done"
        assert done.tokens_before is not None
        assert done.tokens_before > 300_000
        assert done.tokens_after is not None
        assert done.tokens_after < 20_000
        await conversation.turn("good morning")
    _, turn, compaction, back = waiting.calls()
    assert compaction.purpose == "compaction"
    assert compaction.usage.cache_read == turn.usage.input_total, "asked while it was warm"
    assert compaction.usage.cache_write == 0, "nobody reads that again"
    (*_, last) = [ping for ping in waiting.pings() if ping.status == "done"]
    assert compaction.started == last.at + LEASE_S[api] - 30
    assert "Mio" in server.requests[-1].raw.decode()
    assert back.usage.input_total is not None
    assert back.usage.input_total < 20_000


async def test_who_closes_the_program_is_not_waited_for(waiting: Waiting) -> None:
    """How long they stay away then teaches nothing of how long it pays to wait for them."""
    async with opened(waiting) as conversation:
        await conversation.wait(await conversation.turn("begin"))
        await waiting.idle()
        await waiting.clock.advance(20, waiting.pinged)
    waiting.clock.jump(13 * 3600)
    assert pauses(waiting) == []


async def test_an_open_question_is_waited_for_warm(waiting: Waiting, server: Emulator, api: str) -> None:
    """Seven minutes of five."""
    waiting.settings = Settings(model=waiting.settings.model, mode="ask")
    server.play(play([Shell("touch made")], answer="Done."))
    asked = asyncio.Event()
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def asker(question: Ask) -> Answer:
        asked.set()
        return await answered

    async with opened(waiting, asker) as conversation:
        turn = asyncio.create_task(conversation.turn("make it"))
        await asked.wait()
        await waiting.idle()
        await waiting.clock.advance(LEASE_S[api] * 1.4, waiting.pinged)
        answered.set_result(Answer(allowed=True))
        await turn
    (ping,) = waiting.pings()
    assert ping.activity == "question"
    assert last_cause(waiting) is Cause.NONE
    assert (waiting.repository / "made").exists()
    assert pauses(waiting) == [Pause(LEASE_S[api] * 1.4, "question", pauses(waiting)[0].hour)]


async def test_the_head_is_written_while_the_person_types_and_only_once(
    waiting: Waiting, server: Emulator, api: str
) -> None:
    async with opened(waiting) as conversation:
        conversation.prewarm()
        await waiting.until(events.CacheRenewed)
        await conversation.turn("begin")
    (ping,) = waiting.pings()
    assert (ping.activity, ping.status) == ("prewarm", "done")
    assert ping.usage.cache_write
    first = waiting.calls()[0]
    assert first.usage.cache_read == ping.usage.cache_write
    assert first.forecast is not None
    assert first.forecast.usage.cache_read == first.usage.cache_read

    async with opened(waiting) as conversation:  # another session on the same head, which is warm
        conversation.prewarm()
        await conversation.turn("again")
    assert len(waiting.pings()) == 1


async def test_a_turn_waits_for_the_head_that_is_being_written(waiting: Waiting) -> None:
    """To send it a second time meanwhile would pay for it twice."""
    async with opened(waiting) as conversation:
        conversation.prewarm()
        await conversation.turn("begin")
    assert waiting.calls()[0].usage.cache_read == waiting.pings()[0].usage.cache_write


async def test_a_refresh_begins_a_new_epoch_with_the_project_as_it_is(waiting: Waiting, server: Emulator) -> None:
    async with opened(waiting) as conversation:
        assert not await conversation.refresh()
        await conversation.turn("begin")
        assert not await conversation.refresh(), "nothing has changed"
        (waiting.repository / "brand_new.py").write_text("")
        assert await conversation.refresh()
        await conversation.turn("go on")
    assert "brand_new.py" in server.requests[-1].raw.decode()
    assert last_cause(waiting) is Cause.NEW_EPOCH
