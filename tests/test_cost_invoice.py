"""Sixty calls on each API: what the reports say is what the provider's own invoice says, however it is summed up."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from desk import Desk, compact
from emulator import Bill, Call, Emulator, ManualClock, Recorded, Reply, Think

from agent.backend_choice import load_catalog
from agent.cost_record import Selection
from agent.ledger import Ledger
from agent.rates import RateBook
from agent.reports.layers import by_tool, layer_report
from agent.reports.spend import COUNTERS, Spend, cell_of

TURNS, STEPS = 15, 3
LINES = 350  # of a file, about 3,500 tokens: the last calls are longer than 100,000 tokens, where one model costs more
PAUSES_MIN = (0.5, 2, 7, 0.3, 75, 1, 4, 11, 0.2, 13 * 60)
MODELS = {
    "anthropic": "anthropic/claude-sonnet-5-5",
    "cliff": "anthropic/claude-haiku-5-5",
    "responses": "openai/gpt-6.2-sol",
    "chat": "deepseek/deepseek-v4-pro",
}


def model(request: Recorded) -> Reply:
    """Three calls of a tool, then an answer."""
    done = request.number - 1
    if done % (STEPS + 1) == STEPS:
        return Reply.of(f"Step {done}.", output_tokens=40 + done)
    call = Call("read", {"path": f"src/{done % 7}.txt", "offset": done + 1})
    return Reply.of(Think(f"What does part {done} say?"), call, output_tokens=90 + done)


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(compact(model), clock=ManualClock()) as running:
        yield running


@pytest.fixture(params=MODELS)
def desk(
    request: pytest.FixtureRequest, repository: Path, environment: dict[str, str], home: Path, server: Emulator
) -> Desk:
    base = server.env["EMULATOR_DEEPSEEK_BASE_URL"]
    (home / "config.toml").write_text(f'[endpoints.deepseek]\nbase_url = "{base}"\n')
    (repository / "src").mkdir()
    for number in range(7):
        text = "".join(f"{number}.{line}: the quick brown fox jumps over it\n" for line in range(LINES))
        (repository / "src" / f"{number}.txt").write_text(text)
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, {**environment, "DEEPSEEK_API_KEY": "k"}, server, server.clock)
    desk.settings = replace(desk.settings, model=MODELS[request.param], compact="off")
    return desk


def counters(bill: Bill) -> dict[str, int]:
    return dict(zip(COUNTERS, (bill.fresh, bill.read, bill.write_short, bill.write_long, bill.output), strict=True))


def usd_of(bill: Bill, at: float) -> Decimal:
    """DeepSeek's documentation: twice the price from 1 to 4 and from 6 to 10 UTC, Monday to Friday (provider rules 4.3,
    2026-12-01).
    """
    assert bill.usd is not None
    assert bill.model is not None
    when = datetime.fromtimestamp(at, UTC)
    busy = (1 <= when.hour < 4 or 6 <= when.hour < 10) and when.weekday() < 5
    return bill.usd * 2 if busy and bill.model.name.startswith("deepseek") else bill.usd


def test_the_report_is_the_invoice(desk: Desk, server: Emulator) -> None:
    for turn in range(TURNS):
        desk.run(f"Look at part {turn}", again=turn > 0)
        desk.pause(PAUSES_MIN[turn % len(PAUSES_MIN)])
    invoice = [bill for bill in server.bills if bill is not None]
    assert len(invoice) == TURNS * (STEPS + 1)
    with Ledger.open(desk.folders.ledger) as ledger:
        (session,) = ledger.sessions()
        calls = ledger.calls(session.id)
        prices = [usd_of(bill, call.started) for bill, call in zip(invoice, calls, strict=True)]
        owed = sum(prices, Decimal(0))
        assert [call.cost_usd for call in calls] == prices, "call by call"
        book = RateBook(load_catalog(desk.folders))
        whole, turns = Spend(), {number: Spend() for number in range(1, TURNS + 1)}
        for call, bill, usd in zip(calls, invoice, prices, strict=True):
            cell, one = cell_of(call), Spend()
            rates = book.of(call.model, call.started, cell.input)
            for spend in (one, whole, turns[call.turn or 0]):
                spend.add(cell, rates)
            assert {name: one.tokens[name].value for name in COUNTERS} == counters(bill)
            assert sum((part.known for part in one.usd.values()), Decimal(0)) == usd
            assert all((one.usd[name].known > 0) == (tokens > 0) for name, tokens in counters(bill).items())
        cells = Spend()
        for _, cell in ledger.costs.cells(Selection()):
            cells.add(cell, book.of(cell.model, cell.at, cell.input // cell.calls))
        layers = layer_report(ledger, session, book)

    assert whole.cost.value == owed
    assert sum((turn.cost.known for turn in turns.values()), Decimal(0)) == owed
    assert cells.cost.value == owed
    assert cells.usd == whole.usd
    assert cells.saved == whole.saved
    assert sum((layer.cost.known for layer in layers.layers.values()), Decimal(0)) == owed
    assert all(not layer.cost.unknown for layer in layers.layers.values())
    assert set(layers.layers) == {"system", "project", "history", "command", "output"}
    assert [sum(call.tokens) for call in layers.calls] == [bill.input_total for bill in invoice]
    tools = by_tool(layers, owed)
    assert sum((usd for _, usd in tools.values()), Decimal(0)) == owed
    assert tools["read"][0] == TURNS * STEPS
    assert tools["read"][1] > owed / 3, "what was read is most of what was carried"
