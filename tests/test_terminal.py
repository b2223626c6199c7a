"""On a real pseudo-terminal: permission questions, Ctrl-C, and a terminal that is left as it was found."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from conftest import ROOT, RunAgent
from emulator import Emulator, Gate
from emulator.bodies import assert_extends
from emulator.script import Call, Reply
from scripted import FIX, plan

Start = Callable[..., "pexpect.spawn[str]"]


def heed_interrupts() -> None:
    """A test run in the background of a shell ignores Ctrl-C, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(repository: Path, environment: dict[str, str], anthropic_server: Emulator) -> Iterator[Start]:
    children = []

    def spawn(*arguments: str, **env: str) -> "pexpect.spawn[str]":
        child = pexpect.spawn(
            sys.executable,
            [str(ROOT / "keepwarm.py"), "run", *arguments],
            cwd=str(repository),
            env={**environment, **anthropic_server.env, "TERM": "xterm", **env},
            encoding="utf-8",
            timeout=60,
            dimensions=(40, 100),
            preexec_fn=heed_interrupts,
        )
        children.append(child)
        return child

    yield spawn
    for child in children:
        child.close(force=True)


def code(child: "pexpect.spawn[str]") -> int | None:
    child.expect(pexpect.EOF)
    child.wait()
    return child.exitstatus


def test_what_the_person_allows_is_done(start: Start, anthropic_server: Emulator, repository: Path) -> None:
    anthropic_server.play(plan(*FIX))
    child = start("Fix the price")
    child.expect("price - tax")  # what goes
    child.expect("price \\+ tax")  # what comes in its place, before it is written
    child.expect("edit price.py.*why: ")
    assert "price - tax" in (repository / "price.py").read_text()
    child.sendline("y")
    child.expect("run python3 check.py.*why: ")
    child.sendline("no use make instead")
    child.expect("Fixed price.py:2")
    assert code(child) == 0
    assert "price + tax" in (repository / "price.py").read_text()
    refused = anthropic_server.bodies[-1]["messages"][-1]["content"][0]
    assert refused["content"] == "The user refused: use make instead"


def test_always_is_asked_once(start: Start, anthropic_server: Emulator, repository: Path) -> None:
    append = Call("shell", {"command": "echo x >> log"})
    anthropic_server.play(plan(append, append))
    child = start("Log")
    child.expect("why: ")
    child.sendline("a")
    assert code(child) == 0
    assert (repository / "log").read_text() == "x\nx\n"


def test_a_question_shows_every_line_and_is_not_answered_by_what_was_typed_before(
    start: Start, anthropic_server: Emulator, repository: Path
) -> None:
    shown = Gate()
    anthropic_server.play(
        [Reply.of(Call("shell", {"command": "echo a  # harmless\ntouch planted"}), gates={2: shown}), Reply.of("Done.")]
    )
    child = start("Go")
    child.expect("mode ask")
    child.send("y\ny\n")
    shown.set()
    child.expect(r"echo a  # harmless\\ntouch planted.*why: ")
    with pytest.raises(pexpect.TIMEOUT):
        child.expect("Done", timeout=1)
    child.sendline("n")
    assert code(child) == 0
    assert not (repository / "planted").exists()


@pytest.mark.parametrize("key", ["\x04", "\n", "maybe\n"])
def test_anything_but_a_yes_is_a_no(start: Start, anthropic_server: Emulator, repository: Path, key: str) -> None:
    anthropic_server.play(plan(FIX[1], answer="I did not."))
    child = start("Fix the price")
    child.expect("why: ")
    child.send(key)
    assert code(child) == 0
    assert "price - tax" in (repository / "price.py").read_text()


def test_ctrl_c_at_a_question_keeps_the_session(
    start: Start, anthropic_server: Emulator, run_agent: RunAgent, repository: Path
) -> None:
    anthropic_server.play(plan(*FIX))
    child = start("Fix the price")
    child.expect("why: ")
    child.sendintr()
    assert code(child) == 130
    again = run_agent("run", "-c", "--mode", "auto", "Go on", env=anthropic_server.env)
    assert again.returncode == 0, again.stderr
    assert_extends(anthropic_server.requests[1], anthropic_server.requests[2])
    assert "price + tax" in (repository / "price.py").read_text()


def test_ctrl_c_in_a_command_ends_it_and_all_its_children(
    start: Start, anthropic_server: Emulator, repository: Path
) -> None:
    anthropic_server.play(plan(Call("shell", {"command": "echo begun; (sleep 3; echo survived > late) & sleep 60"})))
    child = start("--mode", "auto", "Wait")
    child.expect("run echo begun")
    child.expect("begun")
    child.sendintr()
    assert code(child) == 130
    assert not (repository / "late").exists()


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"LC_ALL": "C"}, {"NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}])
def test_poor_terminals(start: Start, anthropic_server: Emulator, env: dict[str, str]) -> None:
    anthropic_server.play([Reply.of("Done: 汉字 🙂")])
    child = start("说 hello", **env)
    child.expect("Done: ")
    child.expect("1 call")
    assert code(child) == 0


def test_a_narrow_terminal(start: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(FIX[0]))
    child = start("Look", COLUMNS="20")
    child.expect("Fixed price.py:2")
    assert code(child) == 0
