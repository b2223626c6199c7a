"""Makes the captures beside this file: the real chat on a pseudo-terminal, against the emulator of the tests.

`python docs/screens/make.py`, with `pip install '.[dev]'`. Prices, dates and sessions differ from run to run.
"""

import os
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from chat_screen import ChatScreen
from emulator import Emulator, Recorded, Reply
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text
from scripted import FIX, plan

COLOURS = {"brown": "yellow", "brightblack": "bright_black", "default": None}
# As rich has it, without a font from the network and without the frame of a window.
SVG = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#292929" width="{terminal_width}" height="{terminal_height}" rx="6"/>
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</svg>
"""
ANSWER = "`total` subtracted the tax. It adds it now, and `check.py` passes."


def model(request: Recorded) -> Reply:
    if "What is this" in str(request.body["messages"][-1]):
        return Reply.of("A **shop**: `price.py` adds up a price and its tax, `check.py` checks it.")
    return plan(*FIX, answer=ANSWER)(request)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop, home = Path(folder) / "shop", Path(folder) / "home"
        shop.mkdir()
        home.mkdir()
        (shop / "price.py").write_text("def total(price, tax):\n    return price - tax\n")
        (shop / "check.py").write_text("from price import total\n\nassert total(10, 2) == 12\n")
        (shop / ".gitignore").write_text("__pycache__/\n")
        subprocess.run(["git", "init", "-q"], cwd=shop, check=True)
        with Emulator(model) as server:
            env = {"PATH": os.environ["PATH"], "HOME": str(home), "KEEPWARM_HOME": str(home), **server.env}
            capture(shop, env)


def capture(shop: Path, env: dict[str, str]) -> None:
    screen = start(shop, env, columns=100, rows=26)
    screen.say("total() is wrong: find out why, and mend it")
    screen.wait_for("Allow to edit price.py?")
    keep("question", screen)
    draw("question", screen)
    screen.answer("y", "Allow to edit price.py?")
    screen.answer("y", "python3 check.py?")
    screen.wait_for("passes.")
    screen.wait_for("4 calls")
    screen.say("/undo")
    screen.wait_for("put back: price.py")
    settle(screen)
    keep("undo", screen)
    screen.say("/cost")
    screen.wait_for("hit rate")
    settle(screen)
    keep("cost", screen)
    screen.leave()

    screen = start(shop, env, columns=40, rows=16)
    screen.say("What is this?")
    screen.wait_for("1 call")
    settle(screen)
    keep("narrow", screen)
    screen.leave()

    screen = start(shop, env, "--resume", columns=100, rows=14)
    screen.wait_for("Go on with which session?")
    screen.send("wrong")
    screen.wait_for("1 of 2")
    keep("picker", screen)
    screen.close()


def start(shop: Path, env: dict[str, str], *arguments: str, rows: int, columns: int) -> ChatScreen:
    command = [sys.executable, str(ROOT / "keepwarm.py"), *arguments]
    screen = ChatScreen(command, env=env, cwd=shop, rows=rows, columns=columns)
    screen.wait_for(">")
    return screen


def settle(screen: ChatScreen) -> None:
    """Until the live region is drawn again below what was printed."""
    screen.wait_until(lambda: "· ask" in "\n".join(screen.display).rstrip().splitlines()[-1], "the status line")


def keep(name: str, screen: ChatScreen) -> None:
    text = screen.text.replace(str(screen.child.cwd), "~/shop")
    (HERE / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def draw(name: str, screen: ChatScreen) -> None:
    """The screen as a picture, in its colours."""
    console = Console(record=True, width=screen.columns, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    buffer = screen._screen.buffer
    for row in range(len("\n".join(screen.display).rstrip().splitlines())):
        line = Text()
        for style, cells in groupby((buffer[row][column] for column in range(screen.columns)), look):
            line.append("".join(cell.data for cell in cells), style)
        line.rstrip()
        console.print(line, overflow="crop", no_wrap=True)
    picture = console.export_svg(code_format=SVG, unique_id="chat").replace(str(screen.child.cwd), "~/shop")
    (HERE / f"{name}.svg").write_text(picture, encoding="utf-8")


def look(cell: Char) -> Style:
    colour = COLOURS.get(cell.fg, cell.fg)
    return Style(color=colour, bold=cell.bold)


if __name__ == "__main__":
    main()
