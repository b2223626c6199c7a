"""The emulator's published tokenizer: o200k_base on the wire form, each text counted on its own.

A message costs its frame and its parts; what a part costs is the same in every API, so that one conversation has one
size everywhere. All numbers are tokens.
"""

import functools
import json
from typing import Any

import toktok

FRAME = 4  # a message; also a tool call, a tool result and a tool definition, on top of their texts


@functools.lru_cache(maxsize=200_000)
def text_tokens(text: str) -> int:
    return int(toktok.batch_count([text.encode(errors="replace").decode()], "o200k_base")[0])


def call_tokens(name: str, arguments: str) -> int:
    """A tool call; `arguments` is the JSON text."""
    return text_tokens(f"{name}\n{arguments}") + FRAME


def result_tokens(text: str) -> int:
    return text_tokens(text) + FRAME


def tool_tokens(name: str, description: str, schema: Any) -> int:
    """A tool definition; `schema` is the JSON schema of its parameters."""
    return text_tokens(f"{name}\n{description}\n{compact(schema)}") + FRAME


def opaque_tokens(part: Any) -> int:
    """Reasoning of any kind: a quarter of the bytes of its compact JSON."""
    return len(compact(part).encode(errors="replace")) // 4


def compact(value: Any) -> str:
    """JSON text without spaces, in the order that it came in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
