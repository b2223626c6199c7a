"""What reuse of KV states is worth, against llama-cpp-python's own caches in the same run.

    python benchmarks/local_cache.py [--model FILE.gguf] [--tokens 6000]

Seconds until the first token of a reply (TTFT), each as a share of the same library's cold prompt: the next turn, a
fork, back in the conversation that was forked, the same prompt with its end edited, with its beginning edited, once
more after another prompt of that length, and in a new process. `llama-cpp-python` is its high-level class with the
cache that does best in that row: none but the sequence that it holds, `LlamaRAMCache`, and for the new process
`LlamaDiskCache`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.config import Folders
from backends.base import BackendError
from backends.llama import native
from backends.llama.cores import usable_cores
from backends.llama.decoder import ContextOptions, NativeDecoder
from backends.llama.engine import Engine
from backends.llama.kv_store import KvStore, Model
from backends.llama.models import resolve
from backends.llama.tuning import Tuning
from backends.llama.weights import Weights

DEFAULT: Final = "local/smollm2-135m"
ROWS: Final = (
    *("cold", "next turn", "fork", "back in the first", "edited tail", "edited head"),
    *("after another session", "new process"),
)
TURN: Final = 64  # tokens that a turn or an edit brings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help=f"a GGUF file (default: {DEFAULT})")
    parser.add_argument("--tokens", type=int, default=6_000, help="of the prompt")
    parser.add_argument("--child", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        path = options.model or resolve(DEFAULT, Folders.find(os.environ).models).path
        native.library()
    except BackendError as error:
        sys.exit(str(error))
    if options.child:
        run = Ours if options.child == "ours" else Theirs
        one = run(path, options.tokens, options.folder, stored=True)
        print(json.dumps(one.ttft(one.prompts["cold"])))
        one.close()
        return
    print(f"{path.name}, {options.tokens:,} tokens, {usable_cores()} threads, two cores\n")
    with tempfile.TemporaryDirectory() as folder:
        ours = measure(Ours(path, options.tokens, Path(folder) / "ours", stored=True))
        plain = measure(Theirs(path, options.tokens, Path(folder) / "plain"))
        cached = measure(Theirs(path, options.tokens, Path(folder) / "theirs", ram=True))
        ours["new process"] = child("ours", path, options.tokens, Path(folder) / "ours")
        fill = Theirs(path, options.tokens, Path(folder) / "theirs", stored=True)
        fill.ttft(fill.prompts["cold"])
        fill.close()
        cached["new process"] = child("theirs", path, options.tokens, Path(folder) / "theirs")
    print(f"{'':22} {'Keepwarm':>18} {'llama-cpp-python':>20} {'with its caches':>20}")
    for row in ROWS:
        cells = [
            f"{table[row]:8.3f} s {table[row] / table['cold']:7.1%}" if row in table else "-"
            for table in (ours, plain, cached)
        ]
        print(f"{row:22} {cells[0]:>18} {cells[1]:>20} {cells[2]:>20}")


def measure(one: "Ours | Theirs") -> dict[str, float]:
    """Seconds of each row but the last. What a turn leaves behind is kept before the next one, untimed."""
    found = {}
    for row in ROWS[:-1]:
        if row == "after another session":
            one.ttft(one.prompts["other"])
        found[row] = one.ttft(one.prompts[row])
    one.close()
    return found


def child(kind: str, path: Path, tokens: int, folder: Path) -> float:
    command = [sys.executable, __file__, "--child", kind, "--model", str(path), "--folder", str(folder)]
    told = subprocess.run([*command, "--tokens", str(tokens)], capture_output=True, text=True, check=True)
    return float(json.loads(told.stdout.splitlines()[-1]))


def prompts(tokenize: Callable[[str], "array[int]"], length: int) -> dict[str, "array[int]"]:
    """Those of the rows. Each sentence is another one, so that nothing is in common by chance."""

    def text(name: str, count: int) -> "array[int]":
        return tokenize("".join(f"{name} {at} adds {at * 7} to the sum of the list. " for at in range(count)))[:count]

    cold = text("Line", length)
    first = cold + text("Then", TURN)
    fork = cold + text("But", TURN)
    return {
        "cold": cold,
        "next turn": first,
        "fork": fork,
        "back in the first": first + text("Next", TURN),
        "edited tail": cold[:-TURN] + text("Instead", TURN),
        "edited head": text("Changed", TURN) + cold[TURN:],
        "other": text("Other", length),
        "after another session": first + text("Last", TURN),
    }


class Ours:
    def __init__(self, path: Path, length: int, folder: Path, *, stored: bool) -> None:
        self._weights = Weights.load(path)
        room = length + 6 * TURN
        self._store = KvStore(folder, Model("m", {}), 16 << 30) if stored else None
        self._decoder = NativeDecoder(self._weights, ContextOptions(room + room // 4, Tuning.unmeasured()))
        self._engine = Engine(self._decoder, room, store=self._store)
        self.prompts = prompts(self._weights.tokenize, length)

    def ttft(self, prompt: "array[int]") -> float:
        begun = time.perf_counter()
        self._engine.prefill(prompt)
        self._decoder.logits().argmax()
        spent = time.perf_counter() - begun
        self._engine.keep()
        return spent

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._decoder.close()
        self._weights.close()


class Theirs:
    """llama-cpp-python's `Llama`, with as many threads, flash attention, and without the buffers that crash on AMX."""

    def __init__(self, path: Path, length: int, folder: Path, *, ram: bool = False, stored: bool = False) -> None:
        import llama_cpp

        default = llama_cpp.llama_model_default_params

        def guarded() -> Any:
            params = default()
            params.use_extra_bufts = False
            return params

        llama_cpp.llama_model_default_params = guarded
        room, threads = length + 6 * TURN, usable_cores()
        self._llama = llama_cpp.Llama(
            *(str(path),), n_ctx=room, n_threads=threads, n_threads_batch=threads, flash_attn=True, verbose=False
        )
        llama_cpp.llama_model_default_params = default
        if ram:
            self._llama.set_cache(llama_cpp.LlamaRAMCache(16 << 30))
        if stored:
            self._llama.set_cache(llama_cpp.LlamaDiskCache(str(folder), 16 << 30))
        self.prompts = prompts(lambda text: array("i", self._llama.tokenize(text.encode(), add_bos=False)), length)

    def ttft(self, prompt: "array[int]") -> float:
        begun = time.perf_counter()
        reply = self._llama.create_completion(prompt.tolist(), max_tokens=2, temperature=0, stream=True)
        next(iter(reply))
        spent = time.perf_counter() - begun
        for _ in reply:  # its cache is filled when the reply has ended
            pass
        return spent

    def close(self) -> None:
        self._llama.close()


if __name__ == "__main__":
    main()
