"""`agent export`: a session as a document, with what was said, thought, called, answered and paid.

It is made of what the ledger holds, which is free of secrets as far as they are known (rule R10). What was sent is not
changed by it. The prompt of the last epoch is shown; a fork holds what it took over.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from agent.errors import USAGE, UserError
from agent.ledger import Ledger
from agent.ledger_rows import CallRow, SessionRow
from agent.reports.totals import Totals, total_of
from agent.turns import said
from context.block import Block, Layer, Opaque, Role, Text, ToolCall
from context.fold import is_command, is_compacted, is_notice
from context.names import show_name

FORMAT: Final = 1

ItemKind = Literal["command", "notice", "summary", "thinking", "reply", "call", "result"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in the conversation. `id`: of a tool call, which its result carries too. `name`: of the tool."""

    kind: ItemKind
    text: str
    id: str | None = None
    name: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Export:
    session: SessionRow
    models: tuple[str, ...]
    items: tuple[Item, ...]
    totals: Totals

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/sessions.md. Unknown is null."""
        row, totals = self.session, self.totals
        return {
            "format": FORMAT,
            "session": row.id,
            "title": row.title,
            "directory": row.directory,
            "created": row.created,
            "parent": row.parent,
            "models": list(self.models),
            "calls": totals.calls,
            "fresh": totals.fresh,
            "cache_read": totals.cache_read,
            "cache_write": totals.cache_write,
            "output": totals.output,
            "hit_rate": totals.hit_rate,
            "cost_usd": None if totals.cost_usd is None else str(totals.cost_usd),
            "items": [_item_json(item) for item in self.items],
        }


def export(ledger: Ledger, row: SessionRow) -> Export:
    """All of a session but its head (tools, instructions, snapshot). Raises LedgerError."""
    calls = ledger.calls(row.id)
    blocks = [block for block in ledger.prompt(row.id) if block.layer not in (Layer.SYSTEM, Layer.PROJECT)]
    items = [item for block in blocks for item in _items(block)]
    return Export(row, _models(calls), tuple(items), total_of(calls))


def to_text(made: Export, kind: str) -> str:
    """The document; `kind` is one of FORMATS."""
    return FORMATS[kind](made)


def _models(calls: list[CallRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(call.model for call in calls))


def _items(block: Block) -> list[Item]:
    if block.role is Role.ASSISTANT:
        return [item for part in block.parts if (item := _said_by_model(part)) is not None]
    items = [Item("result", part.text, part.call_id, None, part.is_error) for part in block.tool_results]
    for part in block.parts:
        if isinstance(part, Text) and is_compacted(part):
            items.append(Item("summary", part.text))
        elif isinstance(part, Text) and is_notice(part):
            items.append(Item("notice", part.text.removeprefix("<notice>\n").removesuffix("\n</notice>")))
    if is_command(block):
        items.append(Item("command", said(block)))
    return items


def _said_by_model(part: object) -> Item | None:
    match part:
        case Text(text) if text.strip():
            return Item("reply", text)
        case ToolCall(call_id, name, arguments):
            return Item("call", arguments, call_id, name)
        case Opaque(_, data):
            thought = _thought(data)
            return Item("thinking", thought) if thought else None
        case _:
            return None


def _thought(data: bytes) -> str:
    """The readable thinking in what a provider wants back unmodified; "" where there is none, or only encrypted."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    texts: list[str] = []
    if isinstance(value, Mapping):
        if value.get("type") not in ("thinking", "reasoning", None):
            return ""
        for key in ("thinking", "reasoning_content", "reasoning"):
            if isinstance(value.get(key), str):
                texts.append(value[key])
        for key in ("summary", "content"):
            pieces = value.get(key)
            if isinstance(pieces, list):
                texts += [p["text"] for p in pieces if isinstance(p, Mapping) and isinstance(p.get("text"), str)]
    return "\n".join(text for text in texts if text.strip())


def _item_json(item: Item) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": item.kind, "text": item.text}
    if item.id is not None:
        told["id"] = item.id
    if item.name is not None:
        told["name"] = item.name
    if item.kind == "result":
        told["is_error"] = item.is_error
    return told


def _json(made: Export) -> str:
    return json.dumps(made.to_json(), indent=2, ensure_ascii=False) + "\n"


def _markdown(made: Export) -> str:
    from agent.reports.export_markdown import markdown

    return markdown(made)


def _html(made: Export) -> str:
    from agent.reports.export_html import page

    return page(made)


FORMATS: Final[Mapping[str, Callable[[Export], str]]] = {"markdown": _markdown, "json": _json, "html": _html}


ENDINGS: Final[Mapping[str, str]] = {"markdown": "md", "json": "json", "html": "html"}
"""Of the files that hold them."""


def write_new(path: Path, text: str) -> None:
    """Write a file that only the person can read: it may hold code of theirs. Raises UserError when there is one."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise UserError(
            f"{show_name(str(path))} is there already and was left as it is. Name another.", USAGE
        ) from error
    except OSError as error:
        raise UserError(f"{show_name(str(path))} cannot be written ({error.strerror}). Name another.", USAGE) from error
    with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def about(made: Export) -> list[tuple[str, str]]:
    """What stands at the top of a document: names and values."""
    from agent.reports.totals import money, percent, tokens

    row, totals = made.session, made.totals
    lines = [
        ("session", row.id),
        ("directory", row.directory),
        ("started", f"{datetime.fromtimestamp(row.created, UTC):%Y-%m-%d %H:%M} UTC"),
    ]
    if made.models:
        lines.append(("model", ", ".join(made.models)))
        spent = f"{totals.calls} calls, {tokens(totals.input_total)} tokens in, {tokens(totals.output)} out"
        lines.append(("cost", f"{money(totals.cost_usd)} ({spent}, hit rate {percent(totals.hit_rate)})"))
    return lines
