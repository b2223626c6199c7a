"""The chat's status line: what it shows, and what it drops where there is no room."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from emulator import Emulator, ManualClock, Reply
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from waiting import Waiting, opened

from agent import events
from agent.chat.status import StatusLine
from agent.events import TurnEnd
from agent.reports.totals import total_of
from backends.base import Usage

MODEL = "anthropic/claude-sonnet-5"
OPENED = events.SessionOpened("k7", MODEL, "ask", "/repo", resumed=False, context=200_000)
USAGE = Usage(fresh=100, cache_read=9_000, cache_write=900, cache_write_long=0, output=340, reasoning=None)
CALL = events.CallFinished(1, USAGE, Decimal("0.0123"), 0.8, 4.0, 90.0, None, Decimal("0.02"), 9_900, 1_252.0)
STARTED = events.CallStarted(1, 10_000, Usage(), None)
NOW = 1_000.0


def status(*happened: events.Event) -> StatusLine:
    line = StatusLine()
    for event in happened:
        line(event)
    return line


def turn_finished(cost: str | None = "0.0123") -> events.TurnFinished:
    return events.TurnFinished(TurnEnd.DONE, "", None, 1, None if cost is None else Decimal(cost), "k7")


def test_before_anything_is_known() -> None:
    assert StatusLine().text(NOW, 80) == "opening …"
    assert status(OPENED).text(NOW, 80) == "anthropic/claude-sonnet-5 · ask"


def test_after_a_call_everything_is_there() -> None:
    assert status(OPENED, STARTED, CALL, turn_finished()).text(NOW, 200) == (
        "anthropic/claude-sonnet-5 · ask · context 10,340 (5%) · cache 9,900 warm 4:12 · turn $0.0123 90% hit · "
        "session $0.0123 90% hit · saved $0.0200"
    )


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            125,
            "anthropic/claude-sonnet-5 · ask · context 10,340 (5%) · cache 9,900 warm 4:12 · turn $0.0123 · "
            "session $0.0123 90% hit",
        ),
        (80, "claude-sonnet-5 · ask · ctx 5% · warm 4:12 · turn $0.0123 · session $0.0123"),
        (60, "claude-sonnet-5 · ask · ctx 5% · warm 4:12 · session $0.0123"),
        (42, "claude-sonnet-5 · ask · ctx 5% · warm 4:12"),
        (40, "claude-sonnet-5 · ask · warm 4:12"),
        (24, "claude-sonnet-5 · ask"),
        (3, "ask"),
        (1, "a"),
    ],
)
def test_what_matters_least_goes_first(width: int, shown: str) -> None:
    line = status(OPENED, STARTED, CALL, turn_finished())
    assert line.text(NOW, width) == shown


@given(st.integers(1, 200), st.sampled_from(["local/模型-中文", MODEL, "openai/gpt\x1b[31m", "x/🎉🎉🎉🎉🎉🎉🎉🎉🎉"]))
def test_it_is_never_wider_than_the_terminal(width: int, model: str) -> None:
    opened = events.SessionOpened("k7", model, "edits", "/repo", resumed=False, context=32_768)
    line = status(opened, STARTED, CALL, turn_finished())
    assert cell_len(line.text(NOW, width)) <= width
    assert "\x1b" not in line.text(NOW, width)


def test_the_lease_counts_down_and_ends() -> None:
    line = status(OPENED, STARTED, CALL)
    assert "cache 9,900 warm 0:59" in line.text(1_193.0, 200)
    assert ("class:status.soon", "cache 9,900 warm 0:59") in line.parts(1_193.0, 200)
    assert "cache cold" in line.text(1_252.0, 200)


def test_a_ping_renews_the_lease_and_is_paid_by_the_session() -> None:
    ping = events.CacheRenewed("idle", "done", 9_900, Decimal("0.001"), 2_000.0)
    shown = status(OPENED, STARTED, CALL, turn_finished(), ping).text(NOW, 200)
    assert "warm 16:40" in shown
    assert "turn $0.0123" in shown
    assert "session $0.0133" in shown


def test_a_ping_during_a_tool_is_paid_once() -> None:
    """The turn's bill, which comes last, holds it already."""
    ping = events.CacheRenewed("tool", "done", 9_900, Decimal("0.001"), 2_000.0)
    shown = status(OPENED, STARTED, CALL, ping, turn_finished("0.0133")).text(NOW, 200)
    assert "turn $0.0133" in shown
    assert "session $0.0133" in shown


def test_what_an_interrupted_call_cost_is_in_the_turn_and_the_session() -> None:
    shown = status(OPENED, STARTED, CALL, turn_finished("0.0200")).text(NOW, 200)
    assert "turn $0.0200" in shown
    assert "session $0.0200" in shown


