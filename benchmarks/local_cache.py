"""What reuse of KV states is worth, against llama-cpp-python's own caches in the same run.

    python benchmarks/local_cache.py [--model FILE.gguf] [--tokens 6000]

Seconds until the first token of a reply (TTFT), each as a share of the same library's cold prompt: the next turn, a
fork, back in the conversation that was forked, the same prompt with its end edited, with its beginning edited, once
more after another prompt of that length, and in a new process. `llama-cpp-python` is its high-level class, first with
nothing but the sequence that it holds, then with `LlamaRAMCache`, and for the new process `LlamaDiskCache`.

All three answer a prompt one after the other before the next one comes, so that what else the machine does meets all of
them. What takes a second is done three times; the best counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.config import Folders
from backends.base import BackendError
from backends.llama import native
from backends.llama.cores import usable_cores
from backends.llama.decoder import SPARE, ContextOptions, NativeDecoder
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
TIMES: Final = 3


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
        print(json.dumps(one.ttft(one.text(COLD))))
        one.close()
        return
    print(f"{path.name}, {options.tokens:,} tokens, {usable_cores()} threads, two cores\n")
    with tempfile.TemporaryDirectory() as folder:
        ours, plain, cached = measure(
            Ours(path, options.tokens, Path(folder) / "ours", stored=True),
            Theirs(path, options.tokens, Path(folder) / "plain"),
            Theirs(path, options.tokens, Path(folder) / "theirs", ram=True),
        )
        fill = Theirs(path, options.tokens, Path(folder) / "theirs", stored=True)
        fill.ttft(fill.text(COLD))
        fill.close()
        for _ in range(TIMES):
            for kind, table in (("ours", ours), ("theirs", cached)):
                note(table, "new process", child(kind, path, options.tokens, Path(folder) / kind))
    print(f"{'':22} {'Keepwarm':>18} {'llama-cpp-python':>20} {'with its caches':>20}")
    for row in ROWS:
        cells = [
            f"{table[row]:8.3f} s {table[row] / table['cold']:7.1%}" if row in table else "-"
            for table in (ours, plain, cached)
        ]
        print(f"{row:22} {cells[0]:>18} {cells[1]:>20} {cells[2]:>20}")


Parts = tuple[str, ...]  # of a prompt: the long one that a session begins with, then turns
COLD: Final[Parts] = ("Line",)


def steps() -> Iterator[tuple[str | None, Parts]]:
    """The prompts one after the other, each with its row; None: it is not timed."""
    yield "cold", COLD
    first = COLD
    for at in range(TIMES):
        yield "next turn", (first := (*first, f"Then {at}"))
    for at in range(TIMES):
        yield "fork", (*COLD, f"But {at}")
        yield "back in the first", (first := (*first, f"Next {at}"))
    for at in range(TIMES):
        yield "edited tail", ("Line without its end", f"Instead {at}")
    yield "edited head", ("Changed", "Line without its beginning")
    for at in range(TIMES):
        yield None, ("Other", f"More {at}")
        yield "after another session", (first := (*first, f"Last {at}"))


def measure(*all_of_them: "Ours | Theirs") -> list[dict[str, float]]:
    """Seconds of each row but the last. What a turn leaves behind is kept before the next one, untimed."""
    found: list[dict[str, float]] = [{} for _ in all_of_them]
    for row, parts in steps():
        for one, table in zip(all_of_them, found, strict=True):
            if row in table and not one.goes_back and row == "after another session":
                continue  # a minute each time
            spent = one.ttft(one.text(parts))
            if row is not None:
                note(table, row, spent)
    for one in all_of_them:
        one.close()
    return found


def note(table: dict[str, float], row: str, spent: float) -> None:
    table[row] = min(spent, table.get(row, spent))


def child(kind: str, path: Path, tokens: int, folder: Path) -> float:
    command = [sys.executable, __file__, "--child", kind, "--model", str(path), "--folder", str(folder)]
    told = subprocess.run([*command, "--tokens", str(tokens)], capture_output=True, text=True, check=True)
    return float(json.loads(told.stdout.splitlines()[-1]))


class Texts:
    """Makes prompts of parts. Each sentence is another one, so that nothing is in common by chance."""

    def __init__(self, tokenize: Callable[[str], "array[int]"], length: int) -> None:
        self._tokenize = tokenize
        self._length = length

    def __call__(self, parts: Parts) -> "array[int]":
        tokens = array("i")
        for part in parts:
            tokens += self._part(part)
        return tokens

    def _part(self, name: str) -> "array[int]":
        match name:
            case "Line" | "Other":
                return self._sentences(name, self._length)
            case "Line without its end":
                return self._sentences("Line", self._length)[:-TURN]
            case "Line without its beginning":
                return self._sentences("Line", self._length)[TURN:]
        return self._sentences(name, TURN)

    def _sentences(self, name: str, count: int) -> "array[int]":
        written = "".join(f"{name} {at} adds {at * 7} to the sum of the list. " for at in range(count))
        return self._tokenize(written)[:count]


def room(length: int) -> int:
    """Tokens of the longest prompt, with some to spare."""
    return length + (3 * TIMES + 1) * TURN


class Ours:
    goes_back = True  # to a session after another one

    def __init__(self, path: Path, length: int, folder: Path, *, stored: bool) -> None:
        self._weights = Weights.load(path)
        window = room(length)
        self._store = KvStore(folder, Model("m", {}), 16 << 30) if stored else None
        self._decoder = NativeDecoder(self._weights, ContextOptions(window + window // SPARE, Tuning.unmeasured()))
        self._engine = Engine(self._decoder, window, store=self._store)
        self.text = Texts(self._weights.tokenize, length)

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
        self.goes_back = ram
        cells, threads = room(length), usable_cores()
        self._llama = llama_cpp.Llama(
            *(str(path),), n_ctx=cells, n_threads=threads, n_threads_batch=threads, flash_attn=True, verbose=False
        )
        llama_cpp.llama_model_default_params = default
        if ram:
            self._llama.set_cache(llama_cpp.LlamaRAMCache(16 << 30))
        if stored:
            self._llama.set_cache(llama_cpp.LlamaDiskCache(str(folder), 16 << 30))
        self.text = Texts(lambda text: array("i", self._llama.tokenize(text.encode(), add_bos=False)), length)

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
