"""`agent cost --what-if` against the truth: what the emulator bills when the same script is really run so."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from emulator import Emulator, ManualClock, Read, play
from waiting import MODELS, Waiting, opened

from agent.backend_choice import load_catalog
from agent.ledger import Ledger
from agent.reports.whatif import WhatIf, what_if

PAUSES = (40.0, 1_200.0, 100.0, 400.0, 2_500.0, 50_000.0)
"""Within every lease; over the short one of Anthropic; within; over it; over both short ones; over all."""

POLICIES = {
    "short": {"cache_ttl": "short", "keepalive": "off"},
    "short+pings": {"cache_ttl": "short", "keepalive": "always"},
    "long": {"cache_ttl": "long", "keepalive": "off"},
    "auto": {},
}


@pytest.fixture(params=MODELS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Truth:
    """Sessions of the same script, each under a policy, on an emulator of its own."""

    def __init__(self, repository: Path, environment: dict[str, str], folder: Path, api: str) -> None:
        (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
        self.repository, self.environment, self.folder, self.api = repository, environment, folder, api

    async def run(self, policy: str) -> tuple[Waiting, Decimal]:
        """What the emulator has billed."""
        home = self.folder / policy
        home.mkdir()
        (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
        with Emulator(play([Read("price.py"), Read("check.py")], answer="Fine. " * 200), clock=ManualClock()) as server:
            environment = {**self.environment, "KEEPWARM_HOME": str(home)}
            waiting = Waiting(self.repository, environment, server, MODELS[self.api])
            waiting.settings = replace(waiting.settings, compact="off", **POLICIES[policy])  # type: ignore[arg-type]
            async with opened(waiting) as conversation:
                for pause in PAUSES:
                    await conversation.wait(await conversation.turn("go on"))
                    await waiting.idle()
                    await waiting.clock.advance(pause, waiting.pinged)
                await conversation.turn("the last one")
            bills = [bill.usd for bill in server.bills if bill is not None]
        return waiting, sum((usd for usd in bills if usd is not None), Decimal(0))


def asked(waiting: Waiting, *against: str) -> WhatIf:
    with Ledger.open(waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        return what_if(ledger, row, load_catalog(waiting.folders), waiting.settings, waiting.clock.now(), against)


@pytest.fixture
def truth(repository: Path, environment: dict[str, str], tmp_path: Path, api: str) -> Truth:
    return Truth(repository, environment, tmp_path, api)


async def test_every_policy_costs_what_it_costs_in_truth(truth: Truth) -> None:
    billed, told = {}, {}
    for policy in POLICIES:
        waiting, billed[policy] = await truth.run(policy)
        report = asked(waiting)
        assert report.paid_usd == billed[policy], "the ledger knows the bill"
        told[policy] = {row.name: row for row in report.rows if row.group == "policy"}
    for policy, rows in told.items():
        assert rows[policy].usd == billed[policy], "the policy in force reproduces the bill"
        assert rows[policy].recomputed == 0
    for policy, rows in told.items():
        assert {name: rows[name].usd for name in POLICIES} == billed, f"told from a session under {policy}"
