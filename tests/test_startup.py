"""What the program must not wait for when it starts. Seconds are measured by benchmarks/startup.py."""

import subprocess
import sys

import pytest
from conftest import ROOT

_SLOW = {"asyncio", "rich", "backends", "sqlite3", "tomlkit", "keyring", "anthropic", "openai", "prompt_toolkit"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["models", "--help"]])
def test_help_imports_nothing_slow(arguments: list[str], environment: dict[str, str]) -> None:
    command = [sys.executable, "-X", "importtime", str(ROOT / "keepwarm.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert imported & _SLOW == set()
