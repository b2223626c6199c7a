"""The chat's input alone, as a program: shows what it is told above the line that is typed.

Usage: input_driver.py HISTORY_FILE [PATH …]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from prompt_toolkit.application import Application
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from agent.chat.complete import ChatCompleter
from agent.chat.history import InputHistory
from agent.chat.input import ChatInput
from agent.redact import Redactor


def main(history: str, *paths: str) -> None:
    told: list[str] = ["ready"]
    chat_input = ChatInput(
        history=InputHistory(Path(history), Path.cwd(), Redactor({})),
        completer=ChatCompleter(
            lambda: {"help": "what there is", "model": "another one"}, lambda *_: (), lambda: paths
        ),
        on_submit=lambda text: told.append(f"sent {len(text)}: {shown(text)}"),
        on_interrupt=lambda: told.append("interrupted"),
        on_escape=lambda: told.append("escaped"),
        on_leave=lambda: app.exit(),
    )
    log = Window(FormattedTextControl(lambda: "\n".join(told)), dont_extend_height=True, wrap_lines=True)
    app: Application[None] = Application(
        layout=Layout(HSplit([log, chat_input.window]), focused_element=chat_input.buffer),
        key_bindings=chat_input.key_bindings,
    )
    chat_input.attach(app)
    app.run()


def shown(text: str) -> str:
    written = repr(text)
    return written if len(written) <= 200 else f"{written[:90]} … {written[-90:]}"


if __name__ == "__main__":
    main(*sys.argv[1:])
