"""`agent cost --what-if` against the truth: what the emulator bills when the same script is really run so."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import pytest
from emulator import Emulator, ManualClock, Read, play
from emulator.faults import rate_limited, retry_after, server_error
from waiting import MODELS, Waiting, opened

from agent.backend_choice import load_catalog
from agent.bill import Bill
from agent.ledger import Ledger
from agent.reports.whatif import Row, WhatIf, what_if

T = TypeVar("T")

PAUSES = (40.0, 400.0, 5_000.0)
"""Within every lease; over Anthropic's short one; over all but OpenAI's long one."""

POLICIES = {
    "short": {"cache_ttl": "short", "keepalive": "off"},
    "short+pings": {"cache_ttl": "short", "keepalive": "always"},
    "long": {"cache_ttl": "long", "keepalive": "off"},
    "auto": {},
}
OTHERS = {
    "anthropic": ("anthropic/claude-opus-5", "anthropic/claude-haiku-4-5"),
    "responses": ("openai/gpt-6-luna", "openai/gpt-5.5"),
}
"""Other prices; and other rules: a minimum that the head does not reach, a cache without markers."""


@pytest.fixture(params=MODELS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Truth:
    """Sessions of the same repository, each with a ledger and an emulator of its own."""

    def __init__(self, repository: Path, environment: dict[str, str], folder: Path) -> None:
        (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
        self.repository, self.environment, self.folder = repository, environment, folder

    def open(self, server: Emulator, policy: str, model: str) -> Waiting:
        home = self.folder / f"{policy} {model.replace('/', ' ')}"
        home.mkdir()
        (home / "models.toml").write_text("[defaults.anthropic]\ntoken_scale = 1\n")  # as the emulator counts
        waiting = Waiting(self.repository, {**self.environment, "KEEPWARM_HOME": str(home)}, server, model)
        waiting.settings = replace(waiting.settings, **POLICIES[policy])  # type: ignore[arg-type]
        return waiting

    async def run(self, policy: str, model: str) -> tuple[Waiting, Decimal]:
        """The same script under a policy, on a model; and what the emulator has billed for it."""
        with Emulator(play([Read("price.py"), Read("check.py")], answer="Fine. " * 200), clock=ManualClock()) as server:
            waiting = self.open(server, policy, model)
            async with opened(waiting) as conversation:
                for pause in PAUSES:
                    await conversation.wait(await conversation.turn("go on"))
                    await waiting.idle()
                    await waiting.clock.advance(pause, waiting.pinged)
                await conversation.turn("the last one")
        return waiting, billed(server)


def billed(server: Emulator) -> Decimal:
    return sum((bill.usd for bill in server.bills if bill is not None and bill.usd is not None), Decimal(0))


def asked(waiting: Waiting, *against: str) -> WhatIf:
    with Ledger.open(waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        catalog, now = load_catalog(waiting.folders), waiting.clock.now()
        return what_if(ledger, row, catalog, waiting.settings, now, against)


def rows(report: WhatIf, group: str) -> dict[str, Row]:
    return {row.name: row for row in report.rows if row.group == group}


@pytest.fixture
def truth(repository: Path, environment: dict[str, str], tmp_path: Path) -> Truth:
    return Truth(repository, environment, tmp_path)


async def test_every_policy_and_model_costs_what_it_costs_in_truth(truth: Truth, api: str) -> None:
    """To the last digit: the policy in force what was billed, every other one what its own run is billed."""
    owed, told = {}, {}
    for policy in POLICIES:
        waiting, owed[policy] = await truth.run(policy, MODELS[api])
        told[policy] = asked(waiting, *OTHERS[api])
        assert told[policy].paid_usd == owed[policy], "the ledger knows the bill"
    for policy, report in told.items():
        found = rows(report, "policy")
        assert (found[policy].usd, found[policy].recomputed) == (owed[policy], 0), "it was in force"
        assert {name: found[name].usd for name in POLICIES} == owed, f"told from a session under {policy}"
        assert all(row.usd is not None and row.usd <= (found["no-cache"].usd or 0) for row in found.values())
    for model in OTHERS[api]:
        _, owed_there = await truth.run("auto", model)
        assert rows(told["auto"], "model")[model].usd == owed_there


async def driven(waiting: Waiting, work: Awaitable[T]) -> T:
    """Time passes while everybody sleeps."""
    task, looks = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0.005)
        looks += 1
        if looks > 50 and waiting.clock.sleepers:
            await waiting.clock.advance(20, waiting.pinged)
    return task.result()


@pytest.mark.parametrize(("policy", "api"), [("auto", "anthropic"), ("short+pings", "responses")])
async def test_what_no_policy_changes_is_billed_as_it_was(truth: Truth, policy: str, api: str) -> None:
    """A pre-warmed start, a night, an eviction, another effort, a rate limit, another model, pings that fail, a
    request beside the conversation.
    """
    other = {"anthropic": "anthropic/claude-opus-5", "responses": "openai/gpt-6.1-terra"}[api]
    with Emulator(play([Read("price.py"), Read("check.py")], answer="Fine. " * 200), clock=ManualClock()) as server:
        waiting = truth.open(server, policy, MODELS[api])

        async def talk(*pauses: float, again: bool = True, compact: bool = False, **settings: object) -> None:
            waiting.settings = replace(waiting.settings, **settings)  # type: ignore[arg-type]
            async with opened(waiting, again=again) as conversation:
                conversation.prewarm()
                for pause in pauses:
                    await conversation.wait(await driven(waiting, conversation.turn("go on")))
                    await waiting.idle()
                    await waiting.clock.advance(pause, waiting.pinged)
                if compact:
                    await conversation.compact(Bill())
                await driven(waiting, conversation.turn("the last one"))

        await talk(400, again=False)
        waiting.clock.jump(9_000)
        await talk(700)
        server.evict()
        await talk(effort="low")
        server.interrupt(rate_limited(retry_after(500)))
        await talk()
        await talk(400, model=other)
        server.interrupt(*[server_error(500)] * 4)
        await talk(4_000, model=MODELS[api])
        await talk(40, compact=True)
    report = asked(waiting)
    assert report.paid_usd == billed(server)
    found = rows(report, "policy")[policy]
    assert (found.usd, found.recomputed) == (billed(server), 0)
    assert any("more or less in the cache than the rules say" in note for note in report.rests_on), "the eviction"
