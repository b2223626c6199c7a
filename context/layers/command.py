"""COMMAND: the new turn, with the notices of what has changed since the last one ahead of it."""

from collections.abc import Sequence

from context.block import Block, Layer, Part, Role, Text


def command_block(command: str, notices: Sequence[str] = ()) -> Block:
    """One user message. Raises ValueError for a command without text."""
    if not command.strip():
        raise ValueError("empty command")
    parts: list[Part] = [Text(_notice(notices))] if notices else []
    parts.append(Text(command))
    return _block(tuple(parts))


def notice_block(notice: str) -> Block:
    """A user message from the program alone."""
    return _block((Text(_notice([notice])),))


def _notice(notices: Sequence[str]) -> str:
    return "<notice>\n" + "\n".join(notices) + "\n</notice>"


def _block(parts: tuple[Part, ...]) -> Block:
    return Block.make(Layer.COMMAND, Role.USER, parts)
