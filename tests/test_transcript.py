"""What the chat writes, and what its live region shows."""

import json
import re
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from agent import events
from agent.chat.transcript import Transcript
from agent.events import TurnEnd
from agent.screens.diff import show_diff
from backends.base import Usage
from context.audit import Verdict
from context.forecast import Cause
from tests.snapshot_files import check_snapshot

MODEL = "anthropic/claude-sonnet-5"
OPENED = events.SessionOpened("k7", MODEL, "ask", "/repo", resumed=False, context=200_000)
USAGE = Usage(fresh=100, cache_read=9_000, cache_write=900, cache_write_long=0, output=340, reasoning=120)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """A terminal above whose live region the transcript writes. `now`: seconds."""

    def __init__(self, width: int = 80, colours: str | None = None) -> None:
        self.width = width
        self.now = 0.0
        self.out = StringIO()
        self._console = Console(
            file=self.out,
            width=width,
            force_terminal=True,
            color_system=colours,
            highlight=False,  # type: ignore[arg-type]
        )
        self.transcript = Transcript(self._write, colour=colours is not None, now=lambda: self.now)

    def _write(self, what: RenderableType) -> None:
        self._console.print(what)

    def show(self, *happened: events.Event) -> "Screen":
        for event in happened:
            self.transcript(event)
        return self

    @property
    def written(self) -> str:
        return self.out.getvalue()

    def live(self, height: int = 12) -> str:
        return self.transcript.live(self.width, height)


def text(said: str) -> events.TextDelta:
    return events.TextDelta(1, said)


def call_started(call: int = 1) -> events.CallStarted:
    return events.CallStarted(call, 10_000, Usage(), None)


def call_finished(verdict: Verdict | None = None) -> events.CallFinished:
    return events.CallFinished(1, USAGE, Decimal("0.0123"), 0.8, 4.0, 90.0, verdict, Decimal("0.02"), 9_900, 400.0)


def turn_finished(end: TurnEnd = TurnEnd.DONE, message: str | None = None) -> events.TurnFinished:
    return events.TurnFinished(end, "", message, 1, Decimal("0.0123"), "k7")


def shell(summary: str = "run pytest -q") -> events.ToolStarted:
    return events.ToolStarted("t1", "shell", '{"command":"pytest -q"}', summary)


REPLY = """\
# What I found

The test fails because `parse` drops the last line. 中文也可以 🎉

1. Read `parser.py`
2. Change the loop:

```python
def parse(text):
    \"\"\"All lines.\"\"\"
    return [line for line in text.split("\\n")]
```

| file | lines |
|------|------:|
| parser.py | 12 |

> Done soon."""
EDIT = json.dumps(
    {"path": "parser.py", "old": "for line in lines[:-1]:\n    keep(line)", "new": "for line in lines:\n    keep(line)"}
)


def whole_turn(screen: Screen) -> Screen:
    screen.show(OPENED)
    screen.transcript.write_command("Why does the test fail?\nFix it.")
    screen.show(call_started(), events.ThinkingDelta(1, "The loop stops one line early."))
    screen.now += 12
    for start in range(0, len(REPLY), 7):
        screen.show(text(REPLY[start : start + 7]))
    screen.show(events.ToolWriting(1, "edit", 1_234), call_finished())
    screen.show(
        events.ToolStarted("t0", "edit", EDIT, "edit parser.py"),
        events.ToolFinished(
            "t0", "edit", "parser.py: 1 replacement at line 12", "parser.py: 1 replacement at line 12", False
        ),
        shell(),
        events.ToolOutputChunk("t1", "collected 40 items\n"),
    )
    output = "\n".join(f"test_{number} PASSED" for number in range(40))
    return screen.show(
        events.ToolFinished("t1", "shell", output, "exit 0, 40 lines", False, "/data/output/shell-1.txt"),
        call_started(2),
        text("All tests pass now."),
        call_finished(Verdict(Cause.EXPIRED, True, 48_000)),
        turn_finished(),
    )


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("colours", [None, "standard"])
def test_a_turn_looks_like_its_snapshot(width: int, colours: str | None) -> None:
    screen = whole_turn(Screen(width, colours))
    check_snapshot(f"chat-turn-{width}{'-colours' if colours else ''}", screen.written)
    assert all(cell_len(ANSI.sub("", line)) <= width for line in screen.written.split("\n"))


