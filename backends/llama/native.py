"""llama.cpp's library: imported when first needed, silenced, guarded, and its failures put into words.

The guard. On CPUs with AMX, a plain `pip install llama-cpp-python` builds a library that dies in the first decode of
more than one token (ggml-org/llama.cpp#20824, seen with llama-cpp-python 0.3.36 on 2026-12-01). The crash is in the
weight-repacking buffers, which `use_extra_bufts = False` leaves out; nothing was lost in speed where both ran. What the
guard does not know of is found by the trial run of `probe`.

Waiting threads sleep (`OMP_WAIT_POLICY=passive`) instead of spinning, which is OpenMP's default and starves the thread
that all others wait for as soon as another program is busy: 1.9 tokens a second instead of 9.8 on two cores with one of
them taken, against 6.5 asleep, and no difference on an idle machine (Qwen2.5-Coder 1.5B, measured 2026-12-01).
"""

import contextlib
import ctypes
import faulthandler
import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from backends.base import BackendError, ErrorKind

INSTALL: Final = "pip install '.[local]' (in Keepwarm's checkout)"
CELLS_STEP: Final = 256
"""A context has a multiple of so many cells: llama.cpp rounds up what it is asked for."""

_WAIT_POLICY: Final = "OMP_WAIT_POLICY"
_WARNING: Final = 3  # ggml_log_level: 1 debug, 2 info, 3 warning, 4 error, 5 continues the line before


@dataclass(frozen=True, slots=True)
class KvType:
    """Of the values in a KV cache: its number in ggml_type, and bytes a value (ggml's block formats)."""

    ggml: int
    bytes: float


KV_TYPES: Final = {"f16": KvType(1, 2.0), "q8_0": KvType(8, 34 / 32), "q4_0": KvType(2, 18 / 32)}

_said: deque[str] = deque(maxlen=20)
_keep: list[object] = []  # callbacks that the library holds on to


def library() -> Any:
    """The module `llama_cpp.llama_cpp`, ready to use. Raises BackendError (LOCAL) where it is missing or broken."""
    try:
        return _library()
    except ModuleNotFoundError as error:
        raise BackendError(
            ErrorKind.LOCAL,
            f"Local models need llama.cpp, which is not installed ({error.name} is missing). Run: {INSTALL}",
        ) from error
    except (ImportError, OSError, RuntimeError) as error:  # llama_cpp raises RuntimeError for a library it cannot load
        raise BackendError(
            ErrorKind.LOCAL,
            f"llama.cpp is installed but cannot be loaded: {_one_line(str(error))}. "
            "Build it again: pip install --force-reinstall --no-cache-dir llama-cpp-python",
        ) from error


@cache
def _library() -> Any:
    with _sleeping_threads(os.environ):
        import llama_cpp.llama_cpp as lib

    level_before = 0

    def record(level: int, text: bytes, _user_data: object) -> None:
        nonlocal level_before
        level_before = level if level != 5 else level_before
        if level_before >= _WARNING:
            _said.append(text.decode(errors="replace").rstrip())

    callback = lib.llama_log_callback(record)
    _keep.append(callback)
    lib.llama_log_set(callback, ctypes.c_void_p(0))
    lib.llama_backend_init()
    # If native code dies in spite of all, the terminal says where instead of just returning to the shell.
    if not faulthandler.is_enabled() and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error is no real file (captured)
            faulthandler.enable()
    return lib


@contextlib.contextmanager
def _sleeping_threads(environ: MutableMapping[str, str]) -> Iterator[None]:
    """OpenMP reads its settings once, when it is loaded; the commands that we run must not inherit them."""
    if _WAIT_POLICY in environ:
        yield
        return
    environ[_WAIT_POLICY] = "passive"
    try:
        yield
    finally:
        environ.pop(_WAIT_POLICY, None)


def last_words() -> str:
    """llama.cpp's own last warnings and errors, as one line, and forgets them."""
    said = [_one_line(line) for line in _said if line.strip()]
    _said.clear()
    return "; ".join(said[-3:])


def _one_line(text: str) -> str:
    # The function names in front of the messages tell a user nothing.
    return re.sub(r"^\w+: ", "", " ".join(text.split())).rstrip(".")


