"""Request bodies, compared as the provider's cache compares them: tools, system, messages; markers aside."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Body = Mapping[str, Any]


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
    """Model, tools, system and messages, written in the order of the wire, open at the end."""
    bare = without_markers(body)
    prefix = {
        "model": bare.get("model"),
        "tools": bare["tools"],
        "system": bare["system"],
        "messages": bare["messages"],
    }
    return json.dumps(prefix, ensure_ascii=False, separators=(",", ":")).encode().removesuffix(b"]}")


def assert_extends(earlier: Body, later: Body) -> None:
    """Rule R1: the later body begins with all of the earlier one, byte for byte. Says where they part if not."""
    first, second = prefix_bytes(earlier), prefix_bytes(later)
    if second.startswith(first):
        return
    same = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(second))
    context = slice(max(0, same - 80), same + 80)
    raise AssertionError(
        f"the later body leaves the earlier one at byte {same} of {len(first)}:\n"
        f"earlier …{first[context].decode(errors='replace')}…\n"
        f"later   …{second[context].decode(errors='replace')}…"
    )
