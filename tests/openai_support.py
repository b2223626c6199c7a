"""Prompts, calls and raw bodies for the tests of the Responses backend."""

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
    "results",
    "run",
    "usages",
    "user",
]


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
