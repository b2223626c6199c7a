"""Faults that users of other agents reported: what may not stand in the prefix, what a fork, a cold or a useless cache
says. More of groups A to C is in test_field_reports_cache.py; where each report's test is, docs/field-reports.md says.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from desk import Desk, compact
from emulator import Call, Emulator, ManualClock, Read, Recorded, Reply, assert_extends, play, raw_prefix

from agent.ledger import Ledger
from agent.reports.cost import CostReport, print_calls
from agent.reports.explain import explain, print_explanations
from context.forecast import Cause

CLAUDE, GPT, DEEPSEEK = "anthropic/claude-sonnet-5-5", "openai/gpt-6.2-sol", "deepseek/deepseek-v4-pro"
DIGEST = re.compile(rb"\b[0-9a-f]{16,}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-")
CLOCK = re.compile(rb"\d\d:\d\d:\d\d|\dT\d\d:\d\d")


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        running.play(compact(play([Read("price.py")])))
        yield running


def desk_at(directory: Path, environment: dict[str, str], home: Path, server: Emulator) -> Desk:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    base = server.env["EMULATOR_DEEPSEEK_BASE_URL"]
    (home / "config.toml").write_text(f'[endpoints.deepseek]\nbase_url = "{base}"\n')
    assert isinstance(server.clock, ManualClock)
    return Desk(directory, {**environment, "DEEPSEEK_API_KEY": "k"}, server, server.clock)


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, server: Emulator) -> Desk:
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    return desk_at(repository, environment, home, server)


def steps(request: Recorded) -> int:
    """Replies with tool calls since the last command."""
    assert request.reader is not None
    return request.reader.steps_taken(request.body)


def explained(desk: Desk, capsys: pytest.CaptureFixture[str]) -> str:
    """What `agent cache explain` prints for the last session."""
    with Ledger.open(desk.folders.ledger) as ledger:
        row = ledger.last_used(str(desk.repository))
        assert row is not None
        print_explanations(row, explain(ledger, row, None))
    return capsys.readouterr().out


@pytest.mark.parametrize("model", [CLAUDE, GPT, DEEPSEEK])
def test_sessions_a_minute_apart_send_the_same_bytes(desk: Desk, server: Emulator, model: str) -> None:
    """Field reports 1, 2, 12, 16 and 17: no clock, id or checksum is in a prompt, and what looks like a template in
    the repository's own words is not filled in.
    """
    house_rules = "Stamp files with {{time}}, ${DATE} and %H:%M:%S."
    (desk.repository / "AGENTS.md").write_text(house_rules)
    for pause in (0, 59, 61):
        desk.clock.shared.advance(pause)
        desk.run("What does {{date}} print?", again=False, model=model)
    sent = [raw_prefix(request.raw) for request in server.requests if not steps(request)]
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
    for verbatim in (house_rules, "What does {{date}} print?"):
        assert verbatim.encode() in sent[0]
    assert not CLOCK.search(sent[0])
    assert not DIGEST.search(sent[0])


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_another_directory_reads_the_same_system_layer(
    desk: Desk, server: Emulator, tmp_path: Path, environment: dict[str, str], home: Path, model: str
) -> None:
    """Field report 6: where the agent was started may not show before PROJECT."""
    other = tmp_path / "another place"
    other.mkdir()
    desk.run("look", again=False, model=model)
    desk_at(other, environment, home, server).run("look", again=False, model=model)
    first, second = (request.body for request in server.requests if not steps(request))
    layer = "system" if model == CLAUDE else "input"
    assert first["tools"] == second["tools"]
    assert first[layer][0] == second[layer][0]
    assert first[layer][1] != second[layer][1]
    if model == CLAUDE:  # SYSTEM alone is below OpenAI's minimum
        bill = server.bills[2]
        assert bill is not None
        assert 0 < bill.read < bill.input_total
        assert bill.read == desk.calls()[2].usage.cache_read


def test_a_repository_that_comes_to_be_in_mid_session_changes_nothing_that_was_sent(
    server: Emulator, tmp_path: Path, environment: dict[str, str], home: Path
) -> None:
    """Field report 9: `git init` and `git checkout -b` between two turns."""
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "price.py").write_text("price = 1\n")
    desk = desk_at(plain, environment, home, server)
    desk.run("look", again=False, model=CLAUDE)
    for command in (["init", "-q"], ["checkout", "-qb", "other"]):
        subprocess.run(["git", *command], cwd=plain, env=environment, check=True)
        desk.run(f"after git {command[0]}", model=CLAUDE)
    assert len(server.requests) == 6
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)


@pytest.mark.parametrize("model", [CLAUDE, GPT, DEEPSEEK])
def test_arguments_go_back_as_the_model_wrote_them(desk: Desk, server: Emulator, model: str) -> None:
    """Field report 23: keys keep their order; where arguments are a text (Anthropic's are an object), every byte."""
    written = r'{"path" : "price.py",  "limit": 7,"offset":1 }'
    server.play(lambda request: Reply.of("Done.") if request.number > 1 else Reply.of(Call("read", written)))
    desk.run("look", again=False, model=model)
    desk.run("go on", model=model)
    second, third = server.requests[1:3]
    replayed = b'{"path":"price.py","limit":7,"offset":1}' if model == CLAUDE else json.dumps(written).encode()
    assert replayed in second.raw
    assert_extends(second, third)


@pytest.mark.parametrize("model", [CLAUDE, GPT])
@pytest.mark.parametrize(("cache_ttl", "minutes"), [("short", 6), ("short", 31), ("long", 61), ("long", 721)])
def test_the_price_of_a_cold_cache_is_told_before_it_is_paid(
    desk: Desk, server: Emulator, model: str, cache_ttl: str, minutes: int
) -> None:
    """Field report 29: a pause beyond the time to live, and one that OpenAI's longer ones outlast."""
    desk.run("look", again=False, model=model, cache_ttl=cache_ttl)
    desk.pause(minutes)
    desk.run("look again", model=model, cache_ttl=cache_ttl)
    call, bill = desk.calls()[2], server.bills[2]
    assert bill is not None
    assert call.forecast is not None
    assert call.verdict is not None
    assert call.forecast.usd == bill.with_output(0).usd
    lives = {("short", CLAUDE): 5, ("short", GPT): 30, ("long", CLAUDE): 5, ("long", GPT): 30}[cache_ttl, model]
    assert (call.verdict.cause, call.verdict.foreseen) == (Cause.EXPIRED if minutes > lives else Cause.NONE, True)
    assert (bill.read == 0) is (minutes > {("long", CLAUDE): 60, ("long", GPT): 720}.get((cache_ttl, model), lives))


def test_a_cache_that_is_written_and_never_read_is_told_in_every_turn(
    desk: Desk, server: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field report 41."""
    server.play(lambda request: replace(Reply.of("Fine."), evict="all"))
    for turn in range(4):
        desk.run(f"turn {turn}", again=turn > 0, model=CLAUDE)
    calls = desk.calls()
    assert all(call.usage.cache_read == 0 for call in calls)
    assert all(call.usage.cache_write for call in calls)
    verdicts = [call.verdict for call in calls[1:]]
    assert all(verdict is not None and verdict.cause is Cause.EVICTED and verdict.missed for verdict in verdicts)
    assert explained(desk, capsys).count("dropped it before its lease ran out. The forecast did not say so") == 3


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_fork_reads_what_its_parent_wrote(desk: Desk, server: Emulator, model: str) -> None:
    """Field report 48: a copy has the parent's key and blocks, and its first call reads all of the parent's last."""
    desk.run("look", again=False, model=model)
    parent = server.requests[-1]
    desk.run("another way", fork=True, model=model)
    first = server.requests[2]
    assert_extends(parent, first)
    assert first.body.get("prompt_cache_key") == parent.body.get("prompt_cache_key")
    assert (parent.body.get("prompt_cache_key") is not None) is (model == GPT)
    written, bill = server.bills[1], server.bills[2]
    assert written is not None
    assert bill is not None
    assert bill.read >= written.read + written.write_short > 0
    sessions = {call.session for call in desk.calls()}
    assert len(sessions) == 2


def test_a_cache_that_is_stuck_at_the_first_layer_says_so(
    desk: Desk,
    server: Emulator,
    tmp_path: Path,
    environment: dict[str, str],
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Field report 49: three calls, of which the provider read the tools and SYSTEM and nothing behind them."""
    (tmp_path / "other").mkdir()
    desk.run("begin", again=False, model=CLAUDE)
    desk_at(tmp_path / "other", environment, home, server).run("how long SYSTEM is", again=False, model=CLAUDE)
    first, system = server.bills[1], server.bills[2]
    assert first is not None
    assert system is not None
    written = first.input_total - system.read
    told = {"input_tokens": 0, "cache_read_input_tokens": system.read, "cache_creation_input_tokens": written}
    server.play(lambda request: Reply.of("Fine.", usage=told))
    for turn in range(3):
        desk.run(f"turn {turn}", model=CLAUDE)
    shown = explained(desk, capsys)
    assert shown.count("The forecast did not say so.\nOnly SYSTEM was read.") == 3
    assert shown.count("Only ") == 3, "and the calls before have missed nothing"


@pytest.mark.parametrize("flavour", ["lmstudio", "vllm-no-details"])
def test_a_server_that_says_nothing_of_its_cache_has_unknown_counters_and_no_price(
    desk: Desk, server: Emulator, home: Path, capsys: pytest.CaptureFixture[str], flavour: str
) -> None:
    """Field report 92: in both reports, and nothing is claimed of what it read."""
    (home / "config.toml").write_text(f'[endpoints.box]\nbase_url = "{server.url}/flavours/{flavour}/v1"\n')
    desk.run("look", again=False, model="box/some-model")
    shown = explained(desk, capsys)
    assert shown.count("billed    unknown  unknown  unknown     unknown") == 2
    assert shown.count("The provider does not report what it read from its cache.\n") == 2
    with Ledger.open(desk.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        print_calls(CostReport.of(row, ledger.calls(row.id), []), 40)
    (total,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("total"))
    assert total.split() == ["total", "unknown", "unknown", "unknown", "40", "unknown", "unknown", "price"]
