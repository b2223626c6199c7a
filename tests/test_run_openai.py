"""`agent run` on the Responses API: the real program, the real SDK, a real HTTP server on loopback."""

import itertools
import json
from pathlib import Path

import pytest
from conftest import RunAgent
from emulator import Call, Emulator, Reply, Think
from emulator.bodies import raw_prefix
from emulator.faults import rate_limited, server_error
from emulator.openai_errors import quota_exceeded
from openai_support import breakpoints
from scripted import FIX, plan

MODEL = ("--model", "openai/gpt-6.2-sol")
RUN = ("run", "--mode", "auto", *MODEL)
FIXED = "def total(price, tax):\n    return price + tax\n"
AT_ONCE = {"retry-after": "0"}


def test_a_task_of_read_edit_test_and_answer(emulator: Emulator, run_agent: RunAgent, repository: Path) -> None:
    emulator.play(plan(*FIX))
    result = run_agent(*RUN, "Fix the price", env=emulator.env)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "Fixed price.py:2; check.py passes.\n"
    assert (repository / "price.py").read_text() == FIXED
    last = emulator.bodies[-1]["input"][-1]
    assert last["type"] == "function_call_output"
    assert "passed" in last["output"][0]["text"]


def test_every_body_extends_the_last_and_reads_what_it_wrote_also_after_a_resume(
    emulator: Emulator, run_agent: RunAgent
) -> None:
    """Rule R1, byte for byte, with reasoning that is bound to its prefix. Field reports 41, 46, 65 and 68."""
    steps = [[FIX[0], *(Call("shell", {"command": f"echo {number}-{i}"}) for i in range(6))] for number in range(5)]
    scripted = plan(*FIX, *steps)

    def thinking(request: object) -> Reply:
        reply = scripted(request)
        return Reply((Think("Hm."), *reply.parts))

    emulator.play(thinking)
    one = run_agent(*RUN, "Fix the price", env={**emulator.env, "PYTHONHASHSEED": "1"})
    two = run_agent(*RUN, "--continue", "Once more", env={**emulator.env, "PYTHONHASHSEED": "2"})
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
    assert len(emulator.requests) == 18
    assert {request.body["prompt_cache_key"] for request in emulator.requests} == {
        emulator.bodies[0]["prompt_cache_key"]
    }
    for earlier, later in itertools.pairwise(emulator.requests):
        assert raw_prefix(later.raw).startswith(raw_prefix(earlier.raw))
        assert 1 <= len(breakpoints(later.body)) <= 4
    for before, bill in itertools.pairwise(emulator.bills):
        assert before is not None
        assert bill is not None
        assert bill.read == before.input_total - before.fresh
    report = json.loads(run_agent("cost", "--json").stdout)
    assert sum(call["cache_read"] for call in report["calls"]) == sum(bill.read for bill in emulator.bills if bill)
    assert float(report["total"]["cost_usd"]) == pytest.approx(float(sum(b.usd for b in emulator.bills if b and b.usd)))


def test_a_cache_option_that_the_endpoint_refuses_is_left_out_from_then_on(
    emulator: Emulator, run_agent: RunAgent, repository: Path
) -> None:
    """Field report 44."""
    emulator.refused_options.update({"prompt_cache_options", "prompt_cache_key"})
    emulator.play(plan(*FIX))
    result = run_agent(*RUN, "Fix the price", env=emulator.env)
    assert result.returncode == 0, result.stderr
    assert (repository / "price.py").read_text() == FIXED
    assert len(emulator.requests) == 4 + 2
    assert all("prompt_cache_key" not in body for body in emulator.bodies[2:])
    again = run_agent(*RUN, "Once more", env=emulator.env)
    assert again.returncode == 0, again.stderr
    assert "prompt_cache_key" not in emulator.bodies[6]  # a later session knows it


def test_rate_limits_server_errors_and_cut_streams_end_in_a_finished_task(
    emulator: Emulator, run_agent: RunAgent, repository: Path
) -> None:
    """Field report 126: a stream that is cut behind a whole call never runs it twice."""
    emulator.interrupt(rate_limited(AT_ONCE), server_error(500, AT_ONCE))
    scripted, cuts = plan(*FIX), iter([3, None, 9, None])

    def cutting(request: object) -> Reply:
        reply = scripted(request)
        return Reply(reply.parts, cut_after=next(cuts, None))

    emulator.play(cutting)
    result = run_agent(*RUN, "Fix the price", env=emulator.env)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "Fixed price.py:2; check.py passes.\n"
    assert (repository / "price.py").read_text() == FIXED


def test_a_quota_that_is_used_up_ends_at_once_with_one_line_and_the_session_resumes(
    emulator: Emulator, run_agent: RunAgent
) -> None:
    emulator.interrupt(quota_exceeded())
    emulator.play(plan(*FIX))
    result = run_agent(*RUN, "Fix the price", env=emulator.env)
    assert result.returncode != 0
    assert len(emulator.requests) == 1
    assert "credit or spend limit is used up" in result.stderr
    assert "Traceback" not in result.stderr
    assert run_agent(*RUN, "--continue", "Go on", env=emulator.env).returncode == 0


def test_without_a_key_one_line_says_which_variable_to_set(run_agent: RunAgent) -> None:
    result = run_agent(*RUN, "Fix the price")
    assert result.returncode != 0
    assert "OPENAI_API_KEY" in result.stderr
    assert "Traceback" not in result.stderr
