"""What a new epoch carries of the history: all that was said, and of stale tool outputs one line each.

Pure: the full texts are returned for whoever can write files. Reasoning is bound to the exact prefix that it was made
on (provider rules, section 0, 2026-12-01), so it goes from where the prefix changes.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from context.block import Block, Layer, Opaque, Part, Role, Text, ToolCall, ToolResult
from context.canonical import digest
from context.names import show_name
from context.prompt import Prompt

_SHORT: Final = 400  # characters: about what the line that replaces an output takes
_LINE: Final = 120  # characters of the output that the line quotes
_ARGUMENT: Final = 80
_FOLDED: Final = re.compile(r"\[folded: .* whole output: .*\]", re.DOTALL)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAIN: Final = ("path", "command", "pattern", "query", "name")


@dataclass(frozen=True, slots=True)
class Folded:
    """`blocks`: what follows the head in the new epoch. `outputs`: file name and full text of each output that became a
    line; to be written before the epoch begins.
    """

    blocks: tuple[Block, ...]
    outputs: tuple[tuple[str, str], ...]


def fold(prompt: Prompt, head: Sequence[Block], folder: str) -> Folded:
    """The history of `prompt` (a whole prompt, no call of it open) behind the new `head`. `folder` is where the outputs
    will be.

    The last turn keeps its outputs; the turns before it keep everything that a person or the model said.
    """
    start = prompt.head(Layer.PROJECT).length
    history = prompt.since(start)
    last = max((at for at, block in enumerate(history) if is_command(block)), default=0)
    calls = {call.id: call for block in history for call in block.tool_calls}
    same = [block.digest for block in head] == [block.digest for block in prompt.at(start)]
    kept: list[Block] = []
    outputs: dict[str, str] = {}
    for at, block in enumerate(history):
        stale = at < last
        parts = _folded_parts(block, calls, folder, outputs) if stale else block.parts
        if stale and block.layer is Layer.COMMAND:
            said = tuple(part for part in parts if not is_notice(part))
            apart = kept and kept[-1].role is Role.ASSISTANT and _role_after(history, at) is Role.ASSISTANT
            parts = said if said or not apart else parts
        if not same:
            parts = tuple(part for part in parts if not isinstance(part, Opaque))
        if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
            same = False
            continue
        changed = parts != block.parts
        kept.append(replace(block, parts=parts, counted=None) if changed else block)
        same = same and not changed
    return Folded(tuple(kept), tuple(outputs.items()))


def is_command(block: Block) -> bool:
    """Whether the block holds what a person said, and not only what the program tells the model."""
    return block.layer is Layer.COMMAND and any(isinstance(part, Text) and not is_notice(part) for part in block.parts)


def is_notice(part: Part) -> bool:
    return isinstance(part, Text) and part.text.startswith("<notice>\n") and part.text.endswith("\n</notice>")


def _role_after(history: Sequence[Block], at: int) -> Role | None:
    return history[at + 1].role if at + 1 < len(history) else None


def _folded_parts(block: Block, calls: dict[str, ToolCall], folder: str, outputs: dict[str, str]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for part in block.parts:
        if isinstance(part, ToolResult) and len(part.text) > _SHORT and not _FOLDED.fullmatch(part.text):
            safe = _NOT_IN_NAMES.sub("_", part.call_id)[:40]
            name = f"folded-{safe}-{digest(part.text.encode())[:12]}.txt"
            line = _line(part, calls.get(part.call_id), f"{folder}/{name}")
            if len(line) < len(part.text):
                outputs[name] = part.text
                part = replace(part, text=line)
        parts.append(part)
    return tuple(parts)


def _line(result: ToolResult, call: ToolCall | None, path: str) -> str:
    lines = [line.strip() for line in result.text.splitlines() if line.strip()]
    telling = _cut(lines[-1], _LINE) if lines else ""
    what = _what(call)
    return show_name(f"[folded: {what}, {len(lines)} lines, last: {telling}; whole output: {path}]")


def _what(call: ToolCall | None) -> str:
    if call is None:
        return "an output"
    main = next((value for key in _MAIN if isinstance(value := arguments_of(call).get(key), str)), "")
    return f"{call.name} {_cut(main, _ARGUMENT)}".rstrip()


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments by name; none where they are not what a tool takes."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
