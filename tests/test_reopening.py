"""A chat that is killed and reopened: warm it reads all, cold it begins again, smaller, and says what that saves."""

import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from emulator import Emulator, ManualClock, Read, Recorded, Reply, Think, play
from emulator.bodies import assert_extends
from rich.console import Console
from waiting import MODELS

from agent import events
from agent.screens.text import OneShotText

CHILD = Path(__file__).with_name("reopen_child.py")


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        yield running


def thinking(*files: str) -> Any:
    """A turn that thinks, reads those files one a reply, and says so."""

    def script(request: Recorded) -> Reply:
        reply = play([Read(name) for name in files], answer="All read.")(request)
        return Reply((Think("Next."), *reply.parts))

    return script


def turn_and_kill(
    repository: Path, environment: dict[str, str], server: Emulator, model: str, command: str, *again: str
) -> list[dict[str, Any]]:
    """The events of a turn, whose process is killed while it waits for its person."""
    assert isinstance(server.clock, ManualClock)
    arguments = [sys.executable, str(CHILD), model, str(server.clock.now()), command, *again]
    env = {**environment, **server.env}
    told: list[dict[str, Any]] = []
    with subprocess.Popen(arguments, cwd=repository, env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "waiting\n":
                child.kill()
            else:
                told.append(json.loads(line))
    assert child.returncode == -9
    return told


@pytest.mark.parametrize("api", MODELS)
def test_killed_and_reopened_after_three_minutes_and_after_three_hours(
    repository: Path, environment: dict[str, str], home: Path, server: Emulator, api: str
) -> None:
    assert isinstance(server.clock, ManualClock)
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    for number in range(4):
        (repository / f"{number}.txt").write_text(f"word {number} " * 1500)
    model = MODELS[api]
    server.play(thinking("0.txt", "1.txt", "2.txt"))
    turn_and_kill(repository, environment, server, model, "Read the files. My cat is called Mio.")
    sent = server.bills[-1]
    assert sent is not None

    server.clock.advance(180)
    server.play(thinking("3.txt"))
    told = turn_and_kill(repository, environment, server, model, "and the last", "again")
    assert (told[0]["type"], told[0]["resumed"], told[0]["warm"]) == ("session", True, sent.input_total)
    bill = server.bills[4]
    assert bill is not None
    assert bill.read == sent.input_total, "its whole prefix"
    assert not [event for event in told if event["type"] == "epoch_started"]
    assert_extends(server.requests[3], server.requests[4])

    before = server.bills[-1]
    assert before is not None
    server.clock.advance(3 * 3600)
    server.play(thinking())
    told = turn_and_kill(repository, environment, server, model, "good afternoon", "again")
    assert told[0]["warm"] is None
    (epoch,) = [event for event in told if event["type"] == "epoch_started"]
    after = server.bills[-1]
    assert after is not None
    assert epoch["reason"] == "cold"
    assert epoch["tokens_after"] < epoch["tokens_before"] * 0.7
    assert after.input_total < before.input_total * 0.7, "smaller than the old history"
    assert float(epoch["anew_usd"]) < float(epoch["as_is_usd"])
    assert "My cat is called Mio." in server.requests[-1].raw.decode()
    assert all(bill is not None for bill in server.bills), "no request is refused, though reasoning is bound"


def test_the_screen_says_what_an_epoch_saves() -> None:
    shown = StringIO()
    screen = OneShotText(StringIO(), Console(file=shown, width=200))
    screen(events.EpochStarted(1, "cold", 23_000, 9_000, Decimal("0.0812"), Decimal("0.0312")))
    assert "23,000 tokens became 9,000" in shown.getvalue()
    assert "$0.0500 less" in shown.getvalue()
    screen(events.EpochStarted(2, "cold", 23_000, 9_000, None, None))
    assert "less" not in shown.getvalue().splitlines()[-1]
