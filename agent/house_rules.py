"""House rules of folders: a nested AGENTS.md is told when a file below it is first touched."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agent.tools.base import ToolContext, ToolError
from agent.tools.paths import show
from agent.tools.textfile import load

NAME: Final = "AGENTS.md"
_MOST_CHARS: Final = 16_000


def nested_rules(paths: Iterable[Path], context: ToolContext) -> str:
    """The rules that hold for `paths` and that the model has not seen yet, which it thereby sees; "" for none.

    The rules of the root are in the PROJECT layer. A file that leads out of the root is left alone.
    """
    told = []
    for path in paths:
        if not path.is_relative_to(context.root):
            continue
        for folder in reversed(path.relative_to(context.root).parents[:-1]):  # the outermost first
            rules = context.root / folder / NAME
            if rules in context.seen or rules == path or rules.is_symlink():
                continue
            try:
                file = load(rules, NAME)
            except (ToolError, FileNotFoundError):
                continue
            text = file.view.strip()
            if len(text) > _MOST_CHARS:
                text = f"{text[:_MOST_CHARS]}\n[cut: read {show(rules, context.root)} for the rest]"
            context.seen[rules] = file.digest
            where, name = show(rules.parent, context.root), show(rules, context.root)
            told.append(f"[House rules for what is below {where}/ ({name}):\n{text}]")
    return "\n".join(told)
