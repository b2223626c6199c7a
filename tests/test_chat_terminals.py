"""The chat on other terminals: pastes, narrow and resized ones, without colours, wide characters."""

import json
import re

from chat_screen import Start
from emulator import Emulator
from scripted import plan

COLOUR = re.compile(rb"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m")


def test_a_paste_of_thousands_of_characters_is_one_message(chat: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(answer="All of it came."))
    text = "\n".join(f"{number} 中文 and 👍 with more words" for number in range(200))
    assert len(text) > 5_000
    screen = chat().opened()
    screen.send(f"\x1b[200~{text}\x1b[201~")
    screen.wait_for("200 lines")
    screen.send("\r")
    screen.wait_for("All of it came.")
    sent = [request for request in anthropic_server.requests if request.body.get("max_tokens", 1) > 1]
    assert len(sent) == 1
    assert text in "".join(part["text"] for part in sent[0].body["messages"][-1]["content"])
    screen.leave()


def test_a_narrow_terminal_that_is_resized_and_has_no_colours(chat: Start, anthropic_server: Emulator) -> None:
    anthropic_server.play(plan(answer="价格是**十二**元 👍, and that is all there is to say about it."))
    screen = chat(columns=40, rows=24, NO_COLOR="1")
    screen.wait_for("· ask")
    screen.send("你好")
    screen.wait_for(re.compile("> 你 ?好"))  # pyte keeps the second column of a character as a blank
    assert screen.cursor[1] == 6, "two columns for the mark and two for each character"
    screen.send(" 多少钱?\r")
    screen.wait_for("say about it.")
    screen.wait_for("1 call")
    assert all(len(line) <= 40 for line in screen.display)
    screen.resize(30, 100)
    screen.wait_for("claude-sonnet-5-5 · ask")
    screen.send("wide again\r")
    screen.wait_until(lambda: screen.text.count("1 call") == 2, "the second answer")
    screen.resize(20, 60)
    screen.wait_for("· ask")
    assert "你好 多少钱?" in json.dumps(anthropic_server.requests[-1].body, ensure_ascii=False)
    assert COLOUR.search(screen.output) is None
    screen.leave()
