"""Field reports of group E as whole runs: resumed sessions, what fills the window, and what happens when it is full."""

from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, compact
from emulator import Emulator, ManualClock, Read, Recorded, Reply, Say, assert_extends
from emulator.actions import call_for

from agent import events

CLAUDE, GPT, DEEPSEEK = "anthropic/claude-sonnet-5-5", "openai/gpt-6.2-sol", "deepseek/deepseek-v4-pro"
TABLES = {CLAUDE: "[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n", GPT: "[openai.'gpt-6.2-sol']\n"}
BOX = "box/local-model"
THOUGHT, REAL = (
    400_000,
    131_072,
)  # tokens: the window that the model is thought to have, and that of the emulator's server


@pytest.fixture
def server() -> Iterator[Emulator]:
    def script(request: Recorded) -> Reply:
        asked = "replaced by a summary" in request.raw.decode()
        return Reply.of("A long text was read; the cat is called Mio." if asked else Say("Fine. " * 100))

    with Emulator(script, clock=ManualClock()) as running:
        yield running


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, server: Emulator) -> Desk:
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    (home / "models.toml").write_text(TABLES[CLAUDE])
    (home / "config.toml").write_text(
        f'[endpoints.deepseek]\nbase_url = "{server.env["EMULATOR_DEEPSEEK_BASE_URL"]}"\n'
        f'[endpoints.box]\nbase_url = "{server.url}/flavours/lmstudio/v1"\n[endpoints.box.model]\ncontext = {THOUGHT}\n'
    )
    assert isinstance(server.clock, ManualClock)
    return Desk(repository, {**environment, "DEEPSEEK_API_KEY": "no-real-key"}, server, server.clock)


def told(desk: Desk, *kinds: type[Any]) -> list[Any]:
    return [event for event in desk.seen if isinstance(event, kinds)]


@pytest.mark.parametrize("model", [CLAUDE, GPT, DEEPSEEK])
def test_each_resumed_run_reads_more(desk: Desk, server: Emulator, model: str) -> None:
    """Field reports 66 and 68: a run and three that go on from it, with house rules, files and notices in between."""
    for turn in range(4):
        files = ("price.py", "check.py") if turn % 2 else ()
        desk.run(f"turn {turn}", again=turn > 0, model=model, files=files, mode=("plan", "auto")[turn % 2])
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)
    usages = [call.usage for call in desk.calls()]
    assert len(usages) == 4
    for before, after in pairwise(usages):
        assert before.input_total is not None
        assert after.cache_read is not None
        assert after.cache_read >= before.input_total - (64 if model == DEEPSEEK else 0)  # it caches in steps of 64


def test_a_context_that_comes_from_the_cache_is_not_counted_twice(desk: Desk, server: Emulator, home: Path) -> None:
    """Field report 75: 184,704 tokens of which 183,936 cached, in a window of 400,000, are no reason to compact."""
    (home / "models.toml").write_text(f"{TABLES[GPT]}context = 400000\n")
    usage = {"input_tokens": 184_704, "input_tokens_details": {"cached_tokens": 183_936, "cache_write_tokens": 0}}
    server.play(lambda request: Reply.of("Fine.", usage=usage if request.number == 2 else None))
    desk.run("word " * 181_000, again=False, model=GPT)
    desk.run("go on", model=GPT)
    assert desk.calls()[-1].usage.input_total == 184_704
    desk.run("and on", model=GPT)
    assert told(desk, events.CompactionStarted, events.EpochStarted) == []
    assert len(server.requests) == 3


@pytest.mark.parametrize(("window", "full"), [(70_000, True), (80_000, False)])
def test_a_context_that_was_written_to_the_cache_fills_the_window(
    desk: Desk, server: Emulator, home: Path, window: int, full: bool
) -> None:
    """Field report 76: 3 fresh, 60,000 created, 0 read. The next command finds a context of 60,003, not of 3."""
    (home / "models.toml").write_text(f"{TABLES[CLAUDE]}context = {window}\nmax_output = 8000\n")
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 60_000, "cache_read_input_tokens": 0}

    def script(request: Recorded) -> Reply:
        asked = "replaced by a summary" in request.raw.decode()
        return Reply.of("A long text was read." if asked else "Fine.", usage=usage if request.number == 2 else None)

    server.play(script)
    desk.run("word " * 52_000, again=False, model=CLAUDE)
    server.evict()
    desk.run("go on", model=CLAUDE)
    assert desk.calls()[-1].usage.input_total == 60_003
    assert told(desk, events.CompactionStarted) == []
    desk.run("and on", model=CLAUDE)
    sizes = [event.tokens for event in told(desk, events.CompactionStarted)]
    assert len(sizes) == full
    assert all(60_003 <= tokens < 60_100 for tokens in sizes)


