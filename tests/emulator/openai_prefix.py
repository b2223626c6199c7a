"""A request body as the row of elements that OpenAI's caches compare: tools, then the input, part by part.

Markers are not part of what is compared. Token counts follow the emulator's published rules: a frame of 4 for each
message, for each run of items that belong to one reply, and for each run of tool results; it counts with the first
part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .tokens import FRAME, call_tokens, compact, opaque_tokens, text_tokens, tool_tokens

Body = Mapping[str, Any]

MARKERS: Final = ("prompt_cache_breakpoint", "cache_control")
_INSTRUCTED: Final = ("user", "developer", "system")


@dataclass(frozen=True)
class Element:
    """One position of the prefix.

    `data`: the bytes that are compared. `mark`: TTL of the explicit breakpoint at its end, or None. `boundary`: it
    ends a message of the user, developer or system, which is where implicit breakpoints lie. `cached`: False for what
    stands behind the prefix and is never cached.
    """

    data: bytes
    tokens: int
    mark: str | None = None
    boundary: bool = False
    cached: bool = True


def data_of(value: Any) -> bytes:
    return compact(value).encode("utf-8", "surrogatepass")


def _tool(tool: Body) -> Element:
    function = tool.get("function", tool)
    if "name" not in function:
        return Element(data_of(["tool", tool]), opaque_tokens(tool))
    tokens = tool_tokens(function["name"], function.get("description") or "", function.get("parameters") or {})
    return Element(data_of(["tool", without_marker(tool)]), tokens, _mark(tool, "5m"))


def _mark(part: Any, default: str) -> str | None:
    """TTL of the explicit breakpoint that a part carries, or None."""
    if not isinstance(part, Mapping):
        return None
    for name in MARKERS:
        if isinstance(marker := part.get(name), Mapping):
            return str(marker.get("ttl") or ("5m" if name == "cache_control" else default))
    return None


def without_marker(part: Any) -> Any:
    """The part without the breakpoint that it may carry."""
    return {key: value for key, value in part.items() if key not in MARKERS} if isinstance(part, Mapping) else part


def _part_tokens(part: Body) -> int:
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return text_tokens(part[name])
    return opaque_tokens(without_marker(part))


def parts_of(content: Any, kind: str) -> Sequence[Any]:
    """The parts of a content; a text alone is shorthand for one part of type `kind`."""
    return [{"type": kind, "text": content}] if isinstance(content, str) else list(content or [])


def default_ttl(body: Body) -> str:
    return str((body.get("prompt_cache_options") or {}).get("ttl") or "30m")


# --- Responses ---


def input_items(body: Body) -> list[Any]:
    """The items of `input`; a text alone is shorthand for one message of the user."""
    given = body.get("input") or []
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def item_kind(item: Body) -> str:
    """The item's type; a message may leave it out."""
    return str(item.get("type") or "message")


def run_kind(item: Body) -> str:
    """`reply`: the model's own; `results`: tool results; `message`: anything else, which stands alone."""
    kind = item_kind(item)
    if kind in ("reasoning", "function_call") or (kind == "message" and item.get("role") == "assistant"):
        return "reply"
    return "results" if kind == "function_call_output" else "message"


def responses_elements(body: Body, *, instructions_first: bool) -> list[Element]:
    """The elements of a Responses request.

    `instructions_first`: whether `instructions` come before the input (before gpt-6.2) or behind it, uncached.
    """
    elements = [_tool(tool) for tool in body.get("tools") or []]
    instructions = []
    if isinstance(text := body.get("instructions"), str) and text:
        tokens = FRAME + text_tokens(text)
        instructions = [Element(data_of(["instructions", text]), tokens, cached=instructions_first)]
    if instructions_first:
        elements += instructions
    elements += [element for elements in item_elements(input_items(body), default_ttl(body)) for element in elements]
    return elements if instructions_first else elements + instructions


def item_elements(items: Sequence[Body], ttl: str) -> Iterator[list[Element]]:
    """For each item its elements; `ttl` is what a breakpoint without one inherits."""
    last = ""
    for item in items:
        run = run_kind(item)
        frame = FRAME if run == "message" or run != last else 0
        last = run
        yield list(_item(item, frame, ttl))


def _item(item: Body, frame: int, ttl: str) -> Iterator[Element]:
    kind, role = item_kind(item), item.get("role")
    if kind == "message":
        ours = role in _INSTRUCTED
        head = [kind, role, item.get("phase"), item.get("id")]
        parts = parts_of(item.get("content"), "input_text" if ours else "output_text")
        for index, part in enumerate(parts):
            tokens = _part_tokens(part) + (frame if index == 0 else 0)
            mark = _mark(part, ttl) if ours else None  # assistant output cannot carry one: silently ignored
            yield Element(data_of([head, index, without_marker(part)]), tokens, mark, ours and index == len(parts) - 1)
    elif kind == "function_call_output":
        parts = parts_of(item.get("output"), "input_text")
        for index, part in enumerate(parts):
            tokens = _part_tokens(part) + (frame + FRAME if index == 0 else 0)
            yield Element(data_of([kind, item.get("call_id"), index, without_marker(part)]), tokens, _mark(part, ttl))
    elif kind == "function_call":
        yield Element(data_of(item), frame + call_tokens(item.get("name", ""), item.get("arguments", "")))
    elif kind == "additional_tools":
        tools = [_tool(tool) for tool in item.get("tools") or []]
        yield Element(data_of([kind, item]), frame + sum(tool.tokens for tool in tools))
    else:
        yield Element(data_of([kind, item]), frame + opaque_tokens(item))


# --- Chat Completions ---


def chat_elements(body: Body) -> list[Element]:
    """The elements of a Chat Completions request."""
    elements = [_tool(tool) for tool in body.get("tools") or []]
    ttl, last = default_ttl(body), ""
    for message in body.get("messages") or []:
        role = str(message.get("role"))
        elements += _message(message, role, 0 if role == last == "tool" else FRAME, ttl)
        last = role
    return elements


def _message(message: Body, role: str, frame: int, ttl: str) -> list[Element]:
    elements = list[Element]()

    def add(data: Any, tokens: int, mark: str | None = None) -> None:
        first = FRAME if not elements or role in ("system", "developer") else 0
        head = frame if not elements else first
        elements.append(Element(data_of([role, message.get("tool_call_id"), data]), tokens + head, mark))

    for name in ("reasoning_content", "reasoning", "reasoning_details"):
        if message.get(name):
            add({name: message[name]}, opaque_tokens({name: message[name]}))
    for index, part in enumerate(parts_of(message.get("content"), "text")):
        if part.get("type") == "text" and not part.get("text"):
            continue
        own = FRAME if role == "tool" and index == 0 else 0
        add(without_marker(part), _part_tokens(part) + own, _mark(part, ttl) if role != "assistant" else _control(part))
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        add(without_marker(call), call_tokens(function.get("name", ""), function.get("arguments", "")))
    if not elements:
        add(None, FRAME if role == "tool" else 0)
    if role in _INSTRUCTED:
        final = elements[-1]
        elements[-1] = Element(final.data, final.tokens, final.mark, boundary=True)
    return elements


def _control(part: Any) -> str | None:
    """The mark of an assistant's text: Anthropic's `cache_control` may stand there, OpenAI's breakpoint may not."""
    return _mark({key: value for key, value in part.items() if key == "cache_control"}, "5m")
