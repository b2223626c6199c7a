"""Ctrl-C at random instants of a chat: what was running stops, nothing is lost, and the session goes on."""

import json
import os
import random
from itertools import pairwise
from pathlib import Path

from chat_screen import CTRL_C, ChatScreen, Start
from emulator import Call, Emulator, Recorded, Reply, Say
from emulator.bodies import assert_extends, content_parts
from scripted import FIX, plan

INSTANTS = int(os.environ.get("CHAT_INTERRUPTS", "25"))  # 100 take half a minute
SPAN_S = 0.5  # of a turn, on a machine that is not busy
ENDS = (b"Interrupted", b" out \xc2\xb7", b"Ctrl-C once more")  # what a Ctrl-C comes to: stopped, too late, or idle


def commands(server: Emulator) -> list[Recorded]:
    return [request for request in server.requests if request.body.get("max_tokens", 1) > 1]


def assert_whole(server: Emulator) -> None:
    """Rule R1, and each call has exactly one result, in order."""
    requests = commands(server)
    for earlier, later in pairwise(requests):
        assert_extends(earlier, later)
    messages = requests[-1].body["messages"]
    asked = [p for m in messages if m["role"] == "assistant" for p in content_parts(m) if p["type"] == "tool_use"]
    answered = [p for m in messages if m["role"] == "user" for p in content_parts(m) if p["type"] == "tool_result"]
    assert [part["id"] for part in asked] == [part["tool_use_id"] for part in answered]


def interrupt(screen: ChatScreen, number: int, delay_s: float) -> None:
    """One command, Ctrl-C after a while, and a command that the chat answers when it is idle again."""
    before = [screen.output.count(end) for end in ENDS]
    command = f"go {number}"
    screen.send(f"{command}\r")
    screen.run_for(delay_s)
    screen.send(CTRL_C)
    screen.wait_until(
        lambda: [screen.output.count(end) for end in ENDS] != before or f"> {command}" in screen.display,
        "an end of the turn, or the command given back",
    )
    idle = screen.output.count(b"Leave; the session is kept")
    screen.send("\x15/help quit\r")
    screen.wait_until(lambda: screen.output.count(b"Leave; the session is kept") > idle, "the chat is idle")


def test_interrupts_at_random_instants(chat: Start, anthropic_server: Emulator, repository: Path) -> None:
    text = " ".join(str(number) for number in range(200))

    def model(request: Recorded) -> Reply:
        effect = Call("shell", {"command": f"echo ran-{len(anthropic_server.requests)} >> log; sleep 0.05"})
        return plan(FIX[0], effect, [Say(text, pieces=100), FIX[0]], effect, answer="All done.")(request)

    anthropic_server.play(model)
    chance = random.Random(20261203)
    screen = chat("--mode", "auto", columns=200, KEEPWARM_SANDBOX="off", KEEPWARM_COMPACT="off")
    screen.wait_for("· auto")
    for number in range(INSTANTS):
        interrupt(screen, number, chance.uniform(0, SPAN_S))
    done = screen.output.count(b"All done.")  # of turns that were not interrupted in time
    screen.say("one more")
    screen.wait_until(lambda: screen.output.count(b"All done.") > done, "the end of a whole turn")
    screen.leave()
    assert screen.output.count(b"Interrupted") > INSTANTS / 3, "most fall into a turn"
    assert_whole(anthropic_server)
    ran, known = (repository / "log").read_text().split(), json.dumps(commands(anthropic_server)[-1].body["messages"])
    assert len(set(ran)) == len(ran), "no call runs twice"
    assert not [one for one in ran if f"{one} " not in known], "what has run is told"
