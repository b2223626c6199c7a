"""Prompts, calls and raw bodies for the tests of the Responses backend."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from anthropic_support import HEAD, NOW, Talk, assistant, block, calls, finished, results, run, usages, user
from emulator import Emulator

from backends.base import MemoryWireStore
from backends.catalog import Catalog
from backends.openai import OpenAIBackend

__all__ = [
    "HEAD",
    "NOW",
    "Talk",
    "assistant",
    "backend_for",
    "block",
    "breakpoints",
    "calls",
    "finished",
    "raw_input",
    "results",
    "run",
    "usages",
    "user",
]

# A quotation mark inside a JSON text is escaped, so this cannot be part of one.
_BREAKPOINT = re.compile(rb',"prompt_cache_breakpoint":\{"mode":"explicit"(?:,"ttl":"(?:30m|12h)")?\}')


def backend_for(server: Emulator, model: str = "gpt-6.2-sol", **options: Any) -> OpenAIBackend:
    options.setdefault("wires", MemoryWireStore())
    options.setdefault("env", server.env)
    return OpenAIBackend(Catalog.load().find(f"openai/{model}"), now=lambda: NOW, **options)


def breakpoints(body: Mapping[str, Any]) -> list[tuple[int, str | None]]:
    """Number of the item, and TTL, of each breakpoint in order."""
    return list(_breakpoints(body))


def _breakpoints(body: Mapping[str, Any]) -> Iterator[tuple[int, str | None]]:
    for number, item in enumerate(body["input"]):
        for part in item.get("content") or item.get("output") or []:
            if isinstance(part, Mapping) and (mark := part.get("prompt_cache_breakpoint")):
                yield number, mark.get("ttl")


def raw_input(raw: bytes) -> bytes:
    """The bytes of a request from its first one to the end of its last item, as they were sent; breakpoints cut out."""
    start = raw.index(b'"input":[') + len(b'"input":[')
    text, decode = raw[start:].decode(), json.JSONDecoder().raw_decode
    end, at = 0, 0
    while text[at] != "]":
        _, end = decode(text, at)
        at = end + (text[end] == ",")
    return _BREAKPOINT.sub(b"", raw[:start] + text[:end].encode())
