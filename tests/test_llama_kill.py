"""Killed while it writes a KV state, with states that are damaged, foreign or do not fit on the disk: the program, as a
person starts it, then answers what it answers cold. It may say one line about it, and it cleans up.
"""

import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from llama_support import note_trial
from tiny_models import make_model

from backends.llama.tuning import Tuning
from backends.llama.weights import Kind

ROOT = Path(__file__).parent.parent
HOOK = Path(__file__).with_name("write_stopper.py")
SETTINGS = {  # drawn from, a model with random weights comes to an end sooner; exact, it says the same each time
    "KEEPWARM_EXACT": "true",
    "KEEPWARM_MODE": "plan",
    "KEEPWARM_MAX_TURNS": "1",
    "KEEPWARM_TEMPERATURE": "5",
    "KEEPWARM_TOP_K": "0",
    "KEEPWARM_TOP_P": "1",
    "KEEPWARM_MIN_P": "0",
}
SAYING = {"text", "tool_writing", "tool_started", "tool_finished", "finished"}
SAYS = ("type", "name", "characters", "arguments", "text", "end")
NOTHING_FITS = 560_000  # bytes that a file may have: ledger and its log fit, the state of the head (591,974) does not


@dataclass(frozen=True)
class Answer:
    """What one run said and did, how much of its prompt was reused, and its lines for the person."""

    said: list[tuple[object, ...]]
    reused: int
    told: list[str]


@dataclass(frozen=True)
class Program:
    """`agent run` with a tiny model, with a home of its own."""

    home: Path
    model: Path
    repository: Path

    def start(self, env: Mapping[str, str] = {}, before: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        home = {"HOME": str(self.home), "KEEPWARM_HOME": str(self.home), "KEEPWARM_MODEL": f"local:{self.model}"}
        return subprocess.Popen(
            [sys.executable, str(ROOT / "keepwarm.py"), "run", "--json", "Explain"],
            cwd=self.repository,
            env={**kept, **home, **SETTINGS, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )

    def run(self, env: Mapping[str, str] = {}, before: Callable[[], None] | None = None) -> Answer:
        with self.start(env, before) as process:
            output, errors = process.communicate(timeout=120)
        assert process.returncode in (0, 1, 3), errors  # an answer, nonsense that is no reply, or a call of a tool
        events: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
        call = next(event for event in events if event["type"] == "call_finished")
        assert call["fresh"] + call["cache_read"] > 2_000
        assert call["output"]
        said = [tuple(event.get(part) for part in SAYS) for event in events if event["type"] in SAYING]
        told = [str(event["text"]) for event in events if event["type"] == "notice"]
        return Answer([(call["output"],), *said], call["cache_read"], told + errors.splitlines())

    def note_trial(self) -> None:
        """So that all runs are run the same way."""
        note_trial(self.model, self.home / "trials", Tuning(2, 2))

    def states(self) -> list[Path]:
        return sorted(self.home.rglob("*.kv"))

    def unfinished(self) -> list[Path]:
        return list((self.home / "kv").rglob("tmp-*"))


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hook")
    shutil.copy(HOOK, folder / "sitecustomize.py")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Answer]:
    """A run in a new home, which has its states then, and what it said: the cold answer."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "shop").mkdir()
    (folder / "shop" / "AGENTS.md").write_text("".join(f"Rule {number}: keep it short.\n" for number in range(20)))
    model = make_model(Kind.ATTENTION, folder / "tiny.gguf", 8_192)
    program = Program(folder / "home", model, folder / "shop")
    program.home.mkdir()
    program.note_trial()
    answer = program.run()
    assert answer.reused == 0
    assert len(program.states()) >= 2
    return program, answer


@pytest.fixture
def program(first: tuple[Program, Answer], tmp_path: Path) -> Program:
    """With the states of the first run."""
    return replace(first[0], home=Path(shutil.copytree(first[0].home, tmp_path / "home")))


@pytest.fixture
def cold(first: tuple[Program, Answer]) -> Answer:
    return first[1]


@pytest.fixture
def warm(program: Program, cold: Answer) -> Answer:
    """What is said without any mishap."""
    answer = program.run()
    assert answer.said == cold.said
    assert answer.reused > 2_000
    assert answer.told == []
    return answer


def test_a_state_that_was_being_written_when_the_program_was_killed(
    program: Program, hook: dict[str, str], cold: Answer
) -> None:
    for stop, least in ((1, 0), (2, 1_500)):
        shutil.rmtree(program.home / "kv", ignore_errors=True)
        with program.start({**hook, "KEEPWARM_TEST_STOP": str(stop)}) as process:
            ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            left, whole = program.unfinished(), program.states()
            process.send_signal(signal.SIGKILL)
        assert ended is not None
        assert ended.si_code == os.CLD_STOPPED, "it has come to that state"
        assert [path.stat().st_size > 10_000 for path in left] == [True]
        assert len(whole) == stop - 1
        answer = program.run()
        assert answer.said == cold.said
        assert answer.reused >= least
        assert answer.told == []
        assert program.unfinished() == []


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(place: float) -> Callable[[bytes], bytes]:
    """One bit, that far into the file."""

    def flipped(data: bytes) -> bytes:
        at = int(place * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]

    return flipped


DAMAGES = {"cut": cut, "a bit": flip(0.7)}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_states(program: Program, cold: Answer, damage: Callable[[bytes], bytes]) -> None:
    damaged = {path: damage(path.read_bytes()) for path in program.states()}
    for path, data in damaged.items():
        path.write_bytes(data)
    answer = program.run()
    assert (answer.said, answer.reused) == (cold.said, 0)
    assert len(answer.told) <= 1
    first, second, *_ = damaged  # in their order in the prompt, which their names tell
    assert first.read_bytes() != damaged[first], "it was removed, and a good one is there instead"
    answer = program.run()  # finds the second one, now that the first one is good
    assert answer.said == cold.said
    assert answer.reused > 1_500
    assert second.read_bytes() != damaged[second]


def test_a_full_disk(program: Program, cold: Answer) -> None:
    shutil.rmtree(program.home / "kv")
    full = program.run(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (NOTHING_FITS, NOTHING_FITS)))
    assert (full.said, full.reused) == (cold.said, 0)
    (told,) = full.told
    assert "cannot be kept for the next start" in told
    assert program.unfinished() == []
    again = program.run()
    assert (again.said, again.told) == (cold.said, [])
    assert len(program.states()) >= 2


def test_states_of_another_build_of_llama_cpp(
    program: Program, hook: dict[str, str], warm: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = program.states()
    monkeypatch.setattr(platform, "processor", lambda: "another")
    program.note_trial()
    other = program.run({**hook, "KEEPWARM_TEST_PROCESSOR": "another"})
    assert (other.said, other.reused, other.told) == (warm.said, 0, [])
    assert {path.parent for path in program.states()} > {path.parent for path in before}
    assert program.run() == warm
