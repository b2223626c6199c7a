"""docs/chat.md names each command, and its captures show what the text speaks of."""

import re
from pathlib import Path

import pytest

from agent.chat.commands import COMMANDS

DOCS = Path(__file__).parent.parent / "docs"


def test_each_command_is_in_the_documentation_and_no_other() -> None:
    table = (DOCS / "chat.md").read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    named = re.findall(r"`/([a-z]+)", "\n".join(line.split(" | ")[0] for line in table.splitlines()))
    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("capture", "words"),
    [
        ("question.txt", ["+    return price + tax", "Allow to edit price.py?", "[y] once", "warm"]),
        ("question.svg", ["<svg", "Allow", "price", "tax"]),
        ("undo.txt", ["allowed once", "from cache", "put back: price.py"]),
        ("cost.txt", ["hit rate", "total", "Prices:"]),
        ("narrow.txt", ["A shop:", "warm"]),
        ("picker.txt", ["Go on with which session?", "1 of 2"]),
    ],
)
def test_captures_show_the_main_screens(capture: str, words: list[str]) -> None:
    shown = (DOCS / "screens" / capture).read_text(encoding="utf-8")
    assert [word for word in words if word not in shown] == []
    assert "/tmp" not in shown
    if capture.endswith(".svg"):
        assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")
