"""Request bodies, compared as the provider's cache compares them: tools, system, messages; markers aside."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Recorded

Body = Mapping[str, Any]

# A quotation mark inside a JSON text is escaped, so this cannot be part of one.
_MARKER = re.compile(
    rb',"cache_control":\{"type":"ephemeral"(?:,"ttl":"(?:5m|1h)")?\}'
    rb'|,"prompt_cache_breakpoint":\{"mode":"explicit"(?:,"ttl":"(?:30m|12h)")?\}'
)
_GROWING = re.compile(rb'"(?:messages|input)":\[')  # the array that holds the conversation, by API


def content_parts(message: Body) -> list[Any]:
    """The parts of a message; a text alone is shorthand for one text part."""
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _system_parts(body: Body) -> list[Any]:
    system = body.get("system") or []
    return [{"type": "text", "text": system}] if isinstance(system, str) else list(system)


def elements(body: Body) -> Iterator[tuple[str, Any]]:
    """Everything that can carry a marker, in the order of the prefix, each with its place as a path."""
    for number, tool in enumerate(body.get("tools") or []):
        yield f"tools[{number}]", tool
    for number, part in enumerate(_system_parts(body)):
        yield f"system[{number}]", part
    for number, message in enumerate(body.get("messages") or []):
        for index, part in enumerate(content_parts(message)):
            yield f"messages[{number}].content[{index}]", part


def markers(body: Body) -> list[tuple[str, str]]:
    """Place and TTL ("5m" or "1h") of each marker, in order."""
    return [
        (place, control.get("ttl", "5m"))
        for place, element in elements(body)
        if (control := element.get("cache_control")) is not None
    ]


def without_markers(body: Body) -> dict[str, Any]:
    """A copy of `body` whose tools, system and messages carry no markers."""

    def bare(element: Any) -> Any:
        return {key: value for key, value in element.items() if key != "cache_control"}

    stripped = dict(body)
    stripped["tools"] = [bare(tool) for tool in body.get("tools") or []]
    stripped["system"] = [bare(part) for part in _system_parts(body)]
    stripped["messages"] = [
        {**message, "content": [bare(part) for part in content_parts(message)]}
        for message in body.get("messages") or []
    ]
    return stripped


def prefix_bytes(body: Body) -> bytes:
    """What signatures bind: model, tools, system and messages, written anew in the order of the wire, open ended."""
    bare = without_markers(body)
    prefix = {
        "model": bare.get("model"),
        "tools": bare["tools"],
        "system": bare["system"],
        "messages": bare["messages"],
    }
    return json.dumps(prefix, ensure_ascii=False, separators=(",", ":")).encode().removesuffix(b"]}")


def raw_prefix(raw: bytes) -> bytes:
    """The bytes of a request from its first one to the end of its last message, as they were sent; markers cut out.

    The array of messages is left open, and what stands behind it is not part of the prefix. Nothing is written anew, so
    a change of escaping, spacing or order shows.
    """
    growing = _GROWING.search(raw)
    if growing is None:
        raise ValueError("a request without a conversation")
    start = growing.end()
    text, decode = raw[start:].decode(), json.JSONDecoder().raw_decode
    end, at = 0, 0
    while text[at] != "]":
        _, end = decode(text, at)
        at = end + (text[end] == ",")
    return _MARKER.sub(b"", raw[:start] + text[:end].encode())


def assert_extends(earlier: "Recorded", later: "Recorded") -> None:
    """Rule R1: the later request begins with all of the earlier one, byte for byte. Says where they part if not."""
    first, second = raw_prefix(earlier.raw), raw_prefix(later.raw)
    if second.startswith(first):
        return
    same = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(second))
    context = slice(max(0, same - 80), same + 80)
    raise AssertionError(
        f"the later request leaves the earlier one at byte {same} of {len(first)}:\n"
        f"earlier …{first[context].decode(errors='replace')}…\n"
        f"later   …{second[context].decode(errors='replace')}…"
    )
