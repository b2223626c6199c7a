"""`agent cost`: which calls, summed up how, for people and for programs."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import RunAgent
from desk import Desk
from emulator import Emulator, ManualClock, Read, play

TITLE = "=1+1; look at this"


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(play([Read("price.py")], answer="Seen."), clock=ManualClock()) as running:
        yield running


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], server: Emulator) -> Desk:
    """Two sessions of two turns, a day apart."""
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, environment, server, server.clock)
    desk.settings = replace(desk.settings, model="anthropic/claude-sonnet-5-5")
    for session in range(2):
        desk.run(TITLE, again=False)
        desk.pause(1)
        desk.run(f"again {session}")
        desk.pause(24 * 60)
    return desk


def test_the_same_money_however_it_is_summed_up(desk: Desk, server: Emulator, run_agent: RunAgent) -> None:
    owed = sum((bill.usd for bill in server.bills if bill is not None and bill.usd is not None), Decimal(0))
    for by in ("session", "model", "day", "repository", "turn", "call", "layer", "tool"):
        told = json.loads(run_agent("cost", "--all", "--by", by, "--json").stdout)
        costs = [Decimal(group["cost_usd"]) for group in told["groups"]]
        assert sum(costs, Decimal(0)) == owed == Decimal(told["total"]["cost_usd"]), by
    since = desk.clock.now() - 1.5 * 86_400
    day = json.loads(run_agent("cost", "--since", _local(since), "--json").stdout)
    assert day["sessions"] == 1
    assert day["total"]["calls"] == 4
    nothing = run_agent("cost", "--days", "1")
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1)


def _local(at: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at).isoformat(timespec="seconds")


@pytest.mark.usefixtures("desk")
def test_a_title_is_no_formula_in_a_spreadsheet(run_agent: RunAgent) -> None:
    rows = list(csv.DictReader(io.StringIO(run_agent("cost", "--all", "--csv").stdout)))
    assert [row["label"] for row in rows] == [f"'{TITLE}"] * 2
    assert all(Decimal(row["cost_usd"]) > 0 for row in rows)


def test_one_session_says_where_its_money_went(desk: Desk, run_agent: RunAgent) -> None:
    shown = run_agent("cost").stdout
    for words in ("SYSTEM", "HISTORY", "new input", "read price.py", "Caching", "Prices: genai-prices"):
        assert words in shown
    told = json.loads(run_agent("cost", "--json").stdout)
    paid = sum((call.cost_usd or Decimal(0) for call in desk.calls() if call.session == told["session"]), Decimal(0))
    assert sum((Decimal(layer["cost_usd"]) for layer in told["layers"].values()), Decimal(0)) == paid
    what_if = json.loads(run_agent("cost", told["session"][:17], "--what-if", "--json").stdout)
    same = [row for row in what_if["rows"] if row["as_it_was"]]
    assert same
    assert {Decimal(row["usd"]) for row in same} == {paid} == {Decimal(what_if["paid_usd"])}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "colour"), "--by takes"),
        (("--since", "yesterday"), "--since takes a date"),
        (("--since", "7d", "--days", "2"), "not both"),
        (("--days", "99999999"), "No call is in that"),
        (("nope",), "no session called 'nope'"),
        (("2026", "--all"), "or which ones"),
        (("--machine-cost", "much"), "USD per hour"),
        (("--what-if", "--by", "day"), "for one session"),
        (("--origin", "nobody"), "No call is in that"),
    ],
)
def test_what_makes_no_sense_is_one_line(run_agent: RunAgent, arguments: tuple[str, ...], message: str) -> None:
    done = run_agent("cost", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
