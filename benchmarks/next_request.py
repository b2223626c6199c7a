"""Building the next request costs O(new blocks): the same turn on prompts of 10, 1,000 and 100,000 blocks.

Per step: append two blocks, plan the markers, build the body. The copy of the body's bytes, which sending costs
anyway, is shown apart. `python benchmarks/next_request.py`
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from backends.anthropic_wire import RequestBody
from backends.base import MemoryWireStore
from context.block import Block, Layer, Role, Text
from context.breakpoints import plan_markers
from context.cache_rules import CacheRules
from context.prompt import Prompt

STEPS = 200


def block(number: int, role: Role) -> Block:
    return Block.make(Layer.COMMAND, role, [Text(f"message {number} " + "x" * 200)], 60)


def measure(length: int) -> tuple[float, float, int]:
    """Median seconds of growing by two blocks, and of taking the body; the body's size in bytes."""
    body = RequestBody(MemoryWireStore(), "anthropic:any")
    prompt = Prompt.empty().append(Block.make(Layer.SYSTEM, Role.SYSTEM, [Text("system")], 2000))
    prompt = prompt.extend(block(n, Role.USER if n % 2 else Role.ASSISTANT) for n in range(length))
    body.extend_to(prompt)
    grow, take = [], []
    for step in range(STEPS):
        new = [block(step, Role.ASSISTANT), block(step, Role.USER)]
        started = time.perf_counter()
        sent = prompt.length
        prompt = prompt.extend(new)
        markers = plan_markers(prompt, CacheRules(), sent)
        body.extend_to(prompt)
        grow.append(time.perf_counter() - started)
    for _ in range(20):  # apart: copying tens of megabytes empties the processor's caches for whatever follows
        started = time.perf_counter()
        size = len(body.take({"model": "m"}, markers, {"max_tokens": 1}))
        take.append(time.perf_counter() - started)
    return statistics.median(grow), statistics.median(take), size


def main() -> None:
    base = None
    print(f"{'blocks':>8}{'grow by 2':>12}{'ratio':>7}{'copy body':>12}{'body':>10}")
    for length in (10, 1_000, 100_000):
        grow, take, size = measure(length)
        base = base or grow
        print(f"{length:>8,}{grow * 1e6:>9.0f} µs{grow / base:>7.2f}{take * 1e6:>9.0f} µs{size / 1e6:>7.2f} MB")


if __name__ == "__main__":
    main()
