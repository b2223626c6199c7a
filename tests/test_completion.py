"""Shell completion: it installs into a home of its own, and completes commands, models and sessions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from conftest import ROOT, RunAgent
from emulator import Emulator
from scripted import plan


@pytest.fixture
def agent(tmp_path: Path, environment: dict[str, str]) -> Path:
    """The program under its own name, on the PATH."""
    path = tmp_path / "bin" / "agent"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{path.parent}/agent.py" "$@"\n')
    code = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nsys.argv[0] = 'agent'\nimport keepwarm\nkeepwarm.main()\n"
    path.with_name("agent.py").write_text(code)
    path.chmod(0o755)
    environment["PATH"] = f"{path.parent}{os.pathsep}{environment['PATH']}"
    return path


def completed(agent: Path, env: dict[str, str], cwd: Path, *words: str) -> list[str]:
    """What bash is told for these words, the last one half typed."""
    asked = {"COMP_WORDS": " ".join(["agent", *words]), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [agent], env={**env, **asked, "_AGENT_COMPLETE": "complete_bash"}, cwd=cwd, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_models_and_sessions_are_completed(
    agent: Path, environment: dict[str, str], repository: Path, run_agent: RunAgent, anthropic_server: Emulator
) -> None:
    assert completed(agent, environment, repository, "ses") == ["sessions"]
    assert completed(agent, environment, repository, "cost", "") == []
    assert "local/qwen2.5-coder-1.5b" in completed(agent, environment, repository, "run", "--model", "local/")
    assert "anthropic/claude-sonnet-5-5" in completed(agent, environment, repository, "run", "-m", "anthropic/")
    anthropic_server.play(plan())
    run_agent("run", "hello", env=anthropic_server.env)
    (session,) = completed(agent, environment, repository, "run", "--resume", "2")
    assert completed(agent, environment, repository, "cost", session[:12]) == [session]


@pytest.mark.skipif(shutil.which("bash") is None, reason="installs into bash")
def test_it_installs_for_the_shell_that_it_is_run_from(agent: Path, environment: dict[str, str], home: Path) -> None:
    shell = pexpect.spawn("bash", ["--norc"], env=environment, encoding="utf-8", timeout=20)  # type: ignore[arg-type]
    shell.sendline("agent --install-completion; echo code $?")
    shell.expect("code 0")
    shell.sendline("source ~/.bashrc; echo read")
    shell.expect("\nread|\rread")
    shell.send("agent doc\t")
    shell.expect("agent doctor")
    shell.close(force=True)
    assert "agent.sh" in (home / ".bashrc").read_text()
