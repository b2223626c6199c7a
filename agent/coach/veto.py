"""The veto on an edit that is sure to be refused, told while its call is still being written."""

from agent.tools import edit
from agent.tools.arguments import parse_arguments
from agent.tools.base import ToolContext, ToolError
from context.block import ToolCall


def place_to_blame(call: ToolCall, context: ToolContext) -> int | None:
    """Where an edit that is sure to be refused must come out otherwise: from the argument on that is to blame. None for
    every other call. Changes nothing.
    """
    if call.name != edit.tool.spec.name:
        return None
    try:
        edit.check(parse_arguments(edit.tool.spec, call.arguments), context)
    except ToolError as error:
        at = call.arguments.find(f'"{error.argument}"')
        return at if at >= 0 else None
    return None
