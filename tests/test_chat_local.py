"""The chat with a local model, on a pseudo-terminal: real inference, stopped in the midst of it and gone on with."""

import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from pty_screen import Screen

pytest_plugins = ["local_models"]


@pytest.mark.usefixtures("measured")
def test_a_local_model_is_stopped_while_it_reads_and_goes_on_from_there(
    smollm2_path: Path, environment: dict[str, str], repository: Path
) -> None:
    command = [sys.executable, str(ROOT / "keepwarm.py"), "-m", f"local:{smollm2_path}", "--mode", "plan"]
    with Screen(command, env=environment, cwd=repository, columns=120, timeout_s=60) as screen:
        screen.wait_for(">")
        screen.send("Say hello.\r")
        screen.wait_for(re.compile(r"reading the prompt: [\d,]+ of [\d,]+ tokens"))
        screen.send("\x03")
        screen.wait_for("Interrupted.")
        assert "agent run" not in screen.text  # it is not how a chat goes on
        screen.send("Say it again.\r")
        screen.wait_for(re.compile(r"\d+% reused · TTFT [\d.]+ s · \d+ tokens/s"))
        screen.send("\x03")
        screen.send("\x04")
        assert screen.wait_end() == 0
        assert "$" not in screen.text  # a local model costs no money
