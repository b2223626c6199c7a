"""A stand-in for prompts that nobody has kept: of another agent's session only the counters and times are known. Pure;
sizes in the model's own tokens.

Agents append: a request goes on from the one before unless it is shorter; then it goes on from as much of it as it
read. The head is what requests read that had lost the rest.
"""

from collections.abc import Sequence

from context.block import Block, Layer, Role, Text
from context.prompt import Prompt
from context.usage import Usage


def head_tokens(usages: Sequence[Usage]) -> int:
    """The least that a request read after the first one, where that is less than what the request before had sent;
    0: there was none.
    """
    found, before = 0, 0
    for usage in usages:
        read, total = usage.cache_read or 0, usage.input_total or 0
        if 0 < read < before * 0.9 and (not found or read < found):
            found = read
        before = total
    return found


def prompts(usages: Sequence[Usage]) -> list[tuple[Prompt, int]]:
    """A prompt of the right size for each request, and the number of its epoch."""
    head = head_tokens(usages)
    nodes = [Prompt.empty()]
    sizes = [0]
    if head:
        nodes.append(nodes[0].append(_block(Layer.SYSTEM, "head", head)))
        sizes.append(head)
    first = len(nodes)
    found: list[tuple[Prompt, int]] = []
    epoch = 0
    for number, usage in enumerate(usages):
        total = usage.input_total or 0
        if total < sizes[-1]:
            epoch += 1
            keep = first
            read = usage.cache_read or 0
            while keep < len(sizes) and sizes[keep] <= read:
                keep += 1
            del nodes[keep:], sizes[keep:]
            if total < sizes[-1]:  # not even the head
                del nodes[1:], sizes[1:]
                first = 1
        if total > sizes[-1] or len(nodes) == 1:
            nodes.append(nodes[-1].append(_block(Layer.HISTORY, f"{number}", max(0, total - sizes[-1]))))
            sizes.append(total)
        found.append((nodes[-1], epoch))
    return found


def _block(layer: Layer, name: str, tokens: int) -> Block:
    role = Role.SYSTEM if layer is Layer.SYSTEM else Role.USER
    return Block.make(layer, role, [Text(f"unknown: {name}")], counted=tokens)
