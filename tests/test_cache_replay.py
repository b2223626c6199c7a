"""`agent cache replay`: recorded sessions under other policies, against what was billed in truth."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RunAgent
from emulator import Emulator, Read, play
from waiting import MODELS, Waiting, opened

from agent.backend_choice import find_model, load_catalog, pricing
from agent.errors import UserError
from agent.ledger import Ledger
from agent.reports.replay import ReplayReport, read_gaps, replays

pytest_plugins = ["waiting_fixtures"]

PAUSES = (40.0, 1_200.0, 100.0, 400.0)


@pytest.fixture(autouse=True)
def a_turn_of_three_calls(server: Emulator) -> None:
    server.play(play([Read("price.py"), Read("check.py")], answer="Fine. " * 200))


async def live(waiting: Waiting, **settings: object) -> None:
    """Five turns of three calls, with pauses between them, and then the program is closed."""
    waiting.settings = replace(waiting.settings, compact="off", **settings)  # type: ignore[arg-type]
    async with opened(waiting) as conversation:
        for pause in PAUSES:
            await conversation.wait(await conversation.turn("go on"))
            await waiting.idle()
            await waiting.clock.advance(pause, waiting.pinged)
        await conversation.turn("the last one")


def report(waiting: Waiting, *policies: str, gaps: list[float] | None = None) -> ReplayReport:
    info = find_model(waiting.settings.model or "", load_catalog(waiting.folders))
    with Ledger.open(waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        return replays(ledger, row, info, pricing(info), waiting.settings, policies, gaps)


async def test_the_policy_that_was_in_force_costs_what_was_billed(waiting: Waiting, api: str) -> None:
    await live(waiting, keepalive="off", cache_ttl="short")
    found = report(waiting)
    usd = {policy: done.usd for policy, done in found.policies}
    assert found.billed_usd is not None
    assert usd["none"] == pytest.approx(float(found.billed_usd), rel=1e-6)
    assert min(usd.values()) == usd["clairvoyant"] == found.bound_usd
    assert dict(found.policies)["none"].cold_turns == (2 if api == "anthropic" else 0)


async def test_so_does_auto_with_its_pings(waiting: Waiting) -> None:
    await live(waiting)
    found = report(waiting, "auto")
    ((_, done),) = found.policies
    assert found.billed_usd is not None
    assert done.pings == len(waiting.pings())
    assert done.usd == pytest.approx(float(found.billed_usd), rel=0.001)


async def test_other_pauses_can_be_put_in_place_of_the_real_ones(waiting: Waiting, tmp_path: Path) -> None:
    await live(waiting, keepalive="off", cache_ttl="short")
    (tmp_path / "gaps.csv").write_text("# of a slow person\nname,pause_s\na,90000\nb,10\n")
    gaps = read_gaps(tmp_path / "gaps.csv")
    assert gaps == [90_000, 10]
    found = report(waiting, "none", gaps=gaps)
    assert found.policies[0][1].cold_turns == 2, "four pauses: two nights, and the file from its beginning again"


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "no pauses"), ("5\nmany\n", "line 2"), ("-1\n", "line 1"), ("a,b\n", "line 1"), ("inf\n", "line 1")],
)
def test_a_file_without_pauses_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "gaps"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        read_gaps(path)


@pytest.mark.parametrize("api", ["anthropic"])
def test_the_command(run_agent: RunAgent, waiting: Waiting, tmp_path: Path) -> None:
    model = MODELS["anthropic"]
    for command in ("begin", "go on"):
        flags = ["--continue"] if command == "go on" else []
        env = {**waiting.env, "KEEPWARM_REPETITION_GUARD": "off"}
        done = run_agent("run", *flags, "--model", model, "--mode", "auto", command, env=env)
        assert done.returncode == 0, done.stderr
    table = run_agent("cache", "replay", env=waiting.env)
    assert table.returncode == 0, table.stderr
    assert all(policy in table.stdout for policy in ("none", "fixed:12", "always", "1h", "auto", "clairvoyant"))
    told = json.loads(run_agent("cache", "replay", "-p", "none", "-p", "fixed:3", "--json", env=waiting.env).stdout)
    assert [each["policy"] for each in told["policies"]] == ["none", "fixed:3"]
    assert told["policies"][0]["usd"] == pytest.approx(float(told["billed_usd"]))
    for flags, says in (
        (["-p", "sometimes"], "unknown policy 'sometimes'"),
        (["--gaps", str(tmp_path / "none")], "cannot be read"),
        (["20200101-000000-abcd"], "There is no session"),
    ):
        refused = run_agent("cache", "replay", *flags, env=waiting.env)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert says.lower() in refused.stderr.lower()
        assert "Traceback" not in refused.stderr
