"""The checks of benchmarks/local_tasks: a right solution passes, the untouched repository and cheats do not."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.local_tasks.checks import Outcome
from benchmarks.local_tasks.runner import Report, read_events, run_task, table
from benchmarks.local_tasks.tasks import BUGS, QUESTIONS, TASKS, Task


def outcome_of(task: Task, folder: Path) -> Outcome:
    outcome = Outcome(folder / "before", folder / "after", "")
    task.write(outcome.before)
    task.write(outcome.after)
    return outcome


def test_there_are_enough_tasks_and_their_names_differ() -> None:
    assert len(TASKS) >= 12
    assert len({task.name for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_untouched_repository_fails_and_a_right_solution_passes(task: Task, tmp_path: Path) -> None:
    outcome = outcome_of(task, tmp_path)
    assert task.check(outcome) is not None
    if isinstance(task.solution, str):
        outcome = Outcome(outcome.before, outcome.after, task.solution)
    else:
        for edit in task.solution:
            edit.apply(outcome.after)
    assert task.check(outcome) is None


@pytest.mark.parametrize("task", BUGS, ids=lambda task: task.name)
def test_no_bug_is_solved_by_changing_or_removing_tests(task: Task, tmp_path: Path) -> None:
    outcome = outcome_of(task, tmp_path)
    for test in (outcome.after / "tests").glob("test_*.py"):
        test.write_text("def test_fine():\n    pass\n")
    assert str(task.check(outcome)).startswith("changed tests/")
    for test in (outcome.after / "tests").glob("test_*.py"):
        test.unlink()
    assert str(task.check(outcome)).startswith("changed tests/")


def test_a_function_among_the_tests_is_no_test(tmp_path: Path) -> None:
    task = next(task for task in TASKS if task.name == "add-method")
    outcome = outcome_of(task, tmp_path)
    assert not isinstance(task.solution, str)
    task.solution[0].apply(outcome.after)
    with (outcome.after / "tests/test_cart.py").open("a") as file:
        file.write("\n\ndef is_empty(self):\n    return len(self.items) == 0\n")
    assert task.check(outcome) == "no new test uses is_empty"


@pytest.mark.parametrize("task", QUESTIONS, ids=lambda task: task.name)
def test_a_question_is_not_answered_by_changing_files(task: Task, tmp_path: Path) -> None:
    outcome = outcome_of(task, tmp_path)
    (outcome.after / "ANSWER.md").write_text(str(task.solution))
    assert task.check(Outcome(outcome.before, outcome.after, str(task.solution))) == "changed ANSWER.md"


AGENT = """
import json, pathlib, sys
say = lambda **event: print(json.dumps(event), flush=True)
say(type="session", session="s")
say(type="call_finished", call=1, fresh=1000, cache_read=0, output=20)
{act}
say(type="call_finished", call=2, fresh=30, cache_read=1000, output=10)
say(type="finished", end="done", text="It was the threshold.", calls=2)
"""
FIX = """
file = pathlib.Path("shop/discount.py")
file.write_text(file.read_text().replace("amount > threshold", "amount >= threshold"))
"""


def run_with(act: str, folder: Path, limit_s: float = 30.0) -> Report:
    script = folder / "agent.py"
    script.write_text(AGENT.format(act=act))
    task = next(task for task in BUGS if task.name == "bug-discount")
    return run_task(task, [sys.executable, str(script)], limit_s, folder / "run")


def test_the_runner_reports_calls_tokens_and_the_outcome(tmp_path: Path) -> None:
    report = run_with(FIX, tmp_path)
    assert (report.passed, report.reason, report.calls) == (True, None, 2)
    assert (report.evaluated, report.reused, report.output) == (1030, 1000, 30)
    assert report.answer == "It was the threshold."


def test_an_agent_that_says_it_is_done_but_did_nothing_has_failed(tmp_path: Path) -> None:
    report = run_with("", tmp_path)
    assert not report.passed
    assert str(report.reason).startswith("tests fail: FAILED tests/test_checkout.py")


def test_an_agent_that_does_not_end_is_stopped_with_its_children(tmp_path: Path) -> None:
    act = "import subprocess; subprocess.run(['sleep', '60'])"
    report = run_with(FIX + act, tmp_path, limit_s=1.0)
    assert (report.passed, report.reason) == (False, "not done within 1 s")
    assert report.calls == 1
    assert report.seconds < 20


def test_a_crash_is_named_by_the_agents_last_words(tmp_path: Path) -> None:
    report = run_with("sys.exit('agent: the model file is truncated')", tmp_path)
    assert not report.passed
    assert "agent: the model file is truncated" in str(report.reason)


def test_unknown_counters_stay_unknown(tmp_path: Path) -> None:
    events = [{"type": "call_finished", "fresh": 5, "cache_read": None, "output": 1}, {"type": "finished", "text": "x"}]
    read = read_events("\n".join(["no json", *map(json.dumps, events)]))
    assert (read.calls, read.evaluated, read.reused, read.answer) == (1, 5, None, "x")


def test_the_table(tmp_path: Path) -> None:
    lines = table([run_with(FIX, tmp_path)], "local/some").splitlines()
    assert "| task | result | calls | evaluated | reused | output | seconds |" in lines
    assert any(line.startswith("| bug-discount | done | 2 | 1,030 | 1,000 | 30 |") for line in lines)
    assert "1 of 1 done" in lines[0]
