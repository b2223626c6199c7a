"""Run the tasks with `agent run` and report what came of it. The command line of run.py."""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local_tasks.checks import Outcome
from benchmarks.local_tasks.tasks import TASKS, Task

ROOT = Path(__file__).resolve().parent.parent.parent
DEFAULT_MODEL = "local/qwen2.5-coder-1.5b"


@dataclass(frozen=True)
class Events:
    """What an event stream says. Tokens summed over all calls; None: not reported for one of them."""

    calls: int
    evaluated: int | None
    reused: int | None
    output: int | None
    answer: str
    end: str | None


@dataclass(frozen=True)
class Report:
    """One task. `reason` is why it failed. `seconds`: wall time of the whole process, loading the model included."""

    task: str
    passed: bool
    reason: str | None
    calls: int
    evaluated: int | None
    reused: int | None
    output: int | None
    seconds: float
    answer: str


def run_task(task: Task, command: Sequence[str], limit_s: float, folder: Path) -> Report:
    """Write the task's repository into `folder`, let `command` + its prompt work there, and check the outcome.

    The event stream and what was said on standard error stay in `folder`. `limit_s`: after that many seconds the
    agent is stopped and the task has failed.
    """
    outcome_before, work = folder / "before", folder / task.repository
    task.write(outcome_before)
    task.write(work)
    _commit(work)
    events_file, errors_file = folder / "events.jsonl", folder / "errors.txt"
    started = time.monotonic()
    in_time = _run([*command, task.prompt], work, limit_s, events_file, errors_file)
    seconds = time.monotonic() - started
    events = read_events(events_file.read_text(errors="replace"))
    reason = task.check(Outcome(outcome_before, work, events.answer)) if in_time else f"not done within {limit_s:g} s"
    if reason is not None and in_time and events.end is None:  # it never came to an end of its own
        said = errors_file.read_text(errors="replace").strip().splitlines()
        reason = f"{reason}; the agent ended with: {said[-1] if said else 'no word'}"
    return Report(
        task.name,
        reason is None,
        reason,
        events.calls,
        events.evaluated,
        events.reused,
        events.output,
        seconds,
        events.answer,
    )


def read_events(text: str) -> Events:
    """Sum up the lines of `agent run --json`. Lines that are no events are passed over."""
    calls: list[dict[str, object]] = []
    answer, end = "", None
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # a line cut off when the agent was stopped
            continue
        if event.get("type") == "call_finished":
            calls.append(event)
        elif event.get("type") == "finished":
            answer, end = event.get("text") or "", event.get("end", "done")
    return Events(
        len(calls), _sum(calls, "fresh"), _sum(calls, "cache_read"), _sum(calls, "output"), answer=answer, end=end
    )


def table(reports: Sequence[Report], model: str) -> str:
    """The reports as Markdown: a line of summary, the table, and why tasks failed."""
    done = sum(report.passed for report in reports)
    minutes = sum(report.seconds for report in reports) / 60
    lines = [
        f"`{model}`: {done} of {len(reports)} done, {minutes:.1f} minutes.",
        "",
        "| task | result | calls | evaluated | reused | output | seconds |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for report in reports:
        numbers = " | ".join(
            "unknown" if value is None else f"{value:,}"
            for value in (report.calls, report.evaluated, report.reused, report.output)
        )
        result = "done" if report.passed else "failed"
        lines.append(f"| {report.task} | {result} | {numbers} | {report.seconds:.0f} |")
    failures = [f"- {report.task}: {report.reason}" for report in reports if not report.passed]
    return "\n".join([*lines, "", *(["Why they failed:", "", *failures] if failures else [])]).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run.py", description="Small tasks for small models, judged by outcome.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as for `agent run` (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="NAME", help="this task; may be repeated")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="time for one task")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the reports there too")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep repositories, events and ledger there")
    parser.add_argument("--list", action="store_true", help="name the tasks and their prompts, run nothing")
    options = parser.parse_args(arguments)
    chosen = [task for task in TASKS if not options.only or task.name in options.only]
    unknown = set(options.only or ()) - {task.name for task in TASKS}
    if unknown:
        parser.error(f"no such task: {', '.join(sorted(unknown))}. Known: {', '.join(task.name for task in TASKS)}")
    if options.list:
        for task in chosen:
            print(f"{task.name:20}{task.repository:12}{task.prompt}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what is running is ended
    folder = Path(tempfile.mkdtemp(prefix="local-tasks-")) if options.keep is None else options.keep.resolve()
    try:
        reports = list(_run_all(chosen, options.model, options.limit, folder))
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(table(reports, options.model), end="")
    if options.json is not None:
        result = {"model": options.model, "tasks": [dataclasses.asdict(report) for report in reports]}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _run_all(tasks: Iterable[Task], model: str, limit_s: float, folder: Path) -> Iterable[Report]:
    command = [sys.executable, str(ROOT / "keepwarm.py"), "run", "--mode", "auto", "--json", "--model", model]
    os.environ.update(_environment(folder))
    for task in tasks:
        target = folder / task.name
        target.mkdir(parents=True)
        report = run_task(task, command, limit_s, target)
        word = "done" if report.passed else f"failed: {report.reason}"
        print(f"{task.name}: {word} ({report.calls} calls, {report.seconds:.0f} s)", file=sys.stderr, flush=True)
        yield report


def _environment(folder: Path) -> dict[str, str]:
    """A ledger of its own, the model files of the person, and this Python with its pytest as `python`.

    Our own pytest plugins stay out: the repositories are plain, and a plugin's warnings are not theirs.
    """
    from agent.config import Folders

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        "PATH": path,
        "KEEPWARM_HOME": str(folder / "home"),
        "KEEPWARM_MODELS_DIR": str(Folders.find(os.environ).models),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def _run(command: Sequence[str], cwd: Path, limit_s: float, out: Path, errors: Path) -> bool:
    """Run a command; when the time is over, stop it and whatever it started. Returns whether it ended in time."""
    with out.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        finally:  # also when the benchmark itself is stopped
            _stop(process)
    return True


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the agent, which ends the commands that it started in sessions of their own."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _commit(root: Path) -> None:
    """Make `root` a git repository with one commit, as the agent would find one."""
    git = ["git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost", "-c", "init.defaultBranch=main"]
    for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "First version"]):
        subprocess.run([*git, *arguments], cwd=root, check=True)


def _sum(calls: Sequence[dict[str, object]], key: str) -> int | None:
    values = [call.get(key) for call in calls]
    numbers = [value for value in values if isinstance(value, int)]
    return sum(numbers) if len(numbers) == len(values) else None
