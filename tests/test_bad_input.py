"""What can be wrong on the person's side: one clear line, the right exit code, no traceback."""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT, RunAgent
from emulator import Emulator
from emulator.script import Call, Reply
from scripted import plan


def one_line(result: object, code: int, *words: str) -> None:
    assert result.returncode == code, result.stderr  # type: ignore[attr-defined]
    stderr: str = result.stderr  # type: ignore[attr-defined]
    assert "Traceback" not in stderr
    assert len(stderr.strip().splitlines()) == 1, stderr
    for word in words:
        assert word in stderr


@pytest.mark.parametrize("prompt", ["", "  \n", "-"])
def test_an_empty_prompt(run_agent: RunAgent, prompt: str) -> None:
    one_line(run_agent("run", prompt, stdin=" \n"), 2, "prompt is empty")


def test_no_key(run_agent: RunAgent) -> None:
    result = run_agent("run", "--model", "anthropic/claude-sonnet-5-5", "hello")
    assert result.returncode == 1
    assert "ANTHROPIC_API_KEY" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_base_url_that_is_no_address(run_agent: RunAgent) -> None:
    env = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": "http://256.1.1.1"}
    one_line(run_agent("run", "hello", env=env), 1, "ANTHROPIC_BASE_URL")


def test_an_unknown_model(run_agent: RunAgent) -> None:
    one_line(run_agent("run", "--model", "claude-sonnet-5-5", "hello"), 2, "Did you mean anthropic/claude-sonnet-5-5?")
    one_line(
        run_agent("run", "--model", "local/qwen", "hello"), 2, "Did you mean local/qwen2.5-coder-1.5b? Known: local/"
    )
    one_line(run_agent("run", "--model", "local:/no/such.gguf", "hello"), 2, "/no/such.gguf")


def test_a_model_file_that_is_none(run_agent: RunAgent, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"<html>not a model</html>" * 100)
    one_line(run_agent("run", "--model", f"local:{file}", "hello"), 1, "not a GGUF file")
    file.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\x00" * 100)
    result = run_agent("run", "--model", f"local:{file}", "hello")
    measuring, error = result.stderr.splitlines()  # what llama.cpp does with it is seen in a trial run only
    assert (result.returncode, measuring[:14]) == (1, "Measuring once")
    assert str(file) in error


@pytest.mark.parametrize("flags", [["--mode", "yolo"], ["--max-turns", "0"], ["--max-cost", "much"]])
def test_bad_flags(run_agent: RunAgent, flags: list[str]) -> None:
    result = run_agent("run", *flags, "hello")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_bad_settings(run_agent: RunAgent, home: Path) -> None:
    (home / "config.toml").write_text("max_turn = 1\n")
    one_line(run_agent("run", "hello"), 2, "config.toml", "Did you mean 'max_turns'?")
    (home / "config.toml").write_text("model = \n")
    one_line(run_agent("run", "hello"), 2, "config.toml")


def test_nothing_to_continue(run_agent: RunAgent, anthropic_server: Emulator) -> None:
    one_line(run_agent("run", "-c", "hello", env=anthropic_server.env), 2, "no session")
    one_line(run_agent("run", "--resume", "nope", "hello", env=anthropic_server.env), 2, "nope")
    one_line(run_agent("cost", "nope"), 2, "nope")


def test_a_damaged_ledger_is_left_as_it_is(run_agent: RunAgent, home: Path, anthropic_server: Emulator) -> None:
    """Field report 137: a corrupt store must not leave a person without a way out."""
    (home / "ledger.db").write_bytes(b"this is no database" * 1000)
    one_line(run_agent("run", "hello", env=anthropic_server.env), 1, "damaged", "mv ")
    assert (home / "ledger.db").read_bytes() == b"this is no database" * 1000
    assert anthropic_server.bodies == []


