"""Tool outputs in the prompts of a recorded session, and its bills without some of them. Pure; sizes in tokens.

A cache holds prefixes, so that a bill lies in the prompt in this order: read, written to live long, written to live
short, fresh (1h before 5m; provider rules 1.2, 2026-12-01). An output that is left out takes with it what of it lies in
each.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from context.account import Record
from context.billed import Billed, BilledSizes
from context.block import ToolCall
from context.canonical import digest
from context.fold import call_in_words
from context.usage import Usage

_FRAME = 16  # characters that go with a result, however short it is


@dataclass(slots=True)
class Output:
    """`name`: the call in words. `tokens`: of the largest form in which it was carried; `requests`: how many had it.

    `spans`: by the prompts that share their sizes, the block that holds it and its first and last token.
    """

    name: str
    tool: str | None
    text: str
    tokens: int = 0
    requests: int = 0
    spans: dict[int, tuple[int, int, int]] = field(default_factory=dict)


def outputs_of(record: Record) -> list[Output]:
    """All of a session, the largest first. One that was carried into another epoch counts once."""
    found: dict[tuple[str, str], Output] = {}
    longest = {id(sizes): request for request, sizes in _by_length(record)}
    for sizes in {id(sizes): sizes for sizes in record.sizes}.values():
        asked: dict[str, ToolCall] = {}
        for at, block in enumerate(longest[id(sizes)].prompt):
            asked |= {call.id: call for call in block.tool_calls}
            results = block.tool_results
            weights = [len(result.text) + _FRAME for result in results]
            start, end, done = sizes.billed(at), sizes.billed(at + 1), 0
            for result, weight in zip(results, weights, strict=True):
                first, done = start + (end - start) * done // sum(weights), done + weight
                last = start + (end - start) * done // sum(weights)
                call = asked.get(result.call_id)
                key = (result.call_id, digest(result.text.encode()))
                output = found.setdefault(key, Output(call_in_words(call), call.name if call else None, result.text))
                output.spans[id(sizes)] = (at, first, last)
                output.tokens = max(output.tokens, last - first)
    for request, sizes in zip(record.requests, record.sizes, strict=True):
        for output in found.values():
            span = output.spans.get(id(sizes))
            output.requests += span is not None and span[0] < request.prompt.length
    return sorted(found.values(), key=lambda output: -output.tokens)


def _by_length(record: Record) -> list[tuple[Billed, BilledSizes]]:
    return sorted(zip(record.requests, record.sizes, strict=True), key=lambda pair: pair[0].prompt.length)


def without(record: Record, number: int, outputs: Collection[Output]) -> Usage:
    """The bill of the recorded request of that `number`, had its prompt not held these `outputs`."""
    request, sizes = record.requests[number], record.sizes[number]
    usage, gone = request.usage, [0, 0, 0, 0]
    written, long = usage.cache_write or 0, usage.cache_write_long or 0
    ends = [usage.cache_read or 0, long, written - long, usage.fresh or 0]
    for output in outputs:
        span = output.spans.get(id(sizes))
        if span is None or span[0] >= request.prompt.length:
            continue
        start = 0
        for counter, tokens in enumerate(ends):
            gone[counter] += max(0, min(span[2], start + tokens) - max(span[1], start))
            start += tokens
    return replace(
        usage,
        fresh=ends[3] - gone[3],
        cache_read=ends[0] - gone[0],
        cache_write=written - gone[1] - gone[2],
        cache_write_long=None if usage.cache_write_long is None else long - gone[1],
    )
