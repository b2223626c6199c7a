"""How many replies of a local model at temperature 1 are calls that can be run, or answers: all must be.

    python benchmarks/tool_calls.py [--model FILE.gguf] [--samples 1000] [--longest 120]

Samples over the whole vocabulary (no top-k, top-p, min-p), with the tools and the prompt of a session, each of another
task. A reply that is cut at the limit is neither, and counted apart: no part of it may be told as a call.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.config import Folders
from agent.tools import specs
from agent.tools.arguments import parse_arguments
from agent.tools.base import ToolError
from backends.base import BackendError, MemoryWireStore, ReplyFinished, Request, StopReason
from backends.llama.backend import LlamaBackend
from backends.llama.models import resolve
from backends.llama.sampling import Sampling
from context.block import ToolCall, ToolSpec
from context.layers.command import command_block
from context.layers.system import system_blocks
from context.prompt import Prompt

DEFAULT: Final = "local/smollm2-135m"
TASKS: Final = ("Read file{0}.py.", "Rename f{0} to g{0}.", "Which tests cover f{0}?", "Run the tests of part {0}.")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help=f"a GGUF file (default: {DEFAULT})")
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first sample")
    parser.add_argument("--longest", type=int, default=120, help="tokens of a reply")
    options = parser.parse_args()
    path = options.model or resolve(DEFAULT, Folders.find(os.environ).models).path
    tools = {spec.name: spec for spec in specs("compact")}
    head = Prompt.empty().extend(system_blocks("compact", tuple(tools.values())))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as state:
        backend = LlamaBackend(
            *(path,),
            name="local/benchmark",
            wires=MemoryWireStore(),
            context=4_096,
            sampling=Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
            state=Path(state),
        )
        try:
            for number in range(options.first, options.first + options.samples):
                command = TASKS[number % len(TASKS)].format(number)
                prompt = head.append(command_block(command))
                async with aclosing(backend.stream(Request(prompt, max_output=options.longest))) as events:
                    finished = [event async for event in events if isinstance(event, ReplyFinished)][-1]
                kind = what_it_is(finished, tools)
                found[kind] += 1
                if kind == "wrong":
                    print(f"sample {number}: {finished}")
                sys.stderr.write(f"\r{found.total()} of {options.samples}: {dict(found)}  ")
        finally:
            await backend.aclose()
    sys.stderr.write("\n")
    print(f"{path.name}, {options.samples:,} samples at temperature 1: {dict(found)}")
    sys.exit(1 if found["wrong"] else 0)


def what_it_is(finished: ReplyFinished, tools: dict[str, ToolSpec]) -> str:
    calls = [part for part in finished.parts if isinstance(part, ToolCall)]
    if finished.stop is StopReason.MAX_OUTPUT:
        return "wrong" if calls else "cut"
    if finished.stop is StopReason.TOOLS and len(calls) == 1:
        try:
            parse_arguments(tools[calls[0].name], calls[0].arguments)
        except (ToolError, KeyError):
            return "wrong"
        return "call"
    return "answer" if finished.stop is StopReason.END and not calls else "wrong"


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except BackendError as error:
        sys.exit(str(error))
