"""What a model file says about itself. Nothing is loaded: headers only.

Names of the metadata: GGUF specification and llama.cpp's `llama-arch.cpp` and `llama-hparams.cpp` (as of 2026-11).
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from backends.base import BackendError, ErrorKind
from backends.llama.ggml_types import FILE_TYPES, TENSOR_TYPES
from backends.llama.gguf import Contents, Items, Tensor, Value, part_paths, read_contents
from backends.llama.weights import Kind

Thinking = Literal["no", "yes", "can be switched"]

_TEMPLATE: Final = "tokenizer.chat_template"
_TAG: Final = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_SWITCH: Final = re.compile(r"\b(enable_thinking|thinking_budget|reasoning_effort)\b")
_THINKS: Final = re.compile(r"<think>|reasoning_content|\[THINK\]|<\|channel\|>analysis|<\|channel>thought")
_DEFAULT_ATTENTION_STEP: Final = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}  # llama.cpp's, where the file is silent


@dataclass(frozen=True, slots=True)
class Layers:
    """What the layers keep. `values`: numbers that all keys and values of one token are, `state`: those of the states
    that stand for all tokens of a sequence.
    """

    values: int
    state: int


@dataclass(frozen=True, slots=True)
class About:
    """A model file in words and numbers; None is what the file does not say.

    `bytes`: of all its parts. `context`: trained, in tokens. `window`: of a sliding attention window in tokens, 0
    without one. `layers` is None when the file does not say enough to tell the memory. `missing`: bytes that the file
    should have and has not.
    """

    architecture: str
    name: str | None
    parameters: int
    quantisation: str | None
    bytes: int
    parts: int
    context: int | None
    kind: Kind
    window: int
    chat_template: bool
    tools: bool
    thinking: Thinking
    licence: str | None
    vocabulary: int | None
    tokenizer: str | None
    layers: Layers | None
    missing: int


def read_about(path: Path) -> About:
    """Read a model file, all parts of a split one. Raises BackendError (LOCAL) for a file that is no model."""
    parts = part_paths(path)
    contents = [read_contents(part) for part in parts]
    return about(contents, path)


def about(contents: Sequence[Contents], path: Path) -> About:
    """What the headers of a model's parts say, the first one first. `path` is named in errors."""
    metadata = contents[0].metadata
    architecture = _word(metadata, "general.architecture")
    if architecture is None:
        raise BackendError(
            ErrorKind.LOCAL, f"{path} does not say what architecture its model has: it is no model that can be run."
        )
    own = _Own(metadata, architecture)
    layers, kind = _layers(own), _kind(own)
    template = "\n".join(str(value) for key, value in metadata.items() if key.startswith(_TEMPLATE))
    tensors = [tensor for part in contents for tensor in part.tensors]
    return About(
        architecture=architecture,
        name=_word(metadata, "general.name"),
        parameters=sum(math.prod(tensor.shape) for tensor in tensors),
        quantisation=_quantisation(metadata, tensors),
        bytes=sum(part.size for part in contents),
        parts=len(contents),
        context=own.number("context_length"),
        kind=kind,
        window=own.number("attention.sliding_window") or 0 if kind is Kind.WINDOW else 0,
        chat_template=bool(template),
        tools=any(re.search(r"\btools\b", tag) for tag in _TAG.findall(template)),
        thinking=_thinking(template),
        licence=_word(metadata, "general.license.name") or _word(metadata, "general.license"),
        vocabulary=_vocabulary(own, metadata),
        tokenizer=_word(metadata, "tokenizer.ggml.model"),
        layers=layers,
        missing=sum(_missing(part) for part in contents),
    )


class _Own:
    """The metadata of the model's own architecture, such as `llama.block_count`."""

    def __init__(self, metadata: Mapping[str, Value], architecture: str) -> None:
        self._metadata, self.architecture = metadata, architecture

    def get(self, key: str) -> Value | None:
        return self._metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int | None:
        """A count. Anything else under that name says nothing."""
        return _count(self.get(key))

    def each(self, key: str, layers: int) -> list[int] | None:
        """One number for each layer, also where the file gives one for all."""
        value = self.get(key)
        if isinstance(value, Items):
            numbers = [number for number in map(_count, value.values) if number is not None]
            return numbers if len(numbers) == layers else None
        number = _count(value)
        return None if number is None else [number] * layers


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _word(metadata: Mapping[str, Value], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) and value else None