def test_without_colours_there_is_no_escape_sequence() -> None:
    screen = whole_turn(Screen())
    assert "\x1b" not in screen.written
    screen.show(call_started(), text("**bold** and `code`"))
    assert screen.live() == "\nbold and code"


def test_what_was_written_is_not_in_the_live_region() -> None:
    """No flicker: each word is in one of the two, and every word that came is in one of them."""
    screen = Screen().show(call_started())
    words = [f"word{number}" for number in range(200)]
    for number, word in enumerate(words):
        screen.show(text(word + ("\n\n" if number % 7 == 6 else " ")))
        written, live = screen.written.split(), screen.live(40).split()
        assert not set(written) & set(live)
        assert written + live == words[: number + 1]


@given(
    st.lists(
        st.sampled_from(["- a\n", "\n", "text ", "```py\n", "x = 1\n", "```\n", "# h\n", "| a |\n", "|---|\n"]),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_live_region_keeps_its_height_and_width(parts: list[str]) -> None:
    screen = Screen(30, "standard").show(call_started())
    for part in parts:
        before = screen.written
        screen.show(text(part))
        lines = screen.live(5).split("\n")
        assert len(lines) <= 5
        assert all(cell_len(ANSI.sub("", line)) <= 30 for line in lines)
        assert screen.written.startswith(before)
    assert screen.live(0) == ""


def test_a_long_code_block_is_written_while_it_streams() -> None:
    screen = Screen().show(call_started(), text("```python\n"))
    for number in range(2_000):
        screen.show(text(f"x{number} = {number}\n"))
    assert "x1900 = 1900" in screen.written
    screen.show(text("```\n"), call_finished())
    lines = screen.written.split("\n")
    code = [line for line in lines if line.startswith("x")]
    assert code == [f"x{number} = {number}" for number in range(2_000)]
    assert lines.index("x1999 = 1999") - lines.index("x0 = 0") == 1_999


def test_empty_lines_of_code_stay() -> None:
    code = "".join(f"\n\na{number} = 1\n" for number in range(20))
    screen = Screen().show(call_started(), text(f"```python\n{code}```\n"), call_finished())
    assert code.strip("\n") in screen.written


def test_thinking_is_one_line_and_can_be_asked_for() -> None:
    screen = Screen().show(
        call_started(), events.ThinkingDelta(1, "First this.\n"), events.ThinkingDelta(1, "Then that.")
    )
    screen.now = 12.4
    assert screen.live() == "thinking, 12 s\n  First this.\n  Then that."
    screen.show(call_finished())
    assert "thought for 12 s, 120 tokens" in screen.written
    assert "First" not in screen.written
    assert screen.transcript.thinking() == "First this.\nThen that."
    screen.transcript.write_command("go on")
    assert screen.transcript.thinking() == ""


def test_thinking_whose_bill_is_not_known_yet_says_about() -> None:
    screen = Screen().show(call_started(), events.ThinkingDelta(1, "Two words"), text("So."))
    assert "thought for 0 s, about 2 tokens" in screen.written


def test_a_running_command_shows_the_end_of_its_output() -> None:
    screen = Screen().show(shell(), *(events.ToolOutputChunk("t1", f"line {number}\n") for number in range(50)))
    assert screen.live(4) == "› run pytest -q\n  │ line 47\n  │ line 48\n  │ line 49"
    assert screen.written == ""


def test_a_progress_bar_of_a_command_leaves_its_last_state() -> None:
    screen = Screen().show(shell(), events.ToolOutputChunk("t1", "10%\r50%\r100%\nok\n"))
    assert screen.live() == "› run pytest -q\n  │ 100%\n  │ ok"


def test_an_interrupted_turn_keeps_its_text_and_says_what_was_stopped() -> None:
    screen = Screen().show(call_started(), text("Half a sen"), shell(), turn_finished(TurnEnd.INTERRUPTED))
    assert "Half a sen" in screen.written
    assert "› run pytest -q  interrupted" in screen.written
    assert screen.live() == ""


def test_an_equal_reply_made_again_is_written_once() -> None:
    """Field report 127: what was streamed before the break is repeated by the new call."""
    again = events.ReplyRestarted(1, "The connection was lost.", 1.0)
    screen = Screen().show(call_started(), text("One.\n\nTwo and"), again)
    assert "The connection was lost. Trying again in 1 s (2 of 8)." in screen.written
    assert "Two and" in screen.live()
    screen.show(text("One.\n\nTwo and three.\n\n"), call_finished())
    assert screen.written.count("One.") == 1
    assert screen.written.count("Two and three.") == 1


def test_another_reply_after_a_break_begins_anew() -> None:
    again = events.ReplyRestarted(1, "The connection was lost.", 1.0)
    screen = Screen().show(call_started(), text("One.\n\nTwo and"), again, text("Another."), call_finished())
    assert "Two and" not in screen.written
    assert "The reply begins anew.\n\nAnother." in screen.written


def test_prefill_tells_how_long_it_takes() -> None:
    screen = Screen().show(call_started(), events.PrefillProgress(1, 1_000, 9_000, 1_000))
    screen.now = 4.0
    screen.show(events.PrefillProgress(1, 3_000, 9_000, 1_000))
    assert screen.live() == "reading the prompt: 2,000 of 8,000 tokens, 1,000 reused, 12 s left"


def test_a_call_that_is_written_shows_its_length() -> None:
    assert Screen().show(call_started(), events.ToolWriting(1, "edit", 1_234)).live() == (
        "writing a call of edit, 1,234 characters"
    )


EVIL = "a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202e\x08\ud800"


@pytest.mark.parametrize("colours", [None, "standard"])
def test_nothing_that_others_write_commands_the_terminal(colours: str | None) -> None:
    screen = Screen(80, colours)
    screen.show(call_started(), events.ThinkingDelta(1, EVIL), text(f"{EVIL}\n\n```\n{EVIL}\n```\n\n{EVIL}"))
    live = screen.live()
    screen.show(
        events.ToolWriting(1, EVIL, 1),
        call_finished(),
        events.ToolStarted("t1", "shell", EVIL, EVIL),
        events.ToolOutputChunk("t1", EVIL),
    )
    live += screen.live()
    screen.show(events.ToolFinished("t1", "shell", EVIL, EVIL, True, EVIL), events.Notice(EVIL))
    screen.show(events.ReplyRestarted(1, EVIL, 1.0), turn_finished(TurnEnd.FAILED, EVIL))
    screen.transcript.write_command(EVIL)
    screen._write(show_diff(f"+{EVIL}"))
    seen = ANSI.sub("", screen.written + live)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", seen)


def test_pings_of_a_pause_are_told_when_the_person_is_back() -> None:
    ping = events.CacheRenewed("idle", "done", 48_000, Decimal("0.0048"), 900.0)
    screen = Screen().show(ping, ping)
    assert screen.written == ""
    screen.transcript.write_command("back")
    assert screen.written.startswith("cache kept warm while you were away: 2 pings, $0.0096\n\n❯ back")


def test_an_unknown_price_of_one_ping_makes_the_sum_unknown() -> None:
    screen = Screen().show(events.CacheRenewed("idle", "done", 48_000, None, 900.0))
    screen.transcript.write_command("back")
    assert "1 ping, unknown price" in screen.written


def test_a_diff_that_a_question_has_shown_is_not_shown_again() -> None:
    done = events.ToolFinished("t0", "edit", "done", "done", False)
    screen = Screen().show(events.ToolStarted("t0", "edit", EDIT, "edit parser.py"))
    screen.transcript.diff_shown()
    assert "-for line" not in screen.show(done).written
    assert "-for line" in Screen().show(events.ToolStarted("t0", "edit", EDIT, "edit parser.py"), done).written


def test_a_long_diff_is_cut_and_says_so() -> None:
    screen = Screen(40, "standard")
    screen._write(show_diff("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n 1\n 2\n", 6))
    check_snapshot("chat-diff-40-colours", screen.written)


def test_snapshots_hold_no_place_of_this_machine() -> None:
    for file in (Path(__file__).parent / "snapshots").glob("chat-*.txt"):
        assert str(Path.home()) not in file.read_text(encoding="utf-8")
