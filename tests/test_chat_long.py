"""Hundreds of turns in one chat, with forks, rewinds, compactions, undo: every miss has a reason, nothing grows.

`CHAT_TURNS=300 python -m pytest -s tests/test_chat_long.py` prints the figures.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from emulator import Call, Emulator, Recorded, Reply

from agent.config import Folders
from agent.ledger import Ledger
from context.forecast import Cause

TURNS: Final = int(os.environ.get("CHAT_TURNS", "150"))  # 300 take a minute
PHASE: Final = 50  # turns between two compactions, which make the prompt short again
DRIVER: Final = Path(__file__).with_name("chat_long_driver.py")


def model(request: Recorded) -> Reply:
    """Runs a command, reads a file, writes now and then, and says something of ten lines."""
    asked = json.dumps(request.body["messages"][-1])
    if "about to be replaced by a summary" in asked:
        return Reply.of("Files were looked at and notes written.", output_tokens=200)
    assert request.reader is not None
    taken = request.reader.steps_taken(request.body)
    number = int(re.findall(r"turn (\d+):", json.dumps(request.body["messages"]))[-1])
    calls = [
        Call("shell", {"command": f"echo {number} >> log.txt; seq {number} {number + 40}"}),
        Call("read", {"path": f"data/{number % 20}.txt"}),
    ]
    if number % 3 == 0:
        calls.append(Call("write", {"path": f"notes/{number}.md", "content": f"Turn {number}.\n"}))
    if taken < len(calls):
        return Reply.of(calls[taken])
    return Reply.of(f"Turn {number}: " + "what is in the file was seen before. " * 10)


def test_hundreds_of_turns(
    anthropic_server: Emulator, repository: Path, environment: dict[str, str], home: Path
) -> None:
    (repository / "data").mkdir()
    for number in range(20):
        (repository / "data" / f"{number}.txt").write_text("".join(f"{number} line {line}\n" for line in range(60)))
    anthropic_server.play(model)
    result = subprocess.run(
        [sys.executable, str(DRIVER), str(TURNS)],
        cwd=repository,
        env={**environment, **anthropic_server.env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    measured = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(measured) == TURNS

    with Ledger.open(Folders.find({"KEEPWARM_HOME": str(home)}).ledger) as ledger:
        sessions = ledger.sessions()
        calls = [call for row in sessions for call in ledger.calls(row.id)]
    causes = Counter(call.verdict.cause if call.verdict else None for call in calls)
    print(len(sessions), "sessions,", len(calls), "calls,", dict(causes))
    assert None not in causes, "every call has a verdict"
    assert not {Cause.UNKNOWN} & set(causes), "every miss has a reason"

    early = statistics.median(turn["cpu"] for turn in measured[PHASE : 2 * PHASE])
    late = statistics.median(turn["cpu"] for turn in measured[-PHASE:])
    grown = (measured[-1]["rss"] - measured[PHASE]["rss"]) / 1e6
    print(f"cpu of a turn {early:.3f} s, then {late:.3f} s; memory + {grown:.1f} MB in {TURNS - PHASE} turns")
    assert late < 1.5 * early
    assert grown < 40
    assert measured[-1]["files"] <= measured[PHASE]["files"] + 5
    assert measured[-1]["tasks"] <= measured[PHASE]["tasks"] + 2
