"""Counts the tokens of new blocks in a process of its own, while this one does other work.

The tokenizer takes a third of a second to build its tables, with the interpreter lock held, and the forecast of the
first request needs it while the SDK is still being imported. Built in a small process beside this one, it costs the
first request nothing on a machine with two processors.
"""

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from context.block import Block
from context.tokens import overhead, texts

# Reads lists of texts, one JSON list a line, and answers each with the list of their counts.
_CHILD: Final = """
import json, sys
sys.path.insert(0, sys.argv[1])
import toktok
toktok.batch_count([""], "o200k_base")
for line in sys.stdin:
    print(json.dumps([int(n) for n in toktok.batch_count(json.loads(line), "o200k_base")]), flush=True)
"""


class Counter:
    """`start` it early. Where it cannot run, blocks are counted in this process when they are looked at."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        spec = importlib.util.find_spec("toktok")
        if spec is None or spec.origin is None:
            return
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _CHILD, str(Path(spec.origin).parent.parent)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for us
            )
        except OSError:
            self._process = None

    async def count(self, blocks: Iterable[Block]) -> None:
        """See to it that `tokens` of each block is known."""
        unknown = [block for block in blocks if block.known_tokens is None]
        if not unknown or self._process is None:
            return
        batches = [texts(block.parts) for block in unknown]
        async with self._turn:
            try:
                counts = await self._ask([text for batch in batches for text in batch])
            except (OSError, ValueError):  # it was killed: what is not known is counted here
                self._process = None
                return
        for block, batch in zip(unknown, batches, strict=True):
            block.learn_tokens(overhead(block.parts) + sum(counts[: len(batch)]))
            del counts[: len(batch)]

    async def _ask(self, asked: list[str]) -> list[int]:
        """Their counts, in order. Raises OSError or ValueError when the process does not answer."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ValueError("no process to ask")
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        await process.stdin.drain()
        counts: list[int] = json.loads(await process.stdout.readline())
        if len(counts) != len(asked):
            raise ValueError("an answer to another question")
        return counts

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()  # it ends when there is nothing more to read
            await process.wait()
