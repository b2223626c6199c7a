"""The veto on an edit that is sure to be refused, told while its call is still being written."""

from collections.abc import Collection

from agent.tools import edit
from agent.tools.arguments import parse_arguments
from agent.tools.base import ToolContext, ToolError
from context.block import ToolCall


def place_to_blame(call: ToolCall, context: ToolContext, refused: Collection[str]) -> int | None:
    """Where an edit that is sure to be refused must come out otherwise: from the argument on that is to blame, and from
    `old` on when it was `refused` before with the same arguments. None for every other call. Changes nothing.
    """
    if call.name != edit.tool.spec.name:
        return None
    try:
        edit.check(parse_arguments(edit.tool.spec, call.arguments), context)
    except ToolError as error:
        blamed = "old" if call.arguments in refused else error.argument
        at = call.arguments.find(f'"{blamed}"')
        return at if at >= 0 else None
    return None
