"""The chat on a pseudo-terminal, as a person sees it: the real program against the emulator."""

import itertools
import json
import os
from pathlib import Path

from chat_screen import CTRL_C, CTRL_D, ESC, Start
from emulator import Call, Emulator, Gate, Recorded, Reply, Say
from emulator.bodies import assert_extends
from scripted import FIX, plan


def turns(server: Emulator) -> list[Recorded]:
    """Requests that hold a command; the others write the head of the prompt ahead."""
    return [request for request in server.requests if request.body.get("max_tokens", 1) > 1]


def last(request: Recorded) -> str:
    return json.dumps(request.body["messages"][-1], ensure_ascii=False)


def test_a_person_can_type_within_half_a_second(chat: Start) -> None:
    """The best of five starts, in seconds of a processor: other tests run on the same ones."""
    seconds = []
    for _ in range(5):
        screen = chat()
        screen.wait_for(">")
        screen.send("typed at once")
        screen.wait_for("> typed at once")
        user, system = Path(f"/proc/{screen.child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        seconds.append((int(user) + int(system)) / os.sysconf("SC_CLK_TCK"))
        screen.close()
        if seconds[-1] < 0.5:
            return
    raise AssertionError(f"{seconds} s until what was typed is seen")


def test_what_is_typed_before_all_is_loaded_is_sent(chat: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(answer="Here I am."))
    screen = chat()
    screen.wait_for(">")
    screen.say("Are you there?")
    screen.wait_for("Here I am.")
    assert "Are you there?" in last(turns(anthropic_server)[0])
    screen.leave()


def test_a_reply_streams_and_each_line_is_written_once(chat: Start, anthropic_server: Emulator) -> None:
    gate = Gate()
    paragraphs = "\n\n".join(f"Paragraph {number} of **many**." for number in range(60))
    anthropic_server.play([Reply.of(Say(paragraphs, pieces=120), gates={100: gate}), Reply.of("Yes.")])
    screen = chat(rows=20).opened()
    screen.say("Tell me")
    screen.wait_for("Paragraph 45 of many.")
    assert "Paragraph 59" not in screen.text
    gate.set()
    screen.wait_for("Paragraph 59 of many.")
    screen.wait_for("1 call ·")
    screen.say("More?")
    screen.wait_for("Yes.")
    for number in range(60):
        assert screen.text.count(f"Paragraph {number} of many.") == 1
    screen.leave()


def test_a_change_is_shown_before_it_is_allowed_and_can_be_taken_back(
    chat: Start, anthropic_server: Emulator, repository: Path
) -> None:
    price = repository / "price.py"
    anthropic_server.play(plan(*FIX))
    screen = chat().opened()
    screen.say("Fix the price")
    screen.wait_for("Allow to edit price.py?")
    assert "-    return price - tax" in screen.text
    assert "+    return price + tax" in screen.text
    assert "price - tax" in price.read_text()
    screen.answer("y", "Allow to edit price.py?")
    screen.answer("y", "python3 check.py?")
    screen.wait_for("check.py passes.")
    assert screen.text.count("+    return price + tax") == 1  # not again with the result
    assert "price + tax" in price.read_text()
    screen.say("/diff")
    screen.wait_until(lambda: screen.text.count("+    return price + tax") == 2, "the turn's diff")
    screen.say("/undo")
    screen.wait_for("put back: price.py")
    assert "price - tax" in price.read_text()
    screen.say("/redo")
    screen.wait_until(lambda: screen.text.count("put back: price.py") == 2, "the redo")
    assert "price + tax" in price.read_text()
    screen.leave()


def test_questions_once_always_no_and_why(chat: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(Call("shell", {"command": "echo one two"}), answer="Done."))
    screen = chat().opened()
    screen.say("first")
    screen.answer("r", "[r] no, and why")
    screen.wait_for("Why not")
    screen.send("\x1b[200~pasted into a question\x1b[201~")
    screen.send("use printf\r")
    screen.wait_for("refused: use printf")
    screen.wait_for("1 call ·" if "1 call ·" in screen.text else "2 calls ·")
    assert "use printf" in last(turns(anthropic_server)[-1])
    assert "pasted into a question" not in last(turns(anthropic_server)[-1])
    screen.say("second")
    screen.answer("n", "[y] once")
    screen.wait_until(lambda: screen.text.count("2 calls ·") == 2, "the end of the turn")
    screen.say("third")
    screen.answer("a", "[a] always")
    screen.wait_until(lambda: screen.text.count("2 calls ·") == 3, "the end of the turn")
    screen.say("fourth")
    screen.wait_until(lambda: screen.text.count("2 calls ·") == 4, "no question any more")
    screen.leave()


def test_control_c_stops_what_runs_and_the_session_goes_on(
    chat: Start, anthropic_server: Emulator, repository: Path
) -> None:
    before, within, call = Gate(), Gate(), Gate()
    anthropic_server.play(
        [
            Reply.of("never", gates={1: before}),
            Reply.of(Say("Half of it\n\nis here and the rest is not", pieces=8), gates={6: within}),
            Reply.of(Call("shell", {"command": "echo never"}, pieces=6), gates={5: call}),
            Reply.of(Call("shell", {"command": "echo begun; sleep 1000"})),
            Reply.of(Call("shell", {"command": "echo asked"})),
            Reply.of("And on it goes."),
        ]
    )
    screen = chat("--mode", "auto", KEEPWARM_SANDBOX="off")
    screen.wait_for("· auto")

    def stop_at(command: str, shown: str, number: int) -> None:
        screen.say(command)
        screen.wait_for(shown)
        screen.send(CTRL_C)
        screen.wait_until(lambda: screen.text.count("Interrupted.") == number, f"interrupt {number}")

    stop_at("one", "waiting for the model", 1)
    stop_at("two", "Half of it", 2)
    stop_at("three", "writing a call of shell", 3)
    stop_at("four", "│ begun", 4)
    screen.say("/mode ask")
    screen.wait_for("The mode is ask now")
    stop_at("five", "echo asked?", 5)
    screen.say("six")
    screen.wait_for("And on it goes.")
    screen.wait_until(lambda: screen.text.count("1 call ·") == 3, "the end of the turn")
    assert "Half of it" in screen.text
    requests = turns(anthropic_server)
    for one, other in itertools.pairwise(requests):
        assert_extends(one, other)
    for gate in (before, within, call):
        gate.set()
    screen.send(CTRL_C)
    screen.wait_for("Ctrl-C once more")
    screen.send(CTRL_C)
    assert screen.wait_end() == 0


def test_what_is_typed_while_the_model_works_waits_and_is_sent(chat: Start, anthropic_server: Emulator) -> None:
    gate, other = Gate(), Gate()
    anthropic_server.play(
        [Reply.of("First answer.", gates={2: gate}), Reply.of("Second answer."), Reply.of("x", gates={1: other})]
    )
    screen = chat().opened()
    screen.say("one")
    screen.wait_for("waiting for the model")
    screen.say("two is queued")
    screen.wait_for("next: two is queued")
    gate.set()
    screen.wait_for("Second answer.")
    assert "two is queued" in last(turns(anthropic_server)[1])
    screen.say("three")
    screen.wait_for("waiting for the model")
    screen.say("this comes back")
    screen.wait_for("next: this comes back")
    screen.send(CTRL_C)
    screen.wait_for("> this comes back")
    other.set()
    assert len(turns(anthropic_server)) == 3


def test_escape_edits_the_last_message(chat: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(answer="An answer."))
    screen = chat().opened()
    screen.say("first message")
    screen.wait_for("1 call ·")
    screen.say("second mesage")
    screen.wait_until(lambda: screen.text.count("1 call ·") == 2, "the second answer")
    screen.send("something else")
    screen.wait_for("> something else")
    screen.send(ESC)
    screen.run_for(0.5)
    assert "> something else" in screen.display
    screen.send("\x15" + ESC)
    screen.wait_for("> second mesage")
    screen.send("\x1b[D" * 3 + "s\r")
    screen.wait_until(lambda: screen.text.count("1 call ·") == 3, "the answer to the edited one")
    body = json.dumps(turns(anthropic_server)[-1].body)
    assert "second message" in body
    assert "second mesage" not in body
    assert_extends(turns(anthropic_server)[0], turns(anthropic_server)[-1])
    screen.leave()
    assert "agent -c goes on with this session" in screen.text


def test_rewind_fork_and_resume(chat: Start, anthropic_server: Emulator, repository: Path) -> None:
    write = Call("shell", {"command": "echo new > made.txt"})
    anthropic_server.play(plan(write, answer="Made."))
    screen = chat("--mode", "auto", KEEPWARM_SANDBOX="off")
    screen.wait_for("· auto")
    screen.wait_for("/help lists the commands")
    screen.say("alpha")
    screen.wait_for("2 calls ·")
    (repository / "made.txt").unlink()
    screen.say("beta")
    screen.wait_until(lambda: screen.text.count("2 calls ·") == 2, "the second turn")
    screen.say("/rewind 2 both")
    screen.wait_for("> beta")
    assert not (repository / "made.txt").exists()
    screen.send("\x15gamma\r")
    screen.wait_until(lambda: screen.text.count("2 calls ·") == 3, "the turn in the copy")
    body = json.dumps(turns(anthropic_server)[-1].body)
    assert "alpha" in body
    assert "beta" not in body
    screen.say("/fork 1")
    screen.wait_for("This session stays as it is: /resume")
    screen.say("delta")
    screen.wait_until(lambda: screen.text.count("2 calls ·") == 4, "the turn in the fork")
    body = json.dumps(turns(anthropic_server)[-1].body)
    assert "alpha" in body
    assert "gamma" not in body
    screen.say("/resume")
    screen.wait_for("Go on with which session?")
    screen.send("alpha")
    screen.wait_for("of 2")
    screen.send(ESC)
    screen.wait_gone("Go on with which session?")
    screen.leave()
    screen = chat("-c", "--mode", "plan")
    screen.wait_for("continues")
    screen.wait_for("> delta")
    screen.wait_for("Made.")
    assert "/help lists the commands" not in screen.text
    screen.send(CTRL_D)
    assert screen.wait_end() == 0
    screen = chat("--resume", "--mode", "plan")
    screen.wait_for("Go on with which session?")
    screen.send("\r")
    screen.wait_for("continues")
    screen.leave()


def test_who_does_not_want_to_wait_for_a_model_leaves(chat: Start) -> None:
    screen = chat("-m", "local/qwen2.5-coder-1.5b")
    screen.wait_for("[y] yes")
    screen.send(CTRL_C)
    screen.wait_for("Ctrl-C once more")
    screen.send(CTRL_C)
    assert screen.wait_end() == 0
