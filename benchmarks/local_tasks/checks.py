"""Judging a task by its outcome: what the repository does afterwards, never how the agent got there.

A check is a function from an `Outcome` to None when it holds, or to one line that says why it does not.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PYTEST_LIMIT_S = 60
_IGNORED = frozenset({".git", "__pycache__", ".pytest_cache", "node_modules"})


@dataclass(frozen=True)
class Outcome:
    """`before`: the repository as the agent got it. `after`: as it left it. `answer`: its last words."""

    before: Path
    after: Path
    answer: str


Check = Callable[[Outcome], str | None]


def all_of(*checks: Check) -> Check:
    """The first reason that one of `checks` gives."""

    def check(outcome: Outcome) -> str | None:
        return next((reason for one in checks if (reason := one(outcome)) is not None), None)

    return check


def files(root: Path) -> Iterator[Path]:
    """The files of a repository, relative to it, without version control and caches."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not _IGNORED.intersection(relative.parts):
            yield relative


def changed(outcome: Outcome) -> list[str]:
    """Files that were changed, added or removed."""
    before = {path: (outcome.before / path).read_bytes() for path in files(outcome.before)}
    after = {path: (outcome.after / path).read_bytes() for path in files(outcome.after)}
    return sorted(str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def nothing_changed(outcome: Outcome) -> str | None:
    paths = changed(outcome)
    return f"changed {', '.join(paths)}" if paths else None


def only_changed(*allowed: str) -> Check:
    """Nothing but files that match one of the glob patterns was changed."""

    def check(outcome: Outcome) -> str | None:
        others = [path for path in changed(outcome) if not any(Path(path).match(pattern) for pattern in allowed)]
        return f"changed {', '.join(others)}" if others else None

    return check


def tests_untouched(outcome: Outcome) -> str | None:
    touched = [path for path in changed(outcome) if path.startswith("tests/") and (outcome.before / path).exists()]
    return f"changed {', '.join(touched)}" if touched else None


def tests_pass(outcome: Outcome) -> str | None:
    """The tests as the agent left them pass."""
    return _pytest(outcome.after)


def behaves(hidden: str = "", adapt: Callable[[str], str] = lambda text: text) -> Check:
    """The original tests and `hidden` ones pass, whatever became of the tests in the repository.

    `adapt` changes the text of the original tests where the task asked for another interface.
    """

    def check(outcome: Outcome) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "repository"
            shutil.copytree(outcome.after, copy, ignore=shutil.ignore_patterns(*_IGNORED))
            shutil.rmtree(copy / "tests", ignore_errors=True)
            (copy / "tests").mkdir()
            for test in (outcome.before / "tests").glob("*.py"):
                (copy / "tests" / test.name).write_text(adapt(test.read_text()))
            if hidden:
                (copy / "tests" / "test_hidden.py").write_text(hidden)
            return _pytest(copy)

    return check


def new_test_mentions(name: str) -> Check:
    """A test function that was added or changed uses `name`."""

    def check(outcome: Outcome) -> str | None:
        before = set(_test_functions(outcome.before))
        new = [test for test in _test_functions(outcome.after) if test not in before]
        return None if any(re.search(rf"\b{name}\b", test) for test in new) else f"no new test uses {name}"

    return check


def file_matches(path: str, pattern: str, *, absent: bool = False) -> Check:
    """`path` holds a match of `pattern`, or none if `absent`."""

    def check(outcome: Outcome) -> str | None:
        file = outcome.after / path
        if not file.exists():
            return f"{path} is gone"
        found = re.search(pattern, file.read_text(), re.MULTILINE) is not None
        return None if found != absent else f"{path} {'still has' if absent else 'lacks'} {pattern}"

    return check


def nowhere(pattern: str, glob: str) -> Check:
    """No file that matches `glob` holds a match of `pattern`."""

    def check(outcome: Outcome) -> str | None:
        found = [str(p) for p in files(outcome.after) if p.match(glob) and _has(outcome.after / p, pattern)]
        return f"{pattern} is still in {', '.join(found)}" if found else None

    return check


def toml_value(path: str, keys: str, expected: str) -> Check:
    """The value at the dotted `keys` of a TOML file is `expected`."""
    return _value(path, keys, expected, tomllib.loads)


def json_value(path: str, keys: str, expected: str) -> Check:
    """The value at the dotted `keys` of a JSON file is `expected`."""
    return _value(path, keys, expected, json.loads)


def answer_names(*patterns: str) -> Check:
    """The answer holds a match of every pattern; upper and lower case are the same."""

    def check(outcome: Outcome) -> str | None:
        missing = [pattern for pattern in patterns if not re.search(pattern, outcome.answer, re.IGNORECASE)]
        return f"the answer lacks {', '.join(missing)}" if missing else None

    return check


def _test_functions(root: Path) -> Iterator[str]:
    """The source of each test function in Python."""
    for path in sorted((root / "tests").glob("*.py")):
        text = path.read_text()
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                yield ast.get_source_segment(text, node) or ""


def _has(path: Path, pattern: str) -> bool:
    return re.search(pattern, path.read_text(errors="replace")) is not None


def _value(path: str, keys: str, expected: str, parse: Callable[[str], object]) -> Check:
    def check(outcome: Outcome) -> str | None:
        try:
            value = parse((outcome.after / path).read_text())
            for key in keys.split("."):
                value = value[key]  # type: ignore[index]
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{path} cannot be read: {error!r}"
        return None if value == expected else f"{path} has {keys} {value!r}"

    return check


def _pytest(root: Path) -> str | None:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    try:
        env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        run = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=PYTEST_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"the tests do not end within {PYTEST_LIMIT_S} s"
    if run.returncode == 0:
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "tests fail: " + (lines or run.stdout.splitlines()[-1:] or ["no output"])[0]
