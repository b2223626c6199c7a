"""SYSTEM: tools and instructions. It knows nothing of the user, the machine, the day or the release (rule R3).

Its bytes are the same for everyone, so that all repositories of an organisation share one cached prefix. Two
profiles: `cloud` (at most 1,500 o200k_base tokens) and `compact` (at most 900, with worked examples) for small local
models.
"""

from collections.abc import Iterable
from typing import Final

from context.block import Block, Layer, Part, Role, Text, ToolCall, ToolResult, ToolSpec

CLOUD: Final = """\
You are Keepwarm, a coding agent in a terminal. You work on the user's repository with the tools you have, until the task is done.

Working:
- Look before you change: search and read what matters, then make the smallest change that solves the task, in the style of the code around it.
- Ask for independent calls in one reply; they run side by side.
- Prefer `search` and `find` to shell commands, and `edit` to rewriting whole files. Do not read a file again that has not changed.
- Check your work by running the tests or the program. When something fails, find the cause before you try again.
- Leave version control to the user (no commit, push or branch) unless asked.
- Never print or store credentials.

Notices: text between <notice> tags comes from the program, not from the user: a new date, another mode. The latest one counts. A call may be refused, with a reason. Do not try to get around a refusal; choose another way or say what you need.

Answering: the user reads your text in a terminal. Be brief and plain. Say what you did and how you checked it, name files as path:line, and say so when something is unfinished or unsure. No preamble, no summary of what the user just said. If the task is only a question, answer it and change nothing.
"""

COMPACT: Final = """\
You are a coding agent. You work on the user's repository, one tool call per reply, until the task is done. Then call answer.
- A failing test: run it, then fix the code that it tests, not the test.
- Read a file before you edit it. Copy `old` exactly from the file; `new` must differ from it.
- After a change, run the tests. If a call fails, read why and do something else; never repeat a call.
- A question: search and read, then answer with the fact and the file it is in. Change nothing.
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
    """Tasks done right, as turns: small models follow an example better than instructions (docs/local-models.md)."""
    test = '{"command":"python -m pytest -q tests/test_price.py"}'
    failure = (
        ">   assert total([3, 4], 2) == 9\nE   assert 5 == 9\n1 failed in 0.02s\nexit 1\n"
        "The code under test:\nprice.py, lines 4-9:\ndef total(prices, tax):\n    result = 0\n    for price in prices:\n"
        "        result += price\n    result -= tax\n    return result"
    )
    fix = '{"path":"price.py","old":"    result -= tax","new":"    result += tax"}'
    return [
        _block(Role.USER, Text("Fix the failing test in tests/test_price.py")),
        *_step("ex1", "shell", test, failure),
        *_step("ex2", "edit", fix, "price.py: 1 replacement at line 8"),
        *_step("ex3", "shell", test, "1 passed in 0.01s"),
        _block(
            Role.ASSISTANT, Text("`total` subtracted the tax; it now adds it (price.py:8). tests/test_price.py passes.")
        ),
        _block(Role.USER, Text("Our mail address is now help@example.net. Correct it everywhere.")),
        *_step(
            "ex4",
            "search",
            '{"pattern":"@example"}',
            'setup.cfg:3: author_email = hello@example.org\nmail.py:8: SENDER = "hello@example.org"',
        ),
        *_step(
            "ex5",
            "shell",
            '{"command":"sed -i \'s/hello@example\\\\.org/help@example.net/g\' setup.cfg mail.py"}',
            "exit 0",
        ),
        _block(Role.ASSISTANT, Text("It is now help@example.net in setup.cfg:3 and mail.py:8.")),
    ]


def _step(call: str, tool: str, arguments: str, result: str) -> tuple[Block, Block]:
    """A call and its result."""
    return _block(Role.ASSISTANT, ToolCall(call, tool, arguments)), _block(Role.USER, ToolResult(call, result))


def _block(role: Role, *parts: Part) -> Block:
    return Block.make(Layer.SYSTEM, role, parts)
