"""GGUF headers made by hand: what tests of model files need, without a model."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_KINDS: dict[type, tuple[int, str]] = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}

TINY: Mapping[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 8192,
}


@dataclass(frozen=True)
class Raw:
    """A value written as it is: its type number and bytes."""

    kind: int
    data: bytes


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    match value:
        case Raw(kind, data):
            return struct.pack("<I", kind) + data
        case str():
            return struct.pack("<I", 8) + text(value)
        case list() if value and isinstance(value[0], str):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        case list():
            kind, form = _KINDS[type(value[0])]
            return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(struct.pack(form, each) for each in value)
        case _:
            kind, form = _KINDS[type(value)]
            return struct.pack("<I", kind) + struct.pack(form, value)


def header(
    metadata: Mapping[str, Any], tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = (), **counts: int
) -> bytes:
    """A header of version 3. Tensors: name, shape, type, offset. `pairs`, `tensor_count`: lies about their number."""
    pairs = counts.get("pairs", len(metadata))
    data = b"GGUF" + struct.pack("<IQQ", 3, counts.get("tensor_count", len(tensors)), pairs)
    for key, value in metadata.items():
        data += text(key) + _value(value)
    for name, shape, kind, offset in tensors:
        data += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return data + bytes(-len(data) % 32)