def test_the_next_turn_begins_at_nothing_and_the_session_goes_on() -> None:
    line = status(OPENED, STARTED, CALL, turn_finished(), STARTED, CALL)
    assert "turn $0.0123 90% hit · session $0.0246 90% hit" in line.text(NOW, 200)


def test_a_resumed_session_has_what_it_cost_before() -> None:
    opened = events.SessionOpened(
        "k7", MODEL, "ask", "/r", True, 9_000, 1_100.0, 200_000, 20_000, 18_000, Decimal(2), None
    )
    assert status(opened).text(NOW, 200) == (
        "anthropic/claude-sonnet-5 · ask · cache 9,000 warm 1:40 · session $2.0000 90% hit · saved unknown"
    )


@pytest.mark.parametrize(
    ("usage", "warm", "until", "shown"),
    [
        (USAGE, None, None, "cache cold"),
        (USAGE, 9_900, None, "cache 9,900 warm, no clock"),
        (Usage(10_000, None, None, None, 340, None), None, None, "cache unknown"),
    ],
)
def test_what_is_not_known_is_not_shown_as_something_else(
    usage: Usage, warm: int | None, until: float | None, shown: str
) -> None:
    call = events.CallFinished(1, usage, None, None, 4.0, None, None, None, warm, until)
    line = status(OPENED, STARTED, call, turn_finished(None)).text(NOW, 200)
    assert shown in line
    assert "session unknown price" in line
    assert "saved unknown" in line


def test_a_first_call_that_only_writes_has_saved_less_than_nothing() -> None:
    call = events.CallFinished(1, USAGE, Decimal(1), None, 4.0, None, None, Decimal("-0.2"), 9_900, 1_252.0)
    assert "saved -$0.2000" in status(OPENED, STARTED, call).text(NOW, 200)


def test_a_request_beside_the_conversation_is_paid_but_is_not_the_context() -> None:
    aside = events.CallStarted(2, 50_000, Usage(), None, "compaction")
    big = events.CallFinished(
        2, Usage(50_000, 0, 0, 0, 9, 0), Decimal(1), 9.0, 9.0, 1.0, None, Decimal(0), 9_900, 1_252.0
    )
    shown = status(OPENED, STARTED, CALL, aside, big).text(NOW, 200)
    assert "context 10,340 (5%)" in shown
    assert "session $1.0123" in shown


def test_a_new_epoch_is_another_context_and_cold() -> None:
    epoch = events.EpochStarted(2, "refresh", 10_000, 4_000, None, None)
    assert "context 4,000 (2%) · cache cold" in status(OPENED, STARTED, CALL, epoch).text(NOW, 200)


def test_a_local_model_tells_its_speed_and_no_money() -> None:
    opened = events.SessionOpened("k7", "local/qwen3-4b", "ask", "/repo", False, None, None, 32_768)
    call = events.CallFinished(1, USAGE, None, 0.82, 4.0, 31.4, None)
    assert status(opened, STARTED, call, turn_finished(None)).text(NOW, 200) == (
        "local/qwen3-4b · ask · context 10,340 (32%) · 90% reused · TTFT 0.8 s · 31 tokens/s"
    )


def test_another_mode_is_shown_at_once() -> None:
    line = status(OPENED)
    line.mode_changed("plan")
    assert line.text(NOW, 80) == "anthropic/claude-sonnet-5 · plan"


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(lambda request: Reply.of("Fine."), clock=ManualClock()) as running:
        yield running


async def test_a_real_session_tells_its_lease_and_its_sums(
    repository: Path, environment: dict[str, str], home: Path, server: Emulator
) -> None:
    """On the emulated API: two turns, then the same session opened again."""
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5]\ntoken_scale = 1\n")
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    waiting = Waiting(repository, environment, server, MODEL)
    async with opened(waiting) as conversation:
        await conversation.turn("begin")
        await conversation.turn("go on")
    rows = waiting.calls()
    first, second = (event for event in waiting.seen if isinstance(event, events.CallFinished))
    assert first.saved_usd is not None
    assert first.saved_usd < 0, "it only wrote"
    assert second.saved_usd is not None
    assert second.saved_usd > 0
    assert second.warm == rows[1].usage.input_total
    assert second.until == rows[1].started + 300
    async with opened(waiting, again=True):
        pass
    again = [event for event in waiting.seen if isinstance(event, events.SessionOpened)][-1]
    total = total_of(rows)
    assert (again.input, again.cache_read, again.cost_usd) == (total.input_total, total.cache_read, total.cost_usd)
    assert again.saved_usd == first.saved_usd + second.saved_usd
    assert again.context is not None
