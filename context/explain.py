"""A verdict in words: one sentence for each cause, the layer up to which was read, and where two prompts part."""

from dataclasses import dataclass
from typing import Final, Literal

from context.block import Block, Layer, Opaque, Part, Text, ToolCall, ToolResult, ToolSpec
from context.forecast import Cause
from context.prompt import Prompt
from context.sizes import Sizes
from context.usage import Usage

_NEAR: Final = 0.03  # of a layer's end: how far an estimate of its tokens may be from what was read
_REACH: Final = 40  # bytes shown to either side of the first difference
_SENTENCES: Final = {
    Cause.NONE: "everything that had been sent before was read from the cache",
    Cause.FIRST: "nothing of it had been sent before",
    Cause.EXPIRED: "the lease had run out",
    Cause.EVICTED: "the provider dropped it before its lease ran out",
    Cause.BELOW_MINIMUM: "the prefix was shorter than the model's minimum for caching",
    Cause.TTL_SHORTENED: "the provider wrote at its short time to live, not at the long one that was asked for",
    Cause.NEW_EPOCH: "a new epoch began, with another history",
    Cause.CHANGED: "the prefix differs from what had been sent",
    Cause.MODEL_CHANGED: "another model has another cache",
    Cause.EFFORT_CHANGED: "another effort has another cache",
    Cause.ENDPOINT_CHANGED: "another endpoint has another cache",
    Cause.LOOKBACK: "the last entry was too many blocks behind the next breakpoint",
    Cause.NO_MARKERS: "nothing was marked for caching, because this endpoint refuses it",
    Cause.NOT_REPORTED: "the provider does not report what it read from its cache",
    Cause.IMPLAUSIBLE: "the provider's counters cannot be true; nothing was learned from them",
    Cause.UNKNOWN: "the reason is not known",
}


def sentence(cause: Cause) -> str:
    """What a cause means, without a full stop."""
    return _SENTENCES[cause]


def layer_read(prompt: Prompt, usage: Usage, dialect: str) -> Literal[Layer.SYSTEM, Layer.PROJECT] | None:
    """The layer at whose end the provider stopped reading when it was sent `prompt`, by the layers' shares of the bill.

    None: it read nothing, stopped elsewhere, or does not report it. O(blocks).
    """
    read, total = usage.cache_read, usage.input_total
    sizes = Sizes(dialect)
    sizes.follow(prompt)
    estimate = sizes.estimate(prompt.length)
    if not read or not total or not estimate:
        return None
    layers: tuple[Literal[Layer.SYSTEM], Literal[Layer.PROJECT]] = (Layer.SYSTEM, Layer.PROJECT)
    off = {layer: abs(sizes.estimate(prompt.head(layer).length) * total / estimate - read) for layer in layers}
    nearest = min(layers, key=lambda layer: off[layer])
    return nearest if off[nearest] <= read * _NEAR else None


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two prompts part. `place` names the part; `byte` counts from the start of that part's text, `block` from 0.

    `before` and `after`: the bytes around the first differing one, in the earlier and in the later prompt. None: the
    part is not there at all. `reach`: how many bytes of them come before that one, at most.
    """

    layer: Layer
    block: int
    place: str
    byte: int
    before: bytes | None
    after: bytes | None
    reach: int = _REACH


def first_difference(earlier: list[Block], later: list[Block], dialect: str) -> Difference | None:
    """The first place where `later` is not what `earlier` was; None when it only goes on from there.

    Both from the first block on.
    """
    for number, old in enumerate(earlier):
        if number >= len(later):
            return Difference(old.layer, number, "a block that is gone", 0, _text(old.parts[0])[:_REACH], None)
        new = later[number]
        if old == new:
            continue
        mine, theirs = old.sent(dialect), new.sent(dialect)
        for index in range(max(len(mine), len(theirs))):
            before = mine[index] if index < len(mine) else None
            after = theirs[index] if index < len(theirs) else None
            if before == after:
                continue
            return _parted(new.layer, number, before, after)
    return None


def _parted(layer: Layer, block: int, before: Part | None, after: Part | None) -> Difference:
    old, new = _text(before), _text(after)
    byte = next(
        (at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), min(len(old), len(new))
    )
    window = slice(max(0, byte - _REACH), byte + _REACH)
    named = after if after is not None else before
    return Difference(
        layer,
        block,
        _name(named),
        byte,
        None if before is None else old[window],
        None if after is None else new[window],
    )


def _name(part: Part | None) -> str:
    match part:
        case ToolSpec(name):
            return f"tool `{name}`"
        case ToolCall(_, name):
            return f"a call of `{name}`"
        case ToolResult():
            return "a tool result"
        case Opaque():
            return "what the provider keeps of its reasoning"
        case _:
            return "the text"


def _text(part: Part | None) -> bytes:
    match part:
        case None:
            return b""
        case Text(text) | ToolResult(text=text):
            return text.encode(errors="replace")
        case ToolSpec(name, description, parameters):
            return f"{name}\n{description}\n{parameters}".encode(errors="replace")
        case ToolCall(_, name, arguments):
            return f"{name}\n{arguments}".encode(errors="replace")
        case Opaque(_, data):
            return data
