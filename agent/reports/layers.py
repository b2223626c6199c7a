"""What the layers of a session's prompts have cost, and which files and tool outputs were dear to carry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from agent.ledger_rows import CallRow, SessionRow
from agent.rates import RateBook
from agent.reports.spend import Spend, cell_of, input_bill, is_billed, money_by_counter
from context.attribution import Carried, InputBill, by_part, split, split_tokens
from context.block import Block, Layer, Role, ToolCall, ToolResult, ToolSpec
from context.fold import call_in_words, is_command

if TYPE_CHECKING:
    from agent.ledger import Ledger

LAYERS: Final = (Layer.SYSTEM.value, Layer.PROJECT.value, Layer.HISTORY.value, Layer.COMMAND.value)
OUTPUT: Final = "output"
PINGS: Final = "pings"
UNKNOWN: Final = "unknown"
"""Calls of which not all counters and prices are known, and those of other agents: their layers cannot be told."""


@dataclass(frozen=True, slots=True)
class LayerTokens:
    """The input of one call by layer, in the order of `LAYERS`. `at`: seconds since the epoch."""

    call: int
    turn: int | None
    at: float
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Burden:
    """A part of the prompt that `calls` calls had in their input: `tokens` of it (estimated), for `usd` in all. `tool`:
    whose output it is, if it is one.
    """

    name: str
    layer: str
    tool: str | None
    tokens: int
    calls: int
    usd: Decimal


@dataclass(slots=True)
class LayerReport:
    """`layers`: by name, in the order in which they lie in the prompt, then output and pings; all of the bill is in
    them. `burdens`: the dearest first.
    """

    layers: dict[str, Spend]
    calls: list[LayerTokens] = field(default_factory=list)
    burdens: list[Burden] = field(default_factory=list)


def layer_report(
    ledger: "Ledger", session: SessionRow, book: RateBook, covers: Callable[[float], bool] = lambda _: True
) -> LayerReport:
    """Of the calls and pings in whose quarter of an hour `covers` is true.

    Raises LedgerError for a block that cannot be read.
    """
    calls = [call for call in ledger.calls(session.id) if is_billed(call) and covers(call.started)]
    prompts = {epoch: list(ledger.prompt(session.id, epoch=epoch)) for epoch in {call.epoch for call in calls}}
    carried = {epoch: Carried([0, *accumulate(b.tokens for b in blocks)]) for epoch, blocks in prompts.items()}
    report = LayerReport({name: Spend() for name in (*LAYERS, OUTPUT)})
    sent: dict[int, int] = {}
    for call in calls:
        blocks = prompts[call.epoch][: call.blocks]
        if call.epoch not in sent:  # what a new epoch carries on was sent before, in other words
            sent[call.epoch] = _before_last_command(blocks)
        bill = _add(report, call, blocks, sent[call.epoch], book)
        if bill is not None:
            carried[call.epoch].add(len(blocks), bill)
        if call.purpose == "turn":
            sent[call.epoch] = len(blocks)
    pings = [ping for ping in ledger.pings.of(session.id) if covers(ping.at)]
    if pings:
        report.layers[PINGS] = Spend()
    for ping in pings:
        report.layers[PINGS].add_ping(ping)
    report.burdens = _burdens([(blocks, carried[epoch]) for epoch, blocks in sorted(prompts.items())])
    return report


def _before_last_command(blocks: Sequence[Block]) -> int:
    return max((at for at, block in enumerate(blocks) if is_command(block)), default=0)


def _add(report: LayerReport, call: CallRow, blocks: Sequence[Block], sent: int, book: RateBook) -> InputBill | None:
    """Add a call. Its input, if its layers can be told."""
    cell = cell_of(call)
    rates = book.of(call.model, call.started, cell.input, cell.tier)
    bill, money = input_bill(cell, rates), money_by_counter(cell, rates)
    sizes = [0] * len(LAYERS)
    for at, block in enumerate(blocks):
        layer = block.layer
        if layer not in (Layer.SYSTEM, Layer.PROJECT):
            layer = Layer.HISTORY if at < sent else Layer.COMMAND
        sizes[LAYERS.index(layer.value)] += block.tokens
    if bill is None or money is None or not sum(sizes):
        report.layers.setdefault(UNKNOWN, Spend()).add(cell, rates)
        return None
    parts = by_part(sizes, bill)
    for name, part in zip(LAYERS, parts, strict=True):
        report.layers[name].add_part(part)
    report.layers[OUTPUT].add_output(cell.output.known, cell.reasoning, money["output"])
    report.calls.append(LayerTokens(call.number, call.turn, call.started, tuple(part.total for part in parts)))
    return bill


def _burdens(epochs: Sequence[tuple[Sequence[Block], Carried]]) -> list[Burden]:
    """The dearest first. What several epochs carried, maybe folded in the later ones, is one."""
    found: dict[str, Burden] = {}
    for blocks, carried in epochs:
        asked = {call.id: call for block in blocks for call in block.tool_calls}
        for carry, block in zip(carried.blocks(), blocks, strict=True):
            names = _names(block, asked)
            sizes = [size for *_, size in names]
            shares = zip(names, split_tokens(block.tokens, sizes), split(carry.usd, sizes), strict=True)
            for (key, name, tool, _), tokens, usd in shares:
                before = found.get(key, Burden(name, block.layer.value, tool, tokens, 0, Decimal(0)))
                found[key] = replace(before, calls=before.calls + carry.calls, usd=before.usd + usd)
    return sorted(found.values(), key=lambda burden: -burden.usd)


def _names(block: Block, asked: dict[str, ToolCall]) -> list[tuple[str, str, str | None, int]]:
    """The parts of a block that a person would tell apart: what it is known by in all epochs, its name, whose output it
    is, its size beside the others.
    """
    if block.tool_results:
        return [_result(result, asked.get(result.call_id)) for result in block.tool_results]
    if block.layer is Layer.SYSTEM:
        tools = sum(isinstance(part, ToolSpec) for part in block.parts)
        return [(block.digest, f"{tools} tools" if tools else "instructions", None, 1)]
    if block.layer is Layer.PROJECT:
        return [(block.digest, "snapshot of the repository", None, 1)]
    if block.tool_calls:
        return [
            (block.tool_calls[0].id, "call: " + ", ".join(call_in_words(call) for call in block.tool_calls), None, 1)
        ]
    kind = "reply" if block.role is Role.ASSISTANT else "command" if is_command(block) else "notice"
    return [(block.digest, f"{kind}: {' '.join(block.text.split())[:60]}", None, 1)]


def _result(result: ToolResult, call: ToolCall | None) -> tuple[str, str, str | None, int]:
    return f"result {result.call_id}", call_in_words(call), call.name if call else None, len(result.text)


def by_tool(report: LayerReport, total: Decimal) -> dict[str, tuple[int, Decimal]]:
    """How many outputs each tool had in the prompt, and what they cost in USD; what is left of `total` under ""."""
    tools: dict[str, tuple[int, Decimal]] = {}
    for burden in report.burdens:
        if burden.tool is not None:
            count, usd = tools.get(burden.tool, (0, Decimal(0)))
            tools[burden.tool] = (count + 1, usd + burden.usd)
    rest = total - sum((usd for _, usd in tools.values()), Decimal(0))
    return {**tools, "": (0, rest)}
