"""Calls that a model writes into its text in place of making them, as another agent's prompt has taught it."""

import re
from collections.abc import Iterable
from typing import Final

from agent.tools.arguments import short_schema
from context.block import ToolSpec

_QUOTED: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)  # code that an answer shows
_LAST: Final = re.compile(r"</(?:tool_calls?|function(?:_calls?)?|invoke|parameter)>\s*\Z")
_NAME: Final = re.compile(r"""<function=(\w+)|<invoke\s+name="?(\w+)|<tool_call>\s*(?:\{\s*"name":\s*"(\w+)"|(\w+))""")


def refuse_written_call(text: str, specs: Iterable[ToolSpec]) -> str | None:
    """What to tell a model whose reply ends with the text of a call; None for any other reply.

    It is not run: what stands in a text may be meant as an example. So only the end of one counts, outside of code.
    """
    said = _QUOTED.sub("", text)
    if _LAST.search(said) is None:
        return None
    names = ["".join(found) for found in _NAME.findall(said)]
    spec = next((spec for spec in specs if spec.name in names), None)
    if spec is None:
        return None
    return (
        f"You wrote a call of {spec.name} into your text, where it does nothing. Call the tool itself, with JSON "
        f"arguments: {short_schema(spec)}."
    )
