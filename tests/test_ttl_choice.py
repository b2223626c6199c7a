"""Which time to live is asked for: by layer, by what is known of the person, and never for the tail of a one-shot."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from emulator import Emulator, ManualClock, Reply, markers
from waiting import Waiting, opened

from agent import events
from agent.config import Settings
from agent.ledger import Ledger
from context.block import Layer
from context.cache_rules import CacheRules, Ttl
from context.economics import Prices
from context.habits import Habits
from context.pauses import Pause, Pauses
from context.ttl import Keeping, TailOutlook, choose_head_ttl, choose_layers, choose_tail_ttl

RULES = CacheRules()
PRICES = Prices(fresh=1e-6, read=1e-7, write=1.25e-6, write_long=2e-6, output=5e-6)
KEPT = Keeping(7200.0, 2.0)
CHAT = TailOutlook(written=20_000, prefix=20_000, per_turn=4_000, turns=10, hour=10)
HALF_HOURS = Pauses.learned([Pause(1800.0, "answer", 10)] * 400)
QUICK = Pauses.learned([Pause(40.0, "answer", 10)] * 400)


@pytest.mark.parametrize(
    ("gaps", "ttl"),
    [
        ([], "short"),
        ([200.0] * 50, "short"),
        ([1200.0], "long"),  # 2.0 against 1.25 + 1.15 times the tokens
        ([7200.0], "short"),  # lost either way, and dearer
        ([1200.0] * 3 + [7200.0] * 2, "long"),  # 2 + 2 * 1.9 against 1.25 + 5 * 1.15
        ([1200.0] + [7200.0] * 2, "short"),  # 2 + 2 * 1.9 against 1.25 + 3 * 1.15
    ],
)
def test_the_head_lives_long_where_that_saves_more_writes_than_it_costs(gaps: list[float], ttl: Ttl) -> None:
    assert choose_head_ttl(5_000, PRICES, RULES, gaps).ttl == ttl


def test_the_tail_lives_long_for_who_is_away_for_half_hours_and_not_for_who_answers_at_once() -> None:
    assert choose_tail_ttl(CHAT, PRICES, RULES, HALF_HOURS, KEPT).ttl == "long"
    assert choose_tail_ttl(CHAT, PRICES, RULES, QUICK, KEPT).ttl == "short"


def layers(
    outlook: TailOutlook = CHAT,
    habits: Habits | None = None,
    warm: dict[Layer, Ttl] | None = None,
    rules: CacheRules = RULES,
    prices: Prices | None = PRICES,
) -> str:
    choices = choose_layers((3_000, 2_000), outlook, habits or Habits(HALF_HOURS), prices, rules, KEPT, warm or {})
    assert all(choice.reason for choice in choices.values())
    return " ".join(choices[layer].ttl for layer in (Layer.SYSTEM, Layer.PROJECT, Layer.HISTORY))


def test_each_layer_is_chosen_and_none_lives_longer_than_what_is_before_it() -> None:
    one_shot = TailOutlook(20_000, 20_000, 4_000, 10, 10, one_shot=True)
    often = Habits(HALF_HOURS, project_gaps=[1200.0] * 9, system_gaps=[100.0] * 90)
    assert layers() == "long long long", "the tail is to live long"
    assert layers(one_shot) == "short short short", "nobody comes back to it"
    assert layers(one_shot, often) == "long long short", "the project is come back to, and SYSTEM precedes it"
    assert layers(one_shot, Habits(system_gaps=[1200.0] * 9)) == "long short short"
    assert layers(rules=CacheRules(ttl_long=None)) == "short short short"
    assert layers(prices=None) == "short short short", "an unknown price is no reason to pay more"


def test_what_is_warm_stays_as_it_was_written() -> None:
    assert layers(warm={Layer.SYSTEM: "short", Layer.PROJECT: "short"}) == "short short short"
    assert layers(warm={Layer.SYSTEM: "short"}) == "short short short"
    assert layers(warm={Layer.SYSTEM: "long", Layer.PROJECT: "long"}) == "long long long"


# In whole runs


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(lambda request: Reply.of("Fine."), clock=ManualClock()) as running:
        yield running


@pytest.fixture
def rules_of_the_house(repository: Path, home: Path) -> None:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5]\ntoken_scale = 1\n")
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))


MODEL = "anthropic/claude-sonnet-5"  # reads cost a tenth


def asked(server: Emulator) -> list[set[str]]:
    """The times to live of head and tail in each request."""
    bodies = [dict(markers(request.body)) for request in server.requests]
    return [
        {f"{place.split('[')[0].split('.')[0]} {ttl}" for place, ttl in body.items() if not place.startswith("tools")}
        for body in bodies
    ]


@pytest.mark.usefixtures("rules_of_the_house")
def test_a_repository_that_is_come_back_to_every_twenty_minutes_earns_the_long_one(
    repository: Path, environment: dict[str, str], server: Emulator
) -> None:
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, environment, server, server.clock)
    for number in range(3):
        desk.run(f"task {number}", again=False, model=MODEL)
        desk.pause(20)
    assert asked(server) == [
        {"system 5m", "messages 5m"},
        {"system 5m", "messages 5m"},  # one use is no gap yet
        {"system 1h", "messages 5m"},  # one is, and it would have paid
    ]
    desk.run("task 3", again=False, model=MODEL)
    assert server.bills[-1] is not None
    assert server.bills[-1].read > 0, "twenty minutes later the head is read"


@pytest.mark.usefixtures("rules_of_the_house")
async def test_a_chat_is_written_for_the_pauses_of_its_person_and_stays_so_while_it_is_warm(
    repository: Path, environment: dict[str, str], server: Emulator
) -> None:
    waiting = Waiting(repository, environment, server, MODEL)
    waiting.settings = Settings(model=MODEL, mode="auto", keepalive="off")

    def lived(ledger: Ledger, session: str, seconds: float, times: int) -> None:
        began = waiting.clock.now() - 3_000_000
        for number in range(times):
            ledger.pauses.begin(session, began + 3_000 * number, "answer")
            ledger.pauses.end(session, began + 3_000 * number + seconds)

    async with opened(waiting) as conversation:
        lived(conversation.session.ledger, conversation.session.id, 40, 200)  # always back within a minute
        await conversation.turn("begin")
        lived(conversation.session.ledger, conversation.session.id, 1_800, 600)
        await conversation.turn("go on")
    waiting.clock.jump(1_800)
    async with opened(waiting, again=True) as conversation:  # cold: chosen anew, with all those half hours known
        await conversation.turn("go on after half an hour")
    waiting.clock.jump(1_800)
    async with opened(waiting, again=True) as conversation:
        await conversation.turn("and again")
    short, long = {"system 5m", "messages 5m"}, {"system 1h", "messages 1h"}
    assert asked(server) == [short, short, long, long]
    assert server.bills[-1] is not None
    assert server.bills[-1].read > 0
    opened_again = [event for event in waiting.seen if isinstance(event, events.SessionOpened)][1:]
    assert opened_again[0].warm is None
    assert opened_again[1].warm == waiting.calls()[-2].usage.input_total
    assert opened_again[1].until == waiting.calls()[-2].started + 3_600
