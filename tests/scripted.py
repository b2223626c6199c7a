"""A scripted model that plays one plan of tool calls after each command, whatever happened before."""

from collections.abc import Sequence
from typing import Any

from emulator import Call, Recorded, Reply

FIX = (
    Call("read", {"path": "price.py"}),
    Call("edit", {"path": "price.py", "old": "    return price - tax", "new": "    return price + tax"}),
    Call("shell", {"command": "python3 check.py"}),
)


def plan(*calls: Call | Sequence[Call], answer: str = "Fixed price.py:2; check.py passes.") -> Any:
    """A script for the emulator: one call (or several side by side) a reply, then the answer."""

    def reply(request: Recorded) -> Reply:
        assert request.reader is not None
        taken = request.reader.steps_taken(request.body)
        if taken >= len(calls):
            return Reply.of(answer)
        step = calls[taken]
        return Reply.of(*([step] if isinstance(step, Call) else step))

    return reply
