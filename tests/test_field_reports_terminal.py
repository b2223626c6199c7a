"""Field reports on the terminal (docs/field-reports.md), with the chat's input on a pseudo-terminal."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pty_screen import Screen

DRIVER = Path(__file__).with_name("input_driver.py")
TWENTY = "\n".join(f"第{number}行" for number in range(20))
MARK = len("> ")
Start = Callable[..., Screen]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """The input, ready for what is typed."""
    screens: list[Screen] = []

    def start(**size: int) -> Screen:
        command = [sys.executable, str(DRIVER), str(tmp_path / "history.jsonl")]
        screen = Screen(command, env={"HOME": str(tmp_path), "LANG": "C.UTF-8"}, cwd=tmp_path, **size)
        screens.append(screen)
        return screen.wait_for("ready").wait_for(">")

    yield start
    for screen in screens:
        screen.close()


def marked(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def test_report_157_the_cursor_stands_behind_wide_characters(start: Start) -> None:
    screen = start()
    screen.send("你好")
    screen.wait_until(lambda: screen.cursor[1] == MARK + 4, "the cursor behind 你好")
    screen.send("\x1b[D")
    screen.wait_until(lambda: screen.cursor[1] == MARK + 2, "the cursor behind 你")
    screen.send("👍")
    screen.wait_until(lambda: screen.cursor[1] == MARK + 4, "the cursor behind 👍")
    assert screen.display[screen.cursor[0]] == "> 你👍好"


def test_report_157_a_wide_character_that_does_not_fit_goes_to_the_next_row(start: Start) -> None:
    screen = start(columns=21)
    screen.send("好" * 10)
    screen.wait_until(lambda: screen.cursor == (2, MARK + 2), "the tenth character on the second row")
    assert screen.display[1:3] == ["> " + "好" * 9, "  好"]


def test_report_158_a_paste_behind_wide_characters_is_sent_whole(start: Start) -> None:
    screen = start(columns=200)
    screen.send("中文")
    screen.send(marked(TWENTY))
    screen.wait_for("> 中文[pasted #1: 20 lines]")
    assert screen.cursor[1] == MARK + len("中文[pasted #1: 20 lines]") + 2
    screen.send("后")
    screen.wait_for("20 lines]后")
    screen.send("\r")
    text = f"中文{TWENTY}后"
    screen.wait_for(f"sent {len(text)}: {text!r}")


@pytest.mark.parametrize("key", ["\x1b", "\x1b[27u"], ids=["Esc", "kitty"])
def test_report_160_escape_arrives(start: Start, key: str) -> None:
    screen = start()
    screen.send(key)
    screen.wait_for("escaped")


@pytest.mark.parametrize("key", ["\x03", "\x1b[99;5u", "\x1b[27;5;99~"], ids=["byte", "kitty", "xterm"])
def test_report_160_ctrl_c_arrives_in_each_form(start: Start, key: str) -> None:
    screen = start()
    screen.send("未完")
    screen.wait_for("> 未完")
    screen.send(key)
    screen.wait_for("interrupted").wait_for("> 未完")


@pytest.mark.parametrize("paste", [marked("你好，世界"), "你好，世界"], ids=["marked", "unmarked"])
def test_report_162_characters_cut_between_two_reads(start: Start, paste: str) -> None:
    screen = start()
    data = paste.encode()
    for byte in data:
        screen.send(bytes([byte]))
    screen.wait_for("> 你好，世界")
    screen.send("\r")
    screen.wait_for("sent 5: '你好，世界'")


def test_report_163_ctrl_c_in_a_paste_that_never_ends_leaves_the_keyboard_alive(start: Start) -> None:
    screen = start()
    screen.send("\x1b[200~half of a paste\r")
    screen.send("\x03")
    screen.wait_for("interrupted").wait_for("> half of a paste")
    screen.send("x")
    screen.wait_for("  x")
    screen.send("\r")
    screen.wait_for("sent 17: 'half of a paste\\nx'")
    screen.send("typed\r")
    screen.wait_for("sent 5: 'typed'")
    screen.send("\x04")
    assert screen.wait_end() == 0


def test_report_163_what_comes_behind_ctrl_c_of_the_paste_is_not_sent_line_by_line(start: Start) -> None:
    screen = start()
    screen.send("\x1b[200~one\r")
    screen.send("\x03")
    screen.wait_for("interrupted")
    screen.send("two\r")
    screen.wait_for("  two")
    screen.send("three\r\x1b[201~")
    screen.wait_for("  three")
    screen.send("end\r")
    screen.wait_for(f"sent {len('one.two.three.end')}: 'one\\ntwo\\nthree\\nend'")
    assert sum(line.startswith("sent") for line in screen.display) == 1


def test_report_163_the_terminal_is_left_as_it_was_found(start: Start) -> None:
    screen = start()
    assert b"\x1b[?2004h" in screen.output
    screen.send("\x1b[200~half")
    screen.send("\x03")
    screen.wait_for("interrupted")
    screen.send("\x15\x04")  # forget the line, leave
    assert screen.wait_end() == 0
    assert screen.output.rindex(b"\x1b[?2004l") > screen.output.rindex(b"\x1b[?2004h")


@pytest.mark.parametrize(
    "paste",
    [marked("one\rtwo\rthree\r"), marked("one\r\ntwo\r\nthree\r\n"), "one\rtwo\rthree\r", "one\r\ntwo\r\nthree\r\n"],
    ids=["marked", "marked-crlf", "unmarked", "unmarked-crlf"],
)
def test_report_165_pasted_lines_are_one_message(start: Start, paste: str) -> None:
    screen = start()
    screen.send(paste)
    screen.wait_for("three")
    assert screen.display[1:4] == ["> one", "  two", "  three"]
    screen.send("end\r")
    screen.wait_for(f"sent {len('one.two.three.end')}: 'one\\ntwo\\nthree\\nend'")
    assert sum(line.startswith("sent") for line in screen.display) == 1


@pytest.mark.parametrize("wrap", [marked, lambda text: text.replace("\n", "\r")], ids=["marked", "unmarked"])
def test_report_165_a_paste_of_5_000_characters_is_one_message(start: Start, wrap: Callable[[str], str]) -> None:
    text = "\n".join(f"{number:03} " + "x" * 45 for number in range(100)) + "y"
    screen = start()
    screen.send(wrap(text))
    screen.wait_for("> [pasted #1: 100 lines]")
    screen.send("\r")
    screen.wait_for("sent 5000: '000 xxx")
    assert sum(line.startswith("sent") for line in screen.display) == 1
