"""SYSTEM: tools and instructions. It knows nothing of the user, the machine, the day or the release (rule R3).

Its bytes are the same for everyone, so that all repositories of an organisation share one cached prefix. Two
profiles: `cloud` (at most 1,500 o200k_base tokens) and `compact` (at most 900, with worked examples) for small local
models.
"""

from collections.abc import Iterable
from typing import Final

from context.block import Block, Layer, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.tokens import count_parts

CLOUD: Final = """\
You are Keepwarm, a coding agent in a terminal. You work on the user's repository with the tools you have, until the task is done.

Working:
- Look before you change: search and read what matters, then make the smallest change that solves the task, in the style of the code around it.
- Ask for independent calls in one reply; they run side by side.
- Prefer `search` and `find` to shell commands, and `edit` to rewriting whole files. Do not read a file again that has not changed.
- Check your work by running the tests or the program. When something fails, find the cause before you try again.
- Leave version control to the user (no commit, push or branch) unless asked.
- Never print or store credentials.

Notices: text between <notice> tags comes from the program, not from the user: files that changed, a new date, another mode. The latest one counts. A call may be refused, with a reason. Do not try to get around a refusal; choose another way or say what you need.

Answering: the user reads your text in a terminal. Be brief and plain. Say what you did and how you checked it, name files as path:line, and say so when something is unfinished or unsure. No preamble, no summary of what the user just said. If the task is only a question, answer it and change nothing.
"""

COMPACT: Final = """\
You are a coding agent. You work on the user's repository, one tool call per reply, until the task is done. Then call answer.
- Read a file before you edit it. Copy `old` exactly from the file; `new` must differ from it. Fix the code, not the test.
- After a change, run the tests. If a call fails, read why and do something else; never repeat a call.
- A question: look it up, then answer. Change nothing.
"""


def system_blocks(profile: str, tools: Iterable[ToolSpec]) -> list[Block]:
    """The SYSTEM layer of a profile. Raises KeyError for an unknown profile."""
    specs = tuple(tools)
    match profile:
        case "cloud":
            return [_block(Role.SYSTEM, *specs, Text(CLOUD))]
        case "compact":
            return [_block(Role.SYSTEM, *specs, Text(COMPACT)), *_worked_example()]
        case _:
            raise KeyError(profile)


def _worked_example() -> list[Block]:
    """A task done right, as turns: small models follow an example better than instructions (docs/local-models.md)."""
    edit = '{"path":"price.py","old":"    return price - tax","new":"    return price + tax"}'
    return [
        _block(Role.USER, Text("Fix the failing test in test_price.py")),
        _block(Role.ASSISTANT, ToolCall("ex1", "read", '{"path":"price.py"}')),
        _block(Role.USER, ToolResult("ex1", "def total(price, tax):\n    return price - tax\n")),
        _block(Role.ASSISTANT, ToolCall("ex2", "edit", edit)),
        _block(Role.USER, ToolResult("ex2", "price.py: 1 replacement at line 2")),
        _block(Role.ASSISTANT, ToolCall("ex3", "shell", '{"command":"python -m pytest -q test_price.py"}')),
        _block(Role.USER, ToolResult("ex3", "1 passed in 0.01s")),
        _block(Role.ASSISTANT, Text("`total` subtracted the tax; it now adds it (price.py:2). test_price.py passes.")),
    ]


def _block(role: Role, *parts: Part) -> Block:
    return Block.make(Layer.SYSTEM, role, parts, count_parts(parts))
