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

_SHORT: Final = 400  # characters, about 100 tokens: what the line that replaces an output takes with its path
_LINE: Final = 120  # characters of the output that the line quotes
_ARGUMENT: Final = 80
_FOLDED: Final = re.compile(r"\[folded: .* lines, last: .*; whole output: .*\]")  # one line: others are outputs
_EXIT: Final = re.compile(r"exit \d+")  # tells less than the line ahead of it
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAIN: Final = ("path", "command", "pattern", "query", "name")
_SEARCHES: Final = ("search", "find")  # here the pattern says more than the folder


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
    same = [block.digest for block in head] == [block.digest for block in prompt.at(start)]
    outputs: dict[str, str] = {}
    lean = _without_stale(history, folder, outputs)
    kept: list[Block] = []
    for at, block in enumerate(history):
        parts = lean[at]
        if not parts and kept and kept[-1].role is _next_role(history, lean, at) is Role.ASSISTANT:
            parts = block.parts  # a notice alone between two replies: without it a provider would make one of them
        if not same:
            parts = _without_reasoning(parts)
        if parts == block.parts and (same or _is_sent(parts)):
            kept.append(block)
            continue
        same = False
        if _is_sent(parts):
            kept.append(replace(block, parts=parts, counted=None))
    return Folded(tuple(kept), tuple(outputs.items()))


def fold_results(blocks: Sequence[Block], folder: str) -> tuple[str, list[tuple[str, str]]]:
    """What the calls in `blocks` gave, a line each where it is long, and the outputs for `folder` as in `Folded`."""
    calls: dict[str, ToolCall] = {}
    outputs: dict[str, str] = {}
    lines: list[str] = []
    for block in blocks:
        calls |= {call.id: call for call in block.tool_calls}
        for result in block.tool_results:
            part = _folded(result, calls, folder, outputs)
            text = part.text if isinstance(part, ToolResult) else ""
            lines.append(text if text is not result.text else f"[{call_in_words(calls.get(result.call_id))}]\n{text}")
    return "\n".join(lines), list(outputs.items())


def is_command(block: Block) -> bool:
    """Whether the block holds what a person said, and not only what the program tells the model."""
    return block.layer is Layer.COMMAND and any(
        isinstance(part, Text) and not is_notice(part) and not is_compacted(part) for part in block.parts
    )


def is_notice(part: Part) -> bool:
    """Whether the part is told by the program (`context.layers.command`)."""
    return _is_tagged(part, "notice")


def is_compacted(part: Part) -> bool:
    """Whether the part stands for a history (`context.compaction`). It is never stale."""
    return _is_tagged(part, "compacted")


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments by name; none where they are not what a tool takes."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _is_tagged(part: Part, tag: str) -> bool:
    return isinstance(part, Text) and part.text.startswith(f"<{tag}>\n") and part.text.endswith(f"\n</{tag}>")


def _is_sent(parts: Sequence[Part]) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in parts)


def _without_reasoning(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not isinstance(part, Opaque))


def _without_stale(history: Sequence[Block], folder: str, outputs: dict[str, str]) -> list[tuple[Part, ...]]:
    """The parts of each block, of the turns before the last without notices and long outputs; those go to `outputs`."""
    last = max((at for at, block in enumerate(history) if is_command(block)), default=0)
    calls: dict[str, ToolCall] = {}  # the latest of each id: a local model numbers them anew in each reply
    lean: list[tuple[Part, ...]] = []
    for at, block in enumerate(history):
        parts = block.parts
        calls |= {call.id: call for call in block.tool_calls}
        if at < last:
            parts = tuple(_folded(part, calls, folder, outputs) for part in parts)
            if block.layer is Layer.COMMAND:
                parts = tuple(part for part in parts if not is_notice(part))
        lean.append(parts)
    return lean


def _next_role(history: Sequence[Block], lean: Sequence[tuple[Part, ...]], at: int) -> Role | None:
    """Who speaks next, once block `at` is gone and with it the reasoning behind it."""
    later = range(at + 1, len(history))
    return next((history[n].role for n in later if _is_sent(_without_reasoning(lean[n]))), None)


def _folded(part: Part, calls: dict[str, ToolCall], folder: str, outputs: dict[str, str]) -> Part:
    if not isinstance(part, ToolResult) or len(part.text) <= _SHORT or _FOLDED.fullmatch(part.text):
        return part
    name = f"folded-{_NOT_IN_NAMES.sub('_', part.call_id)[:40]}-{digest(part.text.encode())[:12]}.txt"
    line = _line(part, calls.get(part.call_id), f"{folder}/{name}")
    if len(line) >= len(part.text):
        return part
    outputs[name] = part.text
    return replace(part, text=line)


def _line(result: ToolResult, call: ToolCall | None, path: str) -> str:
    count = len(result.text.splitlines())
    return show_name(
        f"[folded: {call_in_words(call)}, {count:,} lines, last: {_telling(result.text)}; whole output: {path}]"
    )


def call_in_words(call: ToolCall | None) -> str:
    """A tool and what it was called for, in one short line."""
    if call is None:
        return "an output"
    arguments = arguments_of(call)
    names = ("pattern", *_MAIN) if call.name in _SEARCHES else _MAIN
    main = next((value for name in names if isinstance(value := arguments.get(name), str)), "")
    return f"{call.name} {_cut(main, _ARGUMENT)}".rstrip()


def _telling(text: str) -> str:
    """The last line with something in it; of a failed command the line ahead of its exit code as well."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and _EXIT.fullmatch(lines[-1]):
        return f"{_cut(lines[-2], _LINE)} ({lines[-1]})"
    return _cut(lines[-1], _LINE) if lines else "(blank)"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