@pytest.fixture
def locked_ledger(home: Path, run_agent: RunAgent) -> Iterator[None]:
    run_agent("sessions")
    with closing(sqlite3.connect(home / "ledger.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.usefixtures("locked_ledger")
def test_a_locked_ledger(run_agent: RunAgent, anthropic_server: Emulator) -> None:
    one_line(run_agent("run", "hello", env=anthropic_server.env), 1, "locked")


@pytest.mark.parametrize(
    "damage",
    ["UPDATE session SET told = 'x'", "UPDATE call SET cost_usd = 'x'", "UPDATE call SET fresh = 'x'",
     "UPDATE block SET body = '[1]'", "UPDATE session SET created = 'x'"],
)  # fmt: skip
def test_a_ledger_with_values_that_make_no_sense(
    run_agent: RunAgent, home: Path, anthropic_server: Emulator, damage: str
) -> None:
    anthropic_server.play([Reply.of("Hello.")] * 2)
    run_agent("run", "hello", env=anthropic_server.env)
    with closing(sqlite3.connect(home / "ledger.db")) as connection:
        connection.execute(damage)
        connection.commit()
    for arguments in (["run", "-c", "hello"], ["cost"], ["sessions"]):
        result = run_agent(*arguments, env=anthropic_server.env)
        assert "Traceback" not in result.stderr
        assert result.returncode == 0 or "cannot read" in result.stderr


def test_the_ledger_is_for_its_owner_alone(run_agent: RunAgent, home: Path) -> None:
    run_agent("sessions")
    assert (home / "ledger.db").stat().st_mode & 0o077 == 0


def test_locks_that_cannot_be_made(run_agent: RunAgent, home: Path, anthropic_server: Emulator) -> None:
    (home / "locks").write_text("")
    one_line(run_agent("run", "hello", env=anthropic_server.env), 1, "locks")


def test_more_threads_than_processors(run_agent: RunAgent) -> None:
    one_line(run_agent("run", "--model", "local/smollm2-135m", "--threads", "100000", "hello"), 2, "processors")


def test_a_git_hook_sees_its_own_directory(
    run_agent: RunAgent, repository: Path, tmp_path: Path, anthropic_server: Emulator
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.txt").write_text("x")
    anthropic_server.play([Reply.of("Hello.")])
    run_agent("run", "hello", cwd=folder, env={**anthropic_server.env, "GIT_DIR": str(repository / ".git")})
    assert "mine.txt" in anthropic_server.bodies[0]["system"][1]["text"]
    assert "price.py" not in anthropic_server.bodies[0]["system"][1]["text"]


@pytest.mark.parametrize("command", ["sessions", "doctor", "models list", "--version", "--help"])
def test_reports_into_a_full_disk(repository: Path, environment: dict[str, str], command: str) -> None:
    result = shell(f"AGENT {command} > /dev/full", repository, environment)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_a_ledger_of_a_newer_release(run_agent: RunAgent, home: Path) -> None:
    with closing(sqlite3.connect(home / "ledger.db")) as connection:
        connection.execute("PRAGMA user_version = 999")
    one_line(run_agent("sessions"), 1, "newer release")


def test_no_repository_and_no_files(run_agent: RunAgent, tmp_path: Path, anthropic_server: Emulator) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    anthropic_server.play([Reply.of("Hello.")])
    assert run_agent("run", "hello", cwd=folder, env=anthropic_server.env).returncode == 0
    assert "no files yet" in anthropic_server.bodies[0]["system"][1]["text"]


def test_a_directory_of_strange_files(run_agent: RunAgent, tmp_path: Path, anthropic_server: Emulator) -> None:
    folder = tmp_path / "strange"
    folder.mkdir()
    for name in (b"caf\xe9.txt", b"new\nline.txt", "汉字.txt".encode(), b"locked.txt"):
        (folder / os.fsdecode(name)).write_text("text\n")
    (folder / "locked.txt").chmod(0)
    with (folder / "big.bin").open("wb") as big:
        big.truncate(200_000_000)
    calls = [Call("read", {"path": name}) for name in ("big.bin", "汉字.txt", "locked.txt", "caf\\xe9.txt")]
    anthropic_server.play(plan(calls, Call("search", {"pattern": "text"}), Call("find", {"pattern": "*.txt"})))
    result = run_agent("run", "look", cwd=folder, env=anthropic_server.env)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    results = anthropic_server.bodies[1]["messages"][-1]["content"]
    assert [part.get("is_error", False) for part in results] == [True, False, os.geteuid() != 0, False]


def test_a_working_directory_whose_name_is_no_text(
    run_agent: RunAgent, tmp_path: Path, anthropic_server: Emulator
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9\n\xff")
    folder.mkdir()
    anthropic_server.play([Reply.of("Hello."), Reply.of("Again.")])
    assert run_agent("run", "hello", cwd=folder, env=anthropic_server.env).returncode == 0
    assert run_agent("run", "-c", "hello", cwd=folder, env=anthropic_server.env).stdout == "Again.\n"
    assert run_agent("cost", cwd=folder).returncode == 0


@pytest.mark.parametrize("as_packages", [True, False])
def test_modules_of_the_repository_do_not_shadow_ours_nor_ours_theirs(
    run_agent: RunAgent, repository: Path, anthropic_server: Emulator, *, as_packages: bool
) -> None:
    for name in ("agent", "context", "backends"):
        (repository / name).mkdir()
        if as_packages:
            (repository / name / "__init__.py").write_text("")
        (repository / name / "mine.py").write_text(f"print('their {name}')\n")
    (repository / "typing.py").write_text("raise SystemExit('shadowed')\n")
    command = f"{sys.executable} -S -c 'import agent.mine, context.mine, backends.mine'"
    anthropic_server.play(plan(Call("shell", {"command": command})))
    env = {**anthropic_server.env, "PYTHONPATH": str(repository)}
    result = run_agent("run", "--mode", "auto", "go", env=env)
    assert result.returncode == 0, result.stderr
    output = anthropic_server.bodies[-1]["messages"][-1]["content"][0]["content"]
    for name in ("agent", "context", "backends"):
        assert f"their {name}" in output


def shell(command: str, cwd: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    agent = f"{sys.executable} {ROOT / 'keepwarm.py'}"
    return subprocess.run(
        ["bash", "-c", command.replace("AGENT", agent)], cwd=cwd, env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("AGENT run --json hello | head -1; exit ${PIPESTATUS[0]}", 1),
        ("AGENT run --json hello > /dev/full", 1),
        ("AGENT run hello <&-", 0),
        ("AGENT run <&-", 2),
        ("AGENT run hello >&-", 0),
        ("AGENT run hello 2>&-", 0),
    ],
)
def test_streams_that_are_closed_or_full(
    anthropic_server: Emulator, repository: Path, environment: dict[str, str], command: str, code: int
) -> None:
    anthropic_server.play(
        plan(
            Call("find", {"pattern": "*"}),
            answer=" ".join(f"Hello{number:x}." for number in random.Random(1).sample(range(1 << 24), 10_000)),
        )
    )
    result = shell(command, repository, {**environment, **anthropic_server.env})
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_version_and_help(run_agent: RunAgent) -> None:
    assert run_agent("--version").stdout.startswith("keepwarm ")
    listed = run_agent("--help").stdout
    for command in ("run", "cost", "sessions", "models", "doctor"):
        assert command in listed


def test_models_are_shown_by_their_bare_name_too(run_agent: RunAgent) -> None:
    shown = run_agent("models", "show", "qwen2.5-coder-1.5b")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == run_agent("models", "show", "local/qwen2.5-coder-1.5b").stdout
    assert "Apache-2.0" in shown.stdout
    one_line(run_agent("models", "show", "qwen2.5-coder"), 2, "qwen2.5-coder")


def test_doctor_says_what_works(run_agent: RunAgent, home: Path) -> None:
    result = run_agent("doctor")
    assert result.returncode == 0, result.stderr
    assert "ripgrep" in result.stdout
    assert "no key" in result.stdout
    (home / "config.toml").write_text("max_turn = 1\n")
    broken = run_agent("doctor")
    assert broken.returncode == 1
    assert "max_turns" in broken.stdout
