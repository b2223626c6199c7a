"""Model files made on the spot: random weights, a few hundred kB, one of each kind that llama.cpp knows.

They write nonsense, but they keep what they have read as a real model of that kind does, and every token of a prompt
shows in what they say next. Use it with `pytest_plugins = ["tiny_models"]` at the top of a test module.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from backends.llama.weights import Kind, Weights

WINDOW = 48  # tokens that the layers with a sliding window look back on
CONTEXT = 4096  # tokens that the files say they were trained for, unless told otherwise

_SEED = 20261203
_WIDTH = 64  # of a token's vector
_HEADS, _KV_HEADS, _HEAD = 4, 2, 16
_HIDDEN = 128  # of a feed-forward layer
_STATE, _CONVOLUTION, _RANK = 16, 4, 8  # of a Mamba layer
_SPREAD = 4.0  # standard deviation of the logits

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Plan:
    """An architecture of llama.cpp, and what each of its layers is: "attention", "window" or "mamba"."""

    architecture: str
    layers: tuple[str, ...]


PLANS = {
    Kind.ATTENTION: Plan("llama", ("attention", "attention")),
    Kind.WINDOW: Plan("gemma3", ("window", "attention", "window")),
    Kind.RECURRENT: Plan("mamba", ("mamba", "mamba")),
    Kind.HYBRID: Plan("jamba", ("mamba", "attention", "mamba")),
}


def make_model(kind: Kind, path: Path, context: int = CONTEXT) -> Path:
    """Write a model of this kind to `path`, which says it was trained for `context` tokens; always the same bytes."""
    plan = PLANS[kind]
    writer = gguf.GGUFWriter(path, plan.architecture)
    _describe(writer, plan, context)
    _add_vocabulary(writer)
    for name, values in _tensors(plan, np.random.default_rng(_SEED)).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("tiny-models")
    return {kind: make_model(kind, folder / f"{plan.architecture}.gguf") for kind, plan in PLANS.items()}


@pytest.fixture(scope="module")
def loaded(tiny_models: dict[Kind, Path]) -> Iterator[dict[Kind, Weights]]:
    weights = {kind: Weights.load(path) for kind, path in tiny_models.items()}
    yield weights
    for one in weights.values():
        one.close()


@pytest.fixture(params=list(Kind), ids=[kind.name.lower() for kind in Kind])
def weights(request: pytest.FixtureRequest, loaded: dict[Kind, Weights]) -> Weights:
    return loaded[request.param]


def _describe(writer: gguf.GGUFWriter, plan: Plan, context: int) -> None:
    writer.add_name(f"Tiny {plan.architecture}")
    writer.add_license("Apache-2.0")
    writer.add_context_length(context)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(len(plan.layers))
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    if set(plan.layers) == {"mamba"}:
        writer.add_head_count_kv(0)
    elif "mamba" in plan.layers:
        writer.add_head_count_kv([0 if layer == "mamba" else _KV_HEADS for layer in plan.layers])
    else:
        writer.add_head_count_kv(_KV_HEADS)
        writer.add_key_length(_HEAD)
        writer.add_value_length(_HEAD)
    if "window" in plan.layers:
        writer.add_sliding_window(WINDOW)
        writer.add_sliding_window_pattern([layer == "window" for layer in plan.layers])
    if "mamba" in plan.layers:
        writer.add_ssm_conv_kernel(_CONVOLUTION)
        writer.add_ssm_inner_size(2 * _WIDTH)
        writer.add_ssm_state_size(_STATE)
        writer.add_ssm_time_step_rank(_RANK)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """A token for each byte, in the letters that GPT-2 writes bytes with, one pair, and what frames a message."""
    tokens = [*_byte_letters(), "th", *_SPECIAL]
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([normal] * (len(tokens) - len(_SPECIAL)) + [control] * len(_SPECIAL))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _byte_letters() -> list[str]:
    """Bytes that print nothing are written with the letters from 256 on, in order."""
    printed = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


Tensors = dict[str, npt.NDArray[Any]]


def _tensors(plan: Plan, random: np.random.Generator) -> Tensors:
    """By their names in llama.cpp (src/models of the release that is installed). Scaled so that each layer changes the
    vectors about as much as the one before, and no token is likeliest whatever was read.
    """
    words = len(_byte_letters()) + 1 + len(_SPECIAL)
    found: Tensors = {
        "token_embd.weight": _matrix(random, words, _WIDTH) * np.float16(np.sqrt(_WIDTH)),
        "output_norm.weight": _ones(_WIDTH),
        "output.weight": _matrix(random, words, _WIDTH) * np.float16(_SPREAD),
    }
    for number, layer in enumerate(plan.layers):
        parts = {"attn_norm.weight": _ones(_WIDTH)}
        parts |= _mamba(random, plan) if layer == "mamba" else _attention(random, plan)
        if plan.architecture != "mamba":
            parts |= _feed_forward(random, plan)
        found |= {f"blk.{number}.{name}": values for name, values in parts.items()}
    return found


def _attention(random: np.random.Generator, plan: Plan) -> Tensors:
    parts = {
        "attn_q.weight": _matrix(random, _HEADS * _HEAD, _WIDTH) * np.float16(2),  # looks at some more than at others
        "attn_k.weight": _matrix(random, _KV_HEADS * _HEAD, _WIDTH),
        "attn_v.weight": _matrix(random, _KV_HEADS * _HEAD, _WIDTH) * np.float16(2),
        "attn_output.weight": _matrix(random, _WIDTH, _HEADS * _HEAD) * np.float16(2),
    }
    if plan.architecture == "gemma3":
        parts |= {"attn_q_norm.weight": _ones(_HEAD) * 2, "attn_k_norm.weight": _ones(_HEAD)}
        parts |= {"post_attention_norm.weight": _ones(_WIDTH) * 2}
    return parts


def _feed_forward(random: np.random.Generator, plan: Plan) -> Tensors:
    parts = {
        "ffn_norm.weight": _ones(_WIDTH),
        "ffn_gate.weight": _matrix(random, _HIDDEN, _WIDTH),
        "ffn_up.weight": _matrix(random, _HIDDEN, _WIDTH),
        "ffn_down.weight": _matrix(random, _WIDTH, _HIDDEN),
    }
    if plan.architecture == "gemma3":
        parts |= {"post_ffw_norm.weight": _ones(_WIDTH)}
    return parts


def _mamba(random: np.random.Generator, plan: Plan) -> Tensors:
    inner = 2 * _WIDTH
    parts: Tensors = {
        "ssm_in.weight": _matrix(random, 2 * inner, _WIDTH),
        "ssm_conv1d.weight": random.standard_normal((inner, _CONVOLUTION), dtype=np.float32) / 2,
        "ssm_conv1d.bias": np.zeros(inner, dtype=np.float32),
        "ssm_x.weight": _matrix(random, _RANK + 2 * _STATE, inner) * np.float16(2),
        "ssm_dt.weight": _matrix(random, inner, _RANK),
        "ssm_dt.bias": np.full(inner, -2, dtype=np.float32),
        # A state fades to a third in 8 to some thousand tokens: those at the head of a prompt still show at its end.
        "ssm_a": -np.tile(np.geomspace(0.001, 1, _STATE, dtype=np.float32), (inner, 1)),
        "ssm_d": _ones(inner),
        "ssm_out.weight": _matrix(random, _WIDTH, inner),
    }
    if plan.architecture == "jamba":
        parts |= {"ssm_dt_norm.weight": _ones(_RANK)}
        parts |= {"ssm_b_norm.weight": _ones(_STATE), "ssm_c_norm.weight": _ones(_STATE)}
    return parts


def _matrix(random: np.random.Generator, rows: int, columns: int) -> npt.NDArray[np.float16]:
    """Keeps the length of what it is multiplied with, roughly."""
    values = random.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
    return values.astype(np.float16)


def _ones(size: int) -> npt.NDArray[np.float32]:
    return np.ones(size, dtype=np.float32)
