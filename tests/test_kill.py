"""Killed at any instant, a session goes on where it was: nothing sent is changed, nothing with an effect runs twice."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from emulator import Emulator, Recorded
from emulator.bodies import assert_extends, content_parts
from emulator.script import Call, Reply, Say
from scripted import FIX, plan

from context.layers.history import CUT_REPLY

DRIVER = Path(__file__).with_name("kill_driver.py")


def kill(count: int, seed: int, server: Emulator, repository: Path, environment: dict[str, str]) -> None:
    """Kill `count` runs at random instants, and let a last one go on. Rules R1 and R7 hold for all that was sent."""
    result = subprocess.run(
        [sys.executable, str(DRIVER), str(count), str(seed)],
        cwd=repository,
        env={**environment, **server.env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(count), "0"], "all kills fall into running programs, and the last run ends"
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)


def parts_of(request: Recorded, role: str) -> Sequence[Any]:
    messages = request.body["messages"]
    return [part for message in messages if message["role"] == role for part in content_parts(message)]


def test_fifty_kills_at_random_instants(
    anthropic_server: Emulator, repository: Path, environment: dict[str, str]
) -> None:
    """Field reports 65, 66, 131, 132 and 139."""
    effect = Call("shell", {"command": "echo ran >> log"})
    anthropic_server.play(plan(FIX[0], effect, [FIX[0], FIX[0]], effect))
    kill(50, 20261201, anthropic_server, repository, environment)

    last = anthropic_server.requests[-1]
    asked = [part for part in parts_of(last, "assistant") if part["type"] == "tool_use"]
    answered = [part["tool_use_id"] for part in parts_of(last, "user") if part["type"] == "tool_result"]
    assert [part["id"] for part in asked] == answered, "each call has exactly one result, in order"
    effects = sum(part["name"] == "shell" for part in asked)
    assert len((repository / "log").read_text().splitlines()) <= effects


def test_kills_in_the_middle_of_a_streamed_text(
    anthropic_server: Emulator, repository: Path, environment: dict[str, str]
) -> None:
    """What a killed run has shown of its reply is part of the session: a beginning of the text, never another one."""
    text = "".join(f"{number} " for number in range(4_000))
    anthropic_server.play(lambda _: Reply.of(Say(text, pieces=4_000)))
    kill(20, 20261202, anthropic_server, repository, environment)

    messages = anthropic_server.requests[-1].body["messages"]
    said = ["".join(part["text"] for part in content_parts(m)) if m["role"] == "assistant" else None for m in messages]
    assert all(text.startswith(piece) for piece in said if piece is not None)
    cut = [number for number, piece in enumerate(said) if piece is not None and piece != text]
    assert cut, "some kills fall into the stream"
    told = [number for number, m in enumerate(messages) if CUT_REPLY in str(m["content"]) and m["role"] == "user"]
    assert {number + 1 for number in cut} <= set(told), "the model is told in the very next message"
    # More notices than texts that are visibly cut: when a kill falls between the last piece and the end of the reply,
    # the whole text is there, but nobody knows that it is whole. Each notice still follows a reply, and needs a kill.
    assert all(said[number - 1] is not None for number in told)
    assert len(told) <= 20
