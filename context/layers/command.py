"""COMMAND: the new turn, with the notices of what has changed since the last one ahead of it."""

from collections.abc import Sequence

from context.block import Block, Layer, Part, Role, Text
from context.tokens import count_parts


def command_block(command: str, notices: Sequence[str] = ()) -> Block:
    """One user message. Raises ValueError for a command without text."""
    if not command.strip():
        raise ValueError("empty command")
    parts: list[Part] = []
    if notices:
        parts.append(Text("<notice>\n" + "\n".join(notices) + "\n</notice>"))
    parts.append(Text(command))
    return Block.make(Layer.COMMAND, Role.USER, parts, count_parts(tuple(parts)))
