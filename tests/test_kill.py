"""Killed at any instant, a session goes on where it was: nothing sent is changed, nothing with an effect runs twice."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from loopback.bodies import assert_extends, content_parts
from loopback.script import Call
from loopback.server import ScriptedServer
from scripted import FIX, plan


def test_fifty_kills_at_random_instants(
    anthropic_server: ScriptedServer, repository: Path, environment: dict[str, str]
) -> None:
    """Rules R1 and R7. Field reports 65, 66, 131, 132 and 139."""
    effect = Call("shell", {"command": "echo ran >> log"})
    anthropic_server.play(plan(FIX[0], effect, [FIX[0], FIX[0]], effect))
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kill_driver.py")), "50", "20261201"],
        cwd=repository,
        env={**environment, **anthropic_server.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    killed, last_code = map(int, result.stdout.split())
    assert last_code == 0
    assert killed >= 40, "the kills must fall into running programs"

    bodies = anthropic_server.bodies
    for earlier, later in pairwise(bodies):
        assert_extends(earlier, later)

    asked, answered = [], []
    for message in bodies[-1]["messages"]:
        for part in content_parts(message):
            if part["type"] == "tool_use":
                asked.append(part)
            if part["type"] == "tool_result":
                answered.append(part["tool_use_id"])
    assert [part["id"] for part in asked] == answered, "each call has exactly one result, in order"
    effects = sum(part["name"] == "shell" for part in asked)
    assert len((repository / "log").read_text().splitlines()) <= effects
