"""A scripted model that plays one plan of tool calls after each command, whatever happened before."""

from collections.abc import Sequence
from typing import Any

from loopback.bodies import content_parts
from loopback.script import Call, Reply
from loopback.server import Recorded

FIX = (
    Call("read", {"path": "price.py"}),
    Call("edit", {"path": "price.py", "old": "    return price - tax", "new": "    return price + tax"}),
    Call("shell", {"command": "python3 check.py"}),
)


def steps_taken(body: dict[str, Any]) -> int:
    """Replies with tool calls since the last command."""
    steps = 0
    for message in reversed(body["messages"]):
        parts = content_parts(message)
        if message["role"] == "assistant":
            steps += any(part["type"] == "tool_use" for part in parts)
        elif not any(part["type"] == "tool_result" for part in parts):
            break
    return steps


def plan(*calls: Call | Sequence[Call], answer: str = "Fixed price.py:2; check.py passes.") -> Any:
    """A script for ScriptedServer: one call (or several side by side) a reply, then the answer."""

    def reply(request: Recorded) -> Reply:
        taken = steps_taken(request.body)
        if taken >= len(calls):
            return Reply.of(answer)
        step = calls[taken]
        return Reply.of(*([step] if isinstance(step, Call) else step))

    return reply
