"""`agent run` on Anthropic's API: the real program, the real SDK, a real HTTP server on loopback."""

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from conftest import RunAgent
from emulator import Emulator
from emulator.bodies import assert_extends, markers
from emulator.script import Call, Failure, Reply, html_page
from scripted import FIX, plan


def test_a_task_of_read_edit_test_and_answer(anthropic_server: Emulator, run_agent: RunAgent, repository: Path) -> None:
    anthropic_server.play(plan(*FIX))
    result = run_agent("run", "--mode", "auto", "Fix the price", env=anthropic_server.env)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "Fixed price.py:2; check.py passes.\n"
    assert (repository / "price.py").read_text() == "def total(price, tax):\n    return price + tax\n"
    last = anthropic_server.bodies[-1]["messages"][-1]["content"][0]
    assert last["type"] == "tool_result"
    assert "passed" in last["content"]


def test_every_body_extends_the_last_over_thirty_calls_two_seeds_midnight_and_a_new_branch(
    anthropic_server: Emulator, run_agent: RunAgent, repository: Path, environment: dict[str, str]
) -> None:
    """Rule R1, byte for byte. Field reports 1, 7, 9, 11, 19, 65 and 68."""
    steps: list[Call | list[Call]] = [*FIX]
    for number in range(4):
        steps.append([FIX[0], *(Call("shell", {"command": f"echo {number}-{i}"}) for i in range(4))])
        edit = {"path": "price.py", "old": "price + tax", "new": f"price + tax + {number} - {number}"}
        steps += [Call("edit", edit), Call("shell", {"command": f"echo {number}; python3 check.py"})]
    anthropic_server.play(plan(*steps))
    first = {**anthropic_server.env, "PYTHONHASHSEED": "1", "TZ": "Etc/GMT+12"}
    second = {**anthropic_server.env, "PYTHONHASHSEED": "2", "TZ": "Etc/GMT-14"}  # 26 hours ahead: another date
    one = run_agent("run", "--mode", "auto", "Fix the price", env=first)
    assert one.returncode == 0, one.stderr
    subprocess.run(["git", "checkout", "-qb", "other"], cwd=repository, env=environment, check=True)
    (repository / "new.txt").write_text("new")
    two = run_agent("run", "--mode", "auto", "--continue", "Once more", env=second)
    assert two.returncode == 0, two.stderr

    bodies = anthropic_server.bodies
    assert len(bodies) >= 30
    for earlier, later in itertools.pairwise(anthropic_server.requests):
        assert_extends(earlier, later)
        assert 1 <= len(markers(later.body)) <= 4
    command = bodies[len(bodies) // 2]["messages"][-1]["content"]
    assert "The date is now" in command[0]["text"]
    assert command[-1]["text"] == "Once more"


def test_each_reply_reads_what_the_last_request_wrote(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    """Field report 41: written once and never read would be a fault of the markers."""
    anthropic_server.play(plan(*FIX, *FIX))
    run_agent("run", "--mode", "auto", "Fix the price", env=anthropic_server.env)
    report = json.loads(run_agent("cost", "--json").stdout)
    reads = [call["cache_read"] for call in report["calls"]]
    assert reads[0] == 0
    assert all(later > earlier for earlier, later in itertools.pairwise(reads))
    assert report["total"]["hit_rate"] > 0.5


def test_json_events_tell_the_whole_turn(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    anthropic_server.play(plan(*FIX))
    result = run_agent("run", "--mode", "auto", "--json", "Fix the price", env=anthropic_server.env)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    types = [event["type"] for event in events]
    assert types[0] == "session"
    assert types[-1] == "finished"
    assert types.count("call_finished") == types.count("call_started") == 4
    assert [event["name"] for event in events if event["type"] == "tool_started"] == ["read", "edit", "shell"]
    finished = events[-1]
    assert (finished["end"], finished["text"], finished["calls"]) == ("done", "Fixed price.py:2; check.py passes.", 4)
    assert sum(float(e["cost_usd"]) for e in events if e["type"] == "call_finished") == pytest.approx(
        float(finished["cost_usd"])
    )


def test_without_a_terminal_nothing_is_asked_and_the_model_learns_why(
    anthropic_server: Emulator, run_agent: RunAgent, repository: Path
) -> None:
    anthropic_server.play(plan(*FIX, answer="I could not."))
    result = run_agent("run", "Fix the price", env=anthropic_server.env)
    assert result.returncode == 0
    assert "- tax" in (repository / "price.py").read_text()
    refused = [m["content"][0] for m in anthropic_server.bodies[-1]["messages"] if m["role"] == "user"][2:]
    assert all(part["is_error"] for part in refused)
    assert "--mode" in refused[0]["content"]


def test_plan_mode_changes_nothing_but_the_tail(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    """Rule R9: the tools are the same in every mode, so a change of mode keeps the cached prefix."""
    anthropic_server.play(plan(FIX[0]))
    run_agent("run", "--mode", "plan", "Look", env=anthropic_server.env)
    run_agent("run", "--mode", "auto", "-c", "Fix it", env=anthropic_server.env)
    first, *_, last = anthropic_server.requests
    assert first.body["tools"] == last.body["tools"]
    assert_extends(first, last)


def test_overload_is_waited_for(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    """Field report 129."""
    busy = Failure(529, ("overloaded_error", "Overloaded"), headers={"retry-after-ms": "10"})
    anthropic_server.play([busy] * 6 + [Reply.of("Hello.")])
    result = run_agent("run", "Say hello", env=anthropic_server.env)
    assert (result.returncode, result.stdout) == (0, "Hello.\n")
    assert result.stderr.count("Trying again") == 6


def test_a_stream_that_breaks_after_a_tool_call_runs_the_tool_once(
    anthropic_server: Emulator, run_agent: RunAgent, repository: Path
) -> None:
    """Field report 126."""
    append = Call("shell", {"command": "echo x >> log"})
    cut = Reply.of(append, cut_after=6)
    anthropic_server.play([cut, Reply.of(append), Reply.of("Done.")])
    result = run_agent("run", "--mode", "auto", "Log it", env=anthropic_server.env)
    assert result.returncode == 0, result.stderr
    assert (repository / "log").read_text() == "x\n"
    assert_extends(anthropic_server.requests[0], anthropic_server.requests[1])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Failure(401, ("authentication_error", "invalid x-api-key")), "key"),
        (html_page(), "127.0.0.1"),
        (Failure(400, ("invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum")), "too long"),
        (Failure(429, ("rate_limit_error", "spend limit reached")), "limit"),
    ],
)
def test_what_no_retry_can_mend_is_one_clear_line(
    anthropic_server: Emulator, run_agent: RunAgent, answer: Failure, expected: str
) -> None:
    anthropic_server.play([answer])
    result = run_agent("run", "Say hello", env=anthropic_server.env)
    assert result.returncode == 1
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert "sk-ant-test-key" not in result.stderr + result.stdout
    assert "Everything so far is kept" in result.stderr
    assert ("--continue" in result.stderr) == (expected != "too long"), "no advice to repeat what must fail again"
    assert len(anthropic_server.bodies) == 1


def test_a_refused_attempt_does_not_cost_the_cache(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    """Field report 36, in a retry: the markers still point to where the last answered request ended."""
    wide = [Call("shell", {"command": f"echo {number} {'x' * 400}"}) for number in range(25)]
    busy = Failure(529, ("overloaded_error", "Overloaded"), headers={"retry-after-ms": "1"})
    anthropic_server.play([Reply.of(Call("shell", {"command": "true"})), Reply.of(*wide), busy, Reply.of("Done.")])
    run_agent("run", "--mode", "auto", "Go", env=anthropic_server.env)
    calls = json.loads(run_agent("cost", "--json").stdout)["calls"]
    done = [call for call in calls if call["status"] == "done"]
    written = done[1]["cache_read"] + done[1]["cache_write"]
    assert done[2]["cache_read"] >= written, "all that the request before the refusal wrote is read"


def test_limits_stop_with_exit_code_3(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    anthropic_server.play(plan(*[Call("shell", {"command": f"echo {i}"}) for i in range(9)]))
    turns = run_agent("run", "--mode", "auto", "--max-turns", "2", "Go", env=anthropic_server.env)
    assert turns.returncode == 3
    assert "--max-turns" in turns.stderr
    assert len(anthropic_server.bodies) == 2
    cost = run_agent("run", "--mode", "auto", "--max-cost", "0.000001", "Go", env=anthropic_server.env)
    assert cost.returncode == 3
    assert len(anthropic_server.bodies) == 3


def test_a_model_that_repeats_one_call_is_stopped(anthropic_server: Emulator, run_agent: RunAgent) -> None:
    """Field report 120: the same call with the same result five times ends the turn."""
    anthropic_server.play(plan(*[Call("find", {"pattern": "*.py"})] * 50))
    result = run_agent("run", "--mode", "auto", "Go", env=anthropic_server.env)
    assert result.returncode == 1
    assert "keeps calling find" in result.stderr
    assert len(anthropic_server.bodies) == 5


def test_secrets_stay_out_of_prompt_and_ledger(
    anthropic_server: Emulator, run_agent: RunAgent, home: Path, repository: Path
) -> None:
    """Rule R10."""
    anthropic_server.play(plan(Call("shell", {"command": "env"})))
    (repository / "AGENTS.md").write_text("Deploy with tok-1234567890.")
    env = {**anthropic_server.env, "DEPLOY_TOKEN": "tok-1234567890"}
    result = run_agent("run", "--mode", "auto", "Use tok-1234567890", env=env)
    assert "[secret DEPLOY_TOKEN]" in json.dumps(anthropic_server.bodies[-1])
    ledger = b"".join(path.read_bytes() for path in home.iterdir() if path.name.startswith("ledger"))
    spilled = "".join(path.read_text() for path in (home / "output").rglob("*") if path.is_file())
    for secret in ("tok-1234567890", "sk-ant-test-key"):
        assert secret.encode() not in ledger
        assert secret not in result.stdout + result.stderr + spilled
        assert secret not in json.dumps(anthropic_server.bodies)
