"""`agent cache status`: what of a session is warm, for how long, and what that is worth."""

from collections.abc import Iterator
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from desk import Desk
from emulator import Emulator, ManualClock, Reply
from rich.console import Console

from agent.backend_choice import find_model, load_catalog, pricing
from agent.ledger import Ledger
from agent.reports.cache_status import CacheStatus, cache_status, show

MODEL = "anthropic/claude-sonnet-5-5"


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path) -> Iterator[Desk]:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    (repository / "AGENTS.md").write_text("Keep functions small. " * 200)
    clock = ManualClock()
    with Emulator(lambda request: Reply.of("Fine."), clock=clock) as server:
        yield Desk(repository, environment, server, clock)


def status(desk: Desk) -> CacheStatus:
    catalog = load_catalog(desk.folders)
    with Ledger.open(desk.folders.ledger) as ledger:
        row = ledger.last_used(str(desk.repository))
        assert row is not None
        found = cache_status(
            ledger,
            row,
            lambda name: (find_model(name, catalog), pricing(find_model(name, catalog))),
            desk.settings,
            desk.clock.now(),
        )
        assert found is not None
        return found


def test_leases_run_down_layer_by_layer_and_say_what_is_at_stake(desk: Desk) -> None:
    desk.run("begin", again=False, model=MODEL, cache_ttl="long")
    (call,) = desk.calls()
    desk.pause(2)
    found = status(desk)
    assert [(prefix.name, prefix.warm, prefix.left) for prefix in found.prefixes] == [
        ("SYSTEM", True, 3480.0),
        ("PROJECT", True, 3480.0),
        ("HISTORY", True, 180.0),
    ]
    total = call.usage.input_total
    assert total == found.prefixes[-1].tokens
    assert found.warm_usd == Decimal(total or 0) * Decimal("0.10") / 1_000_000
    assert found.cold_usd == Decimal(total or 0) * Decimal("2.50") / 1_000_000

    desk.pause(4)
    later = status(desk)
    assert [prefix.warm for prefix in later.prefixes] == [True, True, False]
    assert found.warm_usd is not None
    assert later.warm_usd is not None
    assert later.cold_usd is not None
    assert found.warm_usd < later.warm_usd < later.cold_usd, "the head is still read, the conversation is not"

    desk.pause(60)
    gone = status(desk)
    assert gone.warm_usd == gone.cold_usd
    assert [prefix.left for prefix in gone.prefixes] == [0, 0, 0]


def test_it_is_shown_in_words(desk: Desk) -> None:
    desk.run("begin", again=False, model=MODEL)
    desk.pause(1)
    out = StringIO()
    Console(file=out, width=100).print(show(status(desk)))
    assert "4:00" in out.getvalue()
    assert "costs the next turn $0.0" in out.getvalue()
    desk.pause(5)
    out = StringIO()
    Console(file=out, width=100).print(show(status(desk)))
    assert "cold" in out.getvalue()


def test_each_layer_says_what_it_is_written_for_next_and_why(desk: Desk) -> None:
    for number in range(3):
        desk.run(f"task {number}", again=False, model=MODEL)
        desk.pause(20)
    found = status(desk)
    assert [(prefix.name, prefix.next_ttl) for prefix in found.prefixes] == [
        ("SYSTEM", "long"),
        ("PROJECT", "long"),
        ("HISTORY", "short"),
    ]
    out = StringIO()
    Console(file=out, width=160).print(show(found))
    assert "PROJECT is next written for the long time to live: 2 of 2 gaps" in out.getvalue()
    assert "HISTORY is next written for the short time to live: one task" in out.getvalue()
