"""Fixtures for tests that run the real program: a home of its own, a repository, and the scripted server."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from chat_screen import chat
from emulator.fixture import anthropic_server, emulator
from hypothesis import settings

from agent.counting import Counter

ROOT = Path(__file__).parent.parent

# A landing must not hang on the luck of one run, nor on a busy machine; runs by hand search on.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

__all__ = ["anthropic_server", "chat", "emulator"]

RunAgent = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def count_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations inside the test count tokens in its process, which builds the tokenizer's tables once, instead of
    in a child each. The real program, as `run_agent` starts it, has its child.
    """

    async def start(_: Counter) -> None:
        pass

    monkeypatch.setattr(Counter, "start", start)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """KEEPWARM_HOME of the test."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """A person's environment without keys and without settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "KEEPWARM_HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }


@pytest.fixture
def repository(tmp_path: Path, environment: dict[str, str]) -> Path:
    """A small git repository with a planted bug and a test that finds it."""
    root = tmp_path / "shop"
    root.mkdir()
    (root / "price.py").write_text("def total(price, tax):\n    return price - tax\n")
    (root / "check.py").write_text("from price import total\n\nassert total(10, 2) == 12\nprint('passed')\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run(["git", *arguments], cwd=root, env=environment, check=True)
    return root


@pytest.fixture
def run_agent(environment: dict[str, str], repository: Path) -> RunAgent:
    """Run the command line in the repository, as a process of its own."""

    def run(
        *arguments: str,
        env: Mapping[str, str] = {},
        cwd: Path | None = None,
        stdin: str | None = None,
        timeout: float = 120,
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, str(ROOT / "keepwarm.py"), *arguments],
            cwd=cwd or repository,
            env={**environment, **env},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
