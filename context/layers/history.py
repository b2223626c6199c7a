"""HISTORY: replies as the model gave them and results as the tools gave them, never edited."""

from collections.abc import Iterable, Mapping, Sequence

from context.block import Block, Layer, Part, Role, Text, ToolCall, ToolResult

INTERRUPTED = (
    "Interrupted: this call was running when the program was stopped, and it may have taken effect. "
    "Check before you repeat it."
)
NOT_RUN = "Not run: the program was stopped before this call."
CUT_REPLY = "Your last reply was cut off when the program was stopped."
CIRCLED = (
    "Your last reply repeated itself over and over, so it was cut where that began. Do not go on with it: "
    "do the next step, or say what keeps you from it."
)
BROKEN_CALL = (
    "Your last reply was lost: its tool call could not be read. Write the call anew, with its arguments as one valid "
    "JSON object; split a long text over several calls."
)


def reply_block(parts: Iterable[Part]) -> Block:
    """An assistant message. Text parts without text are dropped: no provider takes them back."""
    kept = tuple(part for part in parts if not (isinstance(part, Text) and not part.text))
    return Block.make(Layer.HISTORY, Role.ASSISTANT, kept)


def results_block(calls: Sequence[ToolCall], results: Mapping[str, ToolResult]) -> Block:
    """The answer to all `calls` of one reply, in their order. A call without a result is answered as not run."""
    parts = tuple(results.get(call.id) or ToolResult(call.id, NOT_RUN, is_error=True) for call in calls)
    return Block.make(Layer.HISTORY, Role.USER, parts)
