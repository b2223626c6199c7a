"""What /help shows: commands and keys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from agent.chat.commands import Command
    from agent.chat.own_commands import OwnCommand

_KEYS: Final = (
    ("Enter", "send; while the model works: send it after this turn"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "a new line"),
    ("Ctrl-C", "stop the model or the tool; what was said is kept. Twice: leave"),
    ("Esc", "stop; when nothing runs: take the last message back and edit it"),
    ("Up, Down, Ctrl-R", "earlier messages, search in them"),
    ("Ctrl-X Ctrl-E", "write the message in your editor"),
    ("@file", "show the model a file with this message"),
    ("!command", "run a shell line yourself; the model is told what it printed"),
)


def help_view(commands: "Mapping[str, Command]", own: "Mapping[str, OwnCommand]", name: str | None) -> RenderableType:
    """All commands and keys, or one command."""
    if name is not None and name in commands:
        return Text(f"/{name} {commands[name].usage}\n  {commands[name].about}")
    if name is not None:
        return Text(f"/{name}\n  {own[name].description} ({own[name].source})")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for each, command in commands.items():
        table.add_row(Text(f"/{each} {command.usage}".rstrip()), Text(command.about))
    for each, mine in own.items():
        table.add_row(Text(f"/{each}"), Text(f"{mine.description} (yours)"))
    keys = Table(box=None, pad_edge=False, show_header=False)
    keys.add_column(style="cyan", overflow="fold")
    keys.add_column(overflow="fold")
    for key, about in _KEYS:
        keys.add_row(Text(key), Text(about))
    return Group(table, Text(""), keys)