def load_weights(path: Path, gpu_layers: int | None = None) -> Any:
    """The `llama_model` pointer for a GGUF file, with so many layers on the GPU if this build has one (None: all).

    Raises BackendError (LOCAL) in llama.cpp's own words.
    """
    lib = library()
    params = lib.llama_model_default_params()
    if not lib.llama_supports_gpu_offload():
        params.n_gpu_layers = 0
    elif gpu_layers is not None:
        params.n_gpu_layers = gpu_layers
    params.use_extra_bufts = False  # the guard, see above
    last_words()
    model = lib.llama_model_load_from_file(str(path).encode(errors="surrogateescape"), params)
    if not model:
        raise BackendError(
            ErrorKind.LOCAL,
            f"llama.cpp cannot load {path}: {last_words() or 'it gave no reason'}. The file may be cut off or of a "
            "kind that this release does not know: download it again, or choose a model of `agent models list`.",
        )
    return model


def open_context(
    model: Any,
    *,
    cells: int,
    sequences: int,
    threads: tuple[int, int],
    batch: int,
    rows: int,
    flash_attention: bool | None,
    kv_type: str,
) -> Any:
    """A `llama_context` pointer with room for `cells` tokens in all `sequences` together, which takes at most `batch`
    tokens at once and gives the logits of `rows` of them. `threads` for a single token, and for several at once;
    `flash_attention` None: where llama.cpp thinks it helps; `kv_type`: one of KV_TYPES.

    Raises BackendError (LOCAL) when it cannot be made, mostly for lack of memory.
    """
    lib = library()
    params = lib.llama_context_default_params()
    params.n_ctx = cells
    params.n_batch = params.n_ubatch = batch
    # Instead of a row for each token of a batch. llama.cpp aborts with less than one for each sequence (0.3.36).
    params.n_outputs_max, params.n_outputs_max_per_seq = max(rows, sequences), rows
    params.n_threads, params.n_threads_batch = threads
    params.n_seq_max = sequences
    params.kv_unified = True  # sequences share the cells of what they have in common
    params.flash_attn_type = (
        lib.LLAMA_FLASH_ATTN_TYPE_AUTO
        if flash_attention is None
        else lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if flash_attention
        else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.type_k = params.type_v = KV_TYPES[kv_type].ggml
    # A sliding-window cache of its normal size forgets what a rollback needs; the full one stays exact.
    params.swa_full = True
    last_words()
    pointer = lib.llama_init_from_model(model, params)
    if not pointer:
        raise BackendError(
            ErrorKind.LOCAL,
            f"llama.cpp cannot make a context of {cells:,} tokens: {last_words() or 'it gave no reason'}. "
            "Close other programs, or use a smaller context or model.",
        )
    return pointer


def metadata(model: Any, key: str) -> str | None:
    """A value of the model file's metadata, as text."""
    buffer = ctypes.create_string_buffer(256)
    length = library().llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return None if length < 0 else buffer.value.decode(errors="replace")


def cache_bytes(model: Any, cells: int, kv_type: str = "f16") -> int:
    """Memory in bytes that the KV cache of `cells` tokens takes, where every layer is like the first one; see
    `needs.Demand`.
    """
    lib = library()
    key_length = metadata(model, f"{metadata(model, 'general.architecture')}.attention.key_length")
    head = int(key_length) if key_length else lib.llama_model_n_embd(model) // max(1, lib.llama_model_n_head(model))
    values = cells * lib.llama_model_n_layer(model) * lib.llama_model_n_head_kv(model) * head * 2
    return math.ceil(float(values) * KV_TYPES[kv_type].bytes)


def available_memory(
    meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")
) -> int | None:
    """Bytes that can be used without swapping, at most the container's limit; None where the system does not say."""
    known: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        known += [int(line.split()[1]) * 1024 for line in meminfo.read_text().splitlines() if "MemAvailable" in line]
    with contextlib.suppress(OSError, ValueError):  # "max": there is no limit
        known.append(int(limit.read_text()))
    return min(known, default=None)


AvailableMemory = Callable[[], int | None]


def require_memory(needed: int, cells: int, available: AvailableMemory = available_memory) -> None:
    """Raise BackendError (LOCAL) when a KV cache of `needed` bytes for `cells` tokens cannot fit: the system would kill
    the process without a word.

    The weights are mapped from the file and can be dropped and read again, so they do not count.
    """
    free = available()
    if free is not None and needed > free:
        raise BackendError(
            ErrorKind.LOCAL,
            f"A context of {cells:,} tokens needs {_gigabytes(needed)} of memory for its KV cache, and "
            f"{_gigabytes(free)} are free. Close other programs, or use a smaller context or model.",
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
