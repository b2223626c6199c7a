"""A session as Markdown. What tools gave and what the model thought is folded where the reader can fold."""

import re
from typing import Final

from agent.export import Export, Item, about
from context.names import show_name

_TICKS: Final = re.compile("`+")
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|])")


def markdown(made: Export) -> str:
    """The document as text."""
    top = [f"# {_plain(made.session.title) or 'Session'}", ""]
    top += [f"- {name}: {_plain(value)}" for name, value in about(made)]
    return "\n".join([*top, "", *(_item(item) for item in made.items)])


def _item(item: Item) -> str:
    match item.kind:
        case "command":
            return f"## Command\n\n{_fenced(item.text)}\n"
        case "reply":
            return f"{item.text.strip()}\n"
        case "notice":
            return "".join(f"> {line}\n" for line in _plain(item.text, lines=True).split("\n"))
        case "call":
            return f"**{_plain(item.name or 'tool')}**\n\n{_fenced(item.text)}\n"
        case "result":
            return _folded("error" if item.is_error else "result", item.text)
        case "thinking" | "summary":
            return _folded(item.kind, item.text)


def _folded(name: str, text: str) -> str:
    return f"<details><summary>{name}</summary>\n\n{_fenced(text)}\n\n</details>\n"


def _fenced(text: str) -> str:
    """As it is, whatever it holds: the fence is longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _plain(text: str, *, lines: bool = False) -> str:
    escaped = (_SPECIAL.sub(r"\\\1", show_name(line)) for line in text.split("\n"))
    return ("\n" if lines else " ").join(escaped)