def _has_state(own: _Own) -> bool:
    return any(own.number(key) for key in ("ssm.inner_size", "wkv.head_size", "shortconv.l_cache"))


def _kv_heads(own: _Own, layers: int) -> list[int] | None:
    """Key-value heads of each layer; 0 in those without attention."""
    heads = own.each("attention.head_count_kv", layers) or own.each("attention.head_count", layers)
    step = own.number("full_attention_interval") or _DEFAULT_ATTENTION_STEP.get(own.architecture)
    if heads is not None and step and _has_state(own):
        heads = [count if (layer + 1) % step == 0 else 0 for layer, count in enumerate(heads)]
    return heads


def _kind(own: _Own) -> Kind:
    if _has_state(own):
        layers = own.number("block_count") or 0
        attention = layers <= _MOST_LAYERS and any(_kv_heads(own, layers) or [])
        return Kind.HYBRID if attention else Kind.RECURRENT
    return Kind.WINDOW if own.number("attention.sliding_window") else Kind.ATTENTION


_MOST_LAYERS: Final = 4_096  # a count above is damage


def _layers(own: _Own) -> Layers | None:
    count, width = own.number("block_count"), own.number("embedding_length")
    if not count or not width or count > _MOST_LAYERS:
        return None
    kv_heads = _kv_heads(own, count)
    if kv_heads is None and not _has_state(own):
        return None
    kv_heads = kv_heads or [0] * count
    query_heads = own.each("attention.head_count", count) or [0] * count
    head = width // max(1, *query_heads)
    key = own.number("attention.key_length") or head
    value = own.number("attention.value_length") or head
    stateful = 0
    if _has_state(own):  # where a layer has no attention, it has a state; where all have both, all have one
        stateful = kv_heads.count(0) or count
    return Layers(sum(kv_heads) * (key + value), stateful * _state(own, width))


def _state(own: _Own, width: int) -> int:
    """Numbers in the state of one layer, as llama.cpp counts them (`n_embd_r` and `n_embd_s`)."""
    if head := own.number("wkv.head_size"):
        return width * head + width * (own.number("token_shift_count") or 2)
    if shift := own.number("shortconv.l_cache"):
        return width * (shift - 1)
    inner, size = own.number("ssm.inner_size") or 0, own.number("ssm.state_size") or 0
    convolution = max(0, (own.number("ssm.conv_kernel") or 0) - 1)
    return convolution * (inner + 2 * (own.number("ssm.group_count") or 0) * size) + size * inner


def _quantisation(metadata: Mapping[str, Value], tensors: Sequence[Tensor]) -> str | None:
    stated = FILE_TYPES.get(_count(metadata.get("general.file_type")) or 0)
    if stated is not None and "general.file_type" in metadata:
        return stated
    weight: Counter[int] = Counter()
    for tensor in tensors:
        weight[tensor.type] += math.prod(tensor.shape)
    most = next((number for number, _ in weight.most_common(1)), None)
    return None if most not in TENSOR_TYPES else f"mostly {TENSOR_TYPES[most].name}"


def _vocabulary(own: _Own, metadata: Mapping[str, Value]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return tokens.count if isinstance(tokens, Items) else own.number("vocab_size")


def _thinking(template: str) -> Thinking:
    if _SWITCH.search(template):
        return "can be switched"
    return "yes" if _THINKS.search(template) else "no"


def _missing(contents: Contents) -> int:
    """Bytes behind the end of the file that tensors of known types should have."""
    end = 0
    for tensor in contents.tensors:
        stored = TENSOR_TYPES.get(tensor.type)
        if stored is not None:
            end = max(end, tensor.offset + math.prod(tensor.shape) // stored.block * stored.bytes)
    return max(0, contents.data_offset + end - contents.size) if end else 0
