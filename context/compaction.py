"""Compaction: a summary that the model makes, and what the program adds to it because a model may forget it.

Pure. The request is a suffix of the conversation, so that it reads the cache; the answer becomes one block, which a
later compaction reads back: the person's requests and the lists of files outlive any number of summaries.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from context.block import Block, Layer, Part, Role, Text, ToolCall
from context.fold import arguments_of, is_command, is_compacted, is_notice
from context.layers.command import notice_block
from context.layers.history import reply_block
from context.prompt import Prompt

_INSTRUCTION: Final = "\n".join(
    (
        "The conversation is about to be replaced by a summary, because it has become long. Write that summary now, "
        "as plain text and nothing else: call no tool, answer no request. Whoever goes on knows only what you write, "
        "so be exact and complete:",
        "1. The goal, and what the user asked for, wished or ruled out. Every fact, name and number they gave.",
        "2. What has been done and found, with paths and line numbers; which files matter; what was decided and why.",
        "3. What failed, and what was learned from it.",
        "4. What is still open, in order, and the very next step.",
        "Keep everything that an earlier summary holds and that still matters. At most 1,500 words.",
    )
)
_RECORD_OPEN, _RECORD_CLOSE = "<record>\n", "\n</record>"
_REQUEST: Final = 400  # characters of an earlier request that are kept
_REQUESTS: Final = 8_000  # bytes of all of them, about 2,000 tokens in any script
_FILES: Final = 60
_UNDER_WAY: Final = "Work on the last request is under way; the summary says how far. Go on with it."

_UNSEEN: Final = "These calls were made after the summary was written, and are done. What they gave:"


@dataclass(slots=True)
class _Record:
    """What is listed by the program. `requests` oldest first, files newest first."""

    requests: list[str] = field(default_factory=list)
    left_out: int = 0
    read: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


def instruction_block() -> Block:
    """Asks for a summary, at the tail of the conversation."""
    return notice_block(_INSTRUCTION)


def compacted(
    prompt: Prompt, summary: str, *, open_turn: bool, seen: int | None = None, unseen: str = ""
) -> tuple[Block, ...]:
    """What follows the head once `summary` stands for the history of `prompt`.

    One block from the user: the summary, a record of requests and files, and the last request word for word. Then, if
    the turn is over, the last reply. `open_turn`: the work on the last request is not done. `seen`: blocks of the
    prompt that the summary is about (None: all); `unseen`: what the calls behind them gave.
    """
    start = prompt.head(Layer.PROJECT).length
    history = prompt.since(start)
    at = max((at for at, block in enumerate(history) if is_command(block)), default=None)
    record = _record(history, at)
    parts: list[Part] = [
        Text(
            "<compacted>\nThe conversation so far was replaced by this summary of it.\n"
            f"<summary>\n{summary.strip()}\n</summary>\n{_written(record)}\n</compacted>"
        )
    ]
    if at is not None:
        parts.append(Text(_request(history[at])))
    if open_turn and (at is None or seen is None or start + at < seen):
        parts.append(Text(f"<notice>\n{_UNDER_WAY}\n</notice>"))
    if unseen:
        parts.append(Text(f"<notice>\n{_UNSEEN}\n{unseen}\n</notice>"))
    block = Block.make(Layer.COMMAND, Role.USER, parts)
    reply = "" if open_turn else _last_reply(history[at or 0 :])
    return (block, reply_block([Text(reply)])) if reply.strip() else (block,)


def _record(history: Sequence[Block], last: int | None) -> _Record:
    """What the history and its earlier compaction hold, without the request in block `last`: it stands behind this."""
    record = _Record()
    open_calls: dict[str, ToolCall] = {}
    for at, block in enumerate(history):
        for part in block.parts:
            if isinstance(part, Text) and block.layer is Layer.COMMAND and is_compacted(part):
                _take_back(record, part.text)
        if is_command(block) and at != last:
            record.requests.append(_cut(_request(block)))
        open_calls |= {call.id: call for call in block.tool_calls}
        for result in block.tool_results:
            call = open_calls.pop(result.call_id, None)
            if call is not None and not result.is_error:
                _note_file(record, call)
    record.left_out += _shorten(record.requests)
    return record


def _take_back(record: _Record, text: str) -> None:
    """What an earlier compaction listed. A text that only looks like one changes nothing."""
    start, end = text.rfind(_RECORD_OPEN), text.rfind(_RECORD_CLOSE)  # the last one: a summary may quote another
    if not 0 <= start < end:
        return
    try:
        told = json.loads(text[start + len(_RECORD_OPEN) : end])
        requests, read, changed = (_texts(told[name]) for name in ("requests", "files_read", "files_changed"))
        left_out = int(told["requests_left_out"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    record.requests += requests
    record.left_out += left_out
    for path in reversed(read):
        _note(record.read, path)
    for path in reversed(changed):
        _note(record.changed, path)


def _texts(values: Iterable[object]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _note_file(record: _Record, call: ToolCall) -> None:
    path = arguments_of(call).get("path")
    if not isinstance(path, str):
        return
    if call.name == "read":
        _note(record.read, path)
    elif call.name in ("write", "edit"):
        _note(record.changed, path)


def _note(paths: list[str], path: str) -> None:
    """Put `path` first, once."""
    if path in paths:
        paths.remove(path)
    paths.insert(0, path)
    del paths[_FILES:]


def _written(record: _Record) -> str:
    """As JSON, which a later compaction can read back whatever the texts hold: no line break stands inside a text."""
    told = {
        "requests": record.requests,
        "requests_left_out": record.left_out,
        "files_read": record.read,
        "files_changed": record.changed,
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in told.items())
    return f"{_RECORD_OPEN}{{{lines}}}{_RECORD_CLOSE}"


def _request(block: Block) -> str:
    return "\n".join(
        part.text for part in block.parts if isinstance(part, Text) and not is_notice(part) and not is_compacted(part)
    )


def _cut(text: str) -> str:
    return text if len(text) <= _REQUEST else f"{text[: _REQUEST - 1]}…"


def _shorten(requests: list[str]) -> int:
    """Leave out requests until they fit: from the middle, so that the first and the latest stay. How many went."""
    gone = 0
    while len(requests) > 2 and sum(len(text.encode()) for text in requests) > _REQUESTS:
        del requests[len(requests) // 2]
        gone += 1
    return gone


def _last_reply(turn: Sequence[Block]) -> str:
    """The text with which the model ended the turn; none where it was cut off at a call."""
    last = next((block for block in reversed(turn) if block.role is Role.ASSISTANT), None)
    return "" if last is None or last.tool_calls else last.text
