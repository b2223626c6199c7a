"""How much a warm KV cache saves: TTFT of a turn that appends n tokens to a prompt of N, against a cold prompt.

    python benchmarks/local_reuse.py [--model FILE.gguf] [--lengths 500 1000 2000] [--appended 16 64]

Ratios, not times: a shared machine makes both sides slower. Also the cost of sampling with the grammar of replies, in
milliseconds a token.
"""

import argparse
import os
import statistics
import sys
import time
from array import array
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.config import Folders
from backends.base import BackendError
from backends.llama.cores import usable_cores
from backends.llama.decoder import ContextOptions, NativeDecoder
from backends.llama.engine import Engine
from backends.llama.models import resolve
from backends.llama.sampling import Sampler, Sampling
from backends.llama.tool_grammar import REPLY_START, reply_grammar
from backends.llama.tuning import Tuning
from backends.llama.weights import Weights
from context.block import ToolSpec

DEFAULT: Final = "local/smollm2-135m"
REPEATS: Final = 5  # of the appended turn; the cold one is long enough to be steady
TOOL: Final = ToolSpec(
    "read", "Read a file.", '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
)
FILLER: Final = "def area(width, height):\n    return width * height  # in square metres\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help=f"a GGUF file (default: {DEFAULT})")
    parser.add_argument("--lengths", type=int, nargs="+", default=[500, 1000, 2000], help="N, in tokens")
    parser.add_argument("--appended", type=int, nargs="+", default=[16, 64], help="n, in tokens")
    options = parser.parse_args()
    try:
        path = options.model or resolve(DEFAULT, Folders.find(os.environ).models).path
        weights = Weights.load(path)
    except BackendError as error:
        sys.exit(str(error))
    cells = max(options.lengths) + max(options.appended) + 256
    decoder = NativeDecoder(weights, ContextOptions(cells, Tuning.unmeasured()))
    print(f"{path.name}, {usable_cores()} threads\n")
    reuse(weights, decoder, options.lengths, options.appended)
    print()
    sampling(weights, decoder)
    decoder.close()
    weights.close()


def reuse(weights: Weights, decoder: NativeDecoder, lengths: list[int], appended: list[int]) -> None:
    """One row for each N and n: seconds until the first token, cold and appended, and their ratio."""
    print(f"{'N':>6} {'n':>5} {'evaluated':>10} {'cold s':>8} {'appended s':>11} {'cold/appended':>14} {'(N+n)/n':>8}")
    for length in lengths:
        for extra in appended:
            prompt = text(weights, length + extra)
            engine = Engine(decoder)
            cold, _ = first_token(engine, decoder, prompt)
            warm_runs = []
            for run in range(REPEATS):
                turn = prompt[:length] + prompt[run + 1 : run + 1 + extra]  # another one each time
                seconds, evaluated = first_token(engine, decoder, turn)
                warm_runs.append(seconds)
            engine.forget()
            warm = statistics.median(warm_runs)
            print(
                f"{length:>6} {extra:>5} {evaluated:>10} {cold:>8.2f} {warm:>11.3f} {cold / warm:>14.1f} "
                f"{(length + extra) / extra:>8.1f}"
            )


def sampling(weights: Weights, decoder: NativeDecoder) -> None:
    """Median milliseconds of one token's sampling, with and without the grammar."""
    prompt = text(weights, 64) + weights.tokenize('\nReply: {"tool":"')
    print(f"{'sampling':>12} {'median ms':>10} {'worst ms':>9} {'masked':>7}   (vocabulary {weights.size:,})")
    for name, grammar in (("free", None), ("grammar", reply_grammar([TOOL]))):
        spent: list[float] = []
        masked = 0
        for seed in range(5):
            engine = Engine(decoder)
            engine.prefill(prompt)
            with Sampler(weights, Sampling(temperature=0.8, seed=seed), grammar) as sampler:
                sampler.accept_given(weights.tokenize(REPLY_START).tolist())
                written = b""

                def draw(row: int, sampler: Sampler = sampler, spent: list[float] = spent) -> int:
                    start = time.perf_counter()
                    token = sampler.sample(decoder.logits(row))
                    spent.append((time.perf_counter() - start) * 1000)
                    return token

                for token in engine.generate(draw, 24):
                    written += weights.piece(token)
                    if written.endswith(b"}}"):
                        break
                masked += sampler.masked
            engine.forget()
        print(f"{name:>12} {statistics.median(spent):>10.2f} {max(spent):>9.2f} {masked:>7}")


def text(weights: Weights, length: int) -> "array[int]":
    """Exactly `length` tokens of code."""
    filler = weights.tokenize(FILLER)
    return array("i", (filler * (length // len(filler) + 1))[:length])


def first_token(engine: Engine, decoder: NativeDecoder, prompt: "array[int]") -> tuple[float, int]:
    """Seconds until the first token of the reply is known, and tokens evaluated for it."""
    start = time.perf_counter()
    done = engine.prefill(prompt)
    decoder.logits().argmax()
    return time.perf_counter() - start, done.evaluated


if __name__ == "__main__":
    main()