@pytest.mark.parametrize("model", [CLAUDE, GPT])
@pytest.mark.parametrize("scale", [0.8, 1.3])
def test_a_counter_that_is_off_is_right_after_one_reply(
    desk: Desk, server: Emulator, home: Path, model: str, scale: float
) -> None:
    """Field report 80: more than 10 % off before anything was billed, then never again, in a new session neither."""
    name = TABLES[model].partition("\n")[0]
    (home / "models.toml").write_text(f"{name}\ntoken_scale = {scale}\n")
    for again in (False, True, False):
        desk.run("look" + " word" * 5_000, again=again, model=model)
    off = []
    for call, bill in zip(desk.calls(), server.bills, strict=True):
        assert call.forecast is not None
        assert call.forecast.total is not None
        assert bill is not None
        off.append(abs(call.forecast.total / bill.input_total - 1))
    assert off[0] > 0.1
    assert max(off[1:]) < 0.1


def test_room_is_made_when_a_server_says_in_its_words_that_there_is_none(desk: Desk, server: Emulator) -> None:
    """Field report 81: LM Studio refuses in the second of two turns, which goes on with the first half folded away."""
    for number in range(1, 41):
        (desk.repository / f"{number}.txt").write_text(f"{number} {'word ' * 10}\n" * 400)
    files = count(1)

    def script(request: Recorded) -> Reply:
        number = next(files)
        if number % 21 == 0:
            return Reply.of("All read.")
        assert request.reader is not None
        return Reply.of(call_for(Read(f"{number - number // 21}.txt"), request.reader.offers(request.body)))

    server.play(compact(script))
    desk.run("The cat is called Mio. Read the first half.", again=False, model=BOX)
    desk.run("And the other half.", model=BOX)
    assert desk.answer() == "All read."
    refused = [at for at, bill in enumerate(server.bills) if bill is None]
    assert len(refused) == 1, "not sent again as it was"
    (epoch,) = told(desk, events.EpochStarted)
    assert (epoch.reason, told(desk, events.CompactionStarted)) == ("pressure", [])
    assert epoch.tokens_after < epoch.tokens_before / 2
    sizes = [bill.input_total for bill in server.bills if bill]
    assert max(sizes) <= REAL
    assert b"The cat is called Mio." in server.requests[-1].raw


def test_without_compaction_a_refused_prompt_ends_with_choices(desk: Desk, server: Emulator) -> None:
    """Field report 78: the provider, not our count, says that the window is full. One of the choices is then taken."""
    desk.run("The cat is called Mio.", again=False, model=BOX)
    for _ in range(3):
        desk.run("read this: " + "word " * 40_000, model=BOX)
    before = len(server.requests)
    desk.run("and this: " + "word " * 40_000, model=BOX, compact="off", expect=1)
    assert len(server.requests) == before + 1
    assert told(desk, events.CompactionStarted, events.EpochStarted) == []
    (*_, last) = told(desk, events.TurnFinished)
    assert "Start a new session, or use a larger model. Everything so far is kept" in last.message
    desk.run("go on", model=GPT, compact="off")
    bill = server.bills[-1]
    assert bill is not None
    assert bill.input_total > 160_000, "nothing was lost"


def test_a_window_that_is_smaller_than_assumed_and_nothing_stale(desk: Desk, server: Emulator) -> None:
    """What was asked is too large for the server and no output is there to fold: the summary is asked for behind what
    was answered, the window is remembered, and the session goes on.
    """
    desk.run("The cat is called Mio.", again=False, model=BOX)
    texts = [f"part {part}: " + "word " * 40_000 for part in range(5)]
    for text in texts:
        desk.run(text, model=BOX)
        last = server.requests[-1].raw.decode()
        assert text in last
        assert "Mio" in last
    refused = [call for call in desk.calls() if call.status == "failed"]
    assert 1 <= len(refused) <= 2, "one as often as the window is full"
    assert len([event for event in told(desk, events.Notice) if f"{REAL:,} tokens" in event.text]) == len(refused)
