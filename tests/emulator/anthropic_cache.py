"""Anthropic's prompt cache, to the letter of the published rules: what a request reads, writes and pays.

Sources: provider rules 1.2 and 1.3 (prompt-caching documentation as of 2026-08-22). All sizes in tokens.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import tokens
from .bill import Account, Bill
from .bodies import Body, content_parts, elements
from .cache import Entries
from .models import Model
from .script import Reply

LOOKBACK = 20  # positions, counting the breakpoint itself
_NOT_MARKABLE = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class Position:
    """One place of the prefix that an entry can end at: a tool, a system text, a content block of any kind.

    `digest` names the entry, `size` is the prefix up to here, `ttl` that of a marker ("5m", "1h") or None.
    """

    digest: bytes
    size: int
    ttl: str | None


def part_tokens(part: Any) -> int:
    """One content block, without the frame of its message."""
    match part.get("type"):
        case "text":
            return tokens.text_tokens(part["text"])
        case "tool_use":
            return tokens.call_tokens(part["name"], tokens.compact(part["input"]))
        case "tool_result":
            content = part.get("content") or ""
            if isinstance(content, str):
                return tokens.result_tokens(content)
            return sum(part_tokens(inner) for inner in content) + tokens.FRAME
        case _:  # thinking, compaction, images: by their bytes
            return tokens.opaque_tokens(_bare(part))


def _bare(element: Any) -> Any:
    return {key: value for key, value in element.items() if key != "cache_control"}


def _sizes(body: Body) -> Iterator[int]:
    """What each position adds, in the order of `elements`."""
    for tool in body.get("tools") or []:
        yield tokens.tool_tokens(tool["name"], tool.get("description") or "", tool.get("input_schema") or {})
    system = body.get("system") or []
    for part in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield tokens.FRAME + part_tokens(part)
    for message in body.get("messages") or []:
        frame = tokens.FRAME
        for part in content_parts(message):
            yield frame + part_tokens(part)
            frame = 0


def size(body: Body) -> int:
    """All input tokens of a request."""
    return sum(_sizes(body))


def with_automatic_marker(body: Body) -> dict[str, str | None]:
    """The TTL of each place that carries a marker; a top-level `cache_control` stands at the last block that can."""
    found: dict[str, str | None] = {}
    last = None
    for place, element in elements(body):
        if (control := element.get("cache_control")) is not None:
            found[place] = control.get("ttl", "5m")
        if element.get("type") not in _NOT_MARKABLE:
            last = place
    automatic = body.get("cache_control")
    if automatic is not None and last is not None:
        found.setdefault(last, automatic.get("ttl", "5m"))
    return found


def thinking_mode(body: Body, model: Model) -> str:
    """Mode and budget; what only changes the display of thinking is no part of it. None given is the default."""
    config = body.get("thinking") or {}
    return f"{config.get('type') or model.thinking[0]}/{config.get('budget_tokens')}"


def message_variant(body: Body, model: Model) -> str:
    """The parameters that the entries in `messages` depend on, besides the prefix itself."""
    choice = {"type": "auto", **(body.get("tool_choice") or {})}
    if not choice.get("disable_parallel_tool_use"):
        choice.pop("disable_parallel_tool_use", None)
    effort = (body.get("output_config") or {}).get("effort") or model.effort
    images = any(_has_image(part) for message in body.get("messages") or [] for part in content_parts(message))
    return tokens.compact([sorted(choice.items()), effort, thinking_mode(body, model), images])


def _has_image(part: Any) -> bool:
    content = part.get("content")
    inner = content if isinstance(content, list) else []
    return part.get("type") == "image" or any(_has_image(each) for each in inner)


def positions(body: Body, model: Model) -> list[Position]:
    """All positions of a request, in the order tools → system → messages."""
    variant = message_variant(body, model)
    marked = with_automatic_marker(body)
    chain = hashlib.sha256(str(body.get("model")).encode())
    if not model.effort_keeps_head:
        chain.update(variant.encode())
    found, total, section = list[Position](), 0, "tools"
    speed = body.get("speed") or "standard"
    role_of = {f"messages[{number}]": message["role"] for number, message in enumerate(body.get("messages") or [])}
    for (place, element), added in zip(elements(body), _sizes(body), strict=True):
        message = place.partition(".")[0]
        if section == "tools" and not place.startswith("tools"):
            chain.update(f"speed {speed}".encode())
            section = "system"
        if section == "system" and message in role_of:
            section = "messages"
        head = role_of[message] if place.endswith(".content[0]") else ""
        chain.update(f"\0{section}\0{head}\0{tokens.compact(_bare(element))}".encode(errors="replace"))
        total += added
        digest = chain.copy()
        if section == "messages":
            digest.update(variant.encode())
        found.append(Position(digest.digest(), total, marked.get(place)))
    return found


class PromptCache:
    """The entries of one workspace."""

    def __init__(self) -> None:
        self._entries = Entries()

    def evict_all(self) -> None:
        self._entries.evict()

    def account(self, body: Body, model: Model, at: float, reply: Reply) -> Account:
        """Look a request up that started at `at`; what it writes is written when its response begins."""
        if reply.evict == "all":
            self._entries.evict()
        found = positions(body, model)
        marked = [number for number, place in enumerate(found) if place.ttl and place.size >= model.minimum]
        hit = self._hit(found, marked, at)
        if reply.evict == "deepest" and hit is not None:
            self._entries.evict(found[hit].digest)
            hit = self._hit(found, marked, at)

        total = found[-1].size if found else 0
        read = 0 if hit is None else found[hit].size
        behind = [found[number] for number in marked if hit is None or number > hit]
        long = {"1h"} if not reply.short_ttl else set[str]()
        long_end = max([read, *(place.size for place in behind if place.ttl in long)])
        end = max([long_end, *(place.size for place in behind)])
        used = [found[number].digest for number in marked if hit is not None and number < hit]
        if hit is not None:
            used.append(found[hit].digest)

        def begin() -> None:
            self._entries.refresh(used, at)
            for place in behind:
                ttl = model.long if place.ttl in long else model.short
                self._entries.write(place.digest, place.size, ttl, at)

        bill = Bill(total - end, read, end - long_end, long_end - read, model=model)
        return Account(bill, begin)

    def _hit(self, found: list[Position], marked: list[int], at: float) -> int | None:
        """A: the furthest live entry that some marker of the request looks back to."""
        for marker in reversed(marked):
            for number in range(marker, max(-1, marker - LOOKBACK), -1):
                if self._entries.live(found[number].digest, at):
                    return number
        return None


def usage_of(bill: Bill) -> dict[str, Any]:
    """The input counters as the API reports them: `input_tokens` is the uncached remainder only."""
    return {
        "input_tokens": bill.fresh,
        "cache_creation_input_tokens": bill.write_short + bill.write_long,
        "cache_read_input_tokens": bill.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": bill.write_short,
            "ephemeral_1h_input_tokens": bill.write_long,
        },
    }


def marked_end(body: Body, model: Model) -> int:
    """The size of the longest prefix that a request asks to cache: what the next one could read of it."""
    return max((place.size for place in positions(body, model) if place.ttl and place.size >= model.minimum), default=0)


def merged_counters(usage: Mapping[str, Any], output: int) -> dict[str, Any]:
    """Usage with its output; a counter of None is left out, as an older server would."""
    return {key: value for key, value in {**usage, "output_tokens": output}.items() if value is not None}
