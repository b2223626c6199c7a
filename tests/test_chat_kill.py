"""A chat that is killed, or whose terminal is closed, goes on where it was: nothing is lost, and nothing runs twice."""

import os
import select
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from chat_screen import Start
from emulator import Call, Emulator, Gate, Reply, Say
from emulator.bodies import assert_extends, content_parts
from scripted import FIX, plan

DRIVER = Path(__file__).with_name("chat_kill_driver.py")
KILLS = int(os.environ.get("CHAT_KILLS", "15"))  # 100 take a minute and a half


def test_kills_at_random_instants(anthropic_server: Emulator, repository: Path, environment: dict[str, str]) -> None:
    effect = Call("shell", {"command": "echo ran >> log"})
    anthropic_server.play(plan(FIX[0], effect, [FIX[0], FIX[0]], effect))
    result = subprocess.run(
        [sys.executable, str(DRIVER), str(KILLS), "20261203"],
        cwd=repository,
        env={**environment, **anthropic_server.env, "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert int(result.stdout) == KILLS

    requests = [request for request in anthropic_server.requests if request.body.get("max_tokens", 1) > 1]
    for earlier, later in pairwise(requests):
        assert_extends(earlier, later)
    messages = requests[-1].body["messages"]
    asked = [p for m in messages if m["role"] == "assistant" for p in content_parts(m) if p["type"] == "tool_use"]
    answered = [p for m in messages if m["role"] == "user" for p in content_parts(m) if p["type"] == "tool_result"]
    assert [part["id"] for part in asked] == [part["tool_use_id"] for part in answered]
    effects = sum(part["name"] == "shell" for part in asked)
    assert len((repository / "log").read_text().splitlines()) <= effects


@pytest.mark.parametrize("state", ["idle", "streaming", "tool", "question"])
def test_a_terminal_that_is_closed_ends_the_chat_and_keeps_the_session(
    chat: Start, anthropic_server: Emulator, repository: Path, state: str
) -> None:
    held = Gate()
    first = {
        "idle": Reply.of("At rest."),
        "streaming": Reply.of(Say("It streams and goes on", pieces=8), gates={6: held}),
        "tool": Reply.of(Call("shell", {"command": "echo $$ > pid; echo it runs; sleep 1000"})),
        "question": Reply.of(Call("shell", {"command": "echo asked"})),
    }[state]
    shown = {"idle": "1 call ·", "streaming": "It str", "tool": "│ it runs", "question": "[y] once"}[state]
    anthropic_server.play([first, Reply.of("Back again.")])
    screen = chat("--mode", "ask" if state == "question" else "auto", KEEPWARM_SANDBOX="off")
    screen.wait_for(">")
    screen.say("begin")
    screen.wait_for(shown)
    screen.hang_up()
    ended_within(screen.child.pid, 10)
    held.set()
    if state == "tool":
        assert not Path(f"/proc/{(repository / 'pid').read_text().strip()}").exists()

    screen = chat("-c", "--mode", "plan")
    screen.wait_for("continues")
    screen.say("go on")
    screen.wait_for("Back again.")
    screen.leave()
    earlier, later = [request for request in anthropic_server.requests if request.body.get("max_tokens", 1) > 1]
    assert_extends(earlier, later)


def test_a_chat_that_stood_still_goes_on(chat: Start, anthropic_server: Emulator) -> None:
    """As after Ctrl-Z, or when the machine has slept."""
    held = Gate()
    anthropic_server.play([Reply.of(Say("It streams and goes on", pieces=8), gates={6: held})])
    screen = chat().opened()
    screen.say("begin")
    screen.wait_for("It str")
    os.kill(screen.child.pid, signal.SIGSTOP)
    held.set()
    screen.run_for(1.0)
    os.kill(screen.child.pid, signal.SIGCONT)
    screen.wait_for("It streams and goes on")
    screen.wait_for("1 call ·")
    screen.leave()


def ended_within(pid: int, seconds: float) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        assert select.select([descriptor], [], [], seconds)[0], "the program ends with its terminal"
    finally:
        os.close(descriptor)
