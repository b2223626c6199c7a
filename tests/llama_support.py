"""What the tests of the local backend share: tools, prompts, and a tokenizer for tests without a model."""

from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from backends.base import Event, MemoryWireStore, Prefill, ReplyFinished, Request, Usage, UsageReported
from backends.llama.backend import LlamaBackend
from backends.llama.build import build_key
from backends.llama.gguf import fingerprint
from backends.llama.sampling import Sampling
from backends.llama.tuning import Tuning
from context.block import Block, Layer, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.layers.command import command_block
from context.layers.history import reply_block
from context.layers.system import system_blocks
from context.prompt import Prompt

READ = ToolSpec(
    "read",
    "Read a file.",
    '{"type":"object","properties":{"path":{"type":"string"},"start":{"type":"integer"}},"required":["path"]}',
)
EDIT = ToolSpec(
    "edit",
    "Replace `old` by `new`.",
    '{"type":"object","properties":{"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"}},'
    '"required":["path","old","new"]}',
)
SHELL = ToolSpec(
    "shell",
    "Run a command.",
    '{"type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"integer"}},"required":["command"]}',
)
TOOLS = (READ, EDIT, SHELL)


def block(role: Role, *parts: Part, layer: Layer = Layer.HISTORY) -> Block:
    return Block.make(layer, role, parts, 1)


def user(text: str) -> Block:
    return block(Role.USER, Text(text), layer=Layer.COMMAND)


def project(text: str) -> Block:
    return block(Role.SYSTEM, Text(text), layer=Layer.PROJECT)


def result(call_id: str, text: str, *, is_error: bool = False) -> Block:
    return block(Role.USER, ToolResult(call_id, text, is_error))


def call(call_id: str, name: str, arguments: str) -> Block:
    return block(Role.ASSISTANT, ToolCall(call_id, name, arguments))


def conversation(command: str = "Fix the bug in calc.py.", tools: Sequence[ToolSpec] = TOOLS) -> Prompt:
    """The compact SYSTEM layer and one command."""
    return Prompt.empty().extend([*system_blocks("compact", tools), command_block(command)])


def brief(command: str = "Read a.py") -> Prompt:
    """A short prompt with the tools and one worked example."""
    return Prompt.empty().extend(
        [
            block(Role.SYSTEM, *TOOLS, Text("Call one tool."), layer=Layer.SYSTEM),
            block(Role.USER, Text("Read price.py"), layer=Layer.SYSTEM),
            block(Role.ASSISTANT, ToolCall("ex1", "read", '{"path":"price.py"}'), layer=Layer.SYSTEM),
            block(Role.USER, ToolResult("ex1", "TAX = 3"), layer=Layer.SYSTEM),
            block(Role.ASSISTANT, Text("Done."), layer=Layer.SYSTEM),
            command_block(command),
        ]
    )


def plain(command: str) -> Prompt:
    """A short prompt without tools: the reply can only be text."""
    return Prompt.empty().extend([block(Role.SYSTEM, Text("Be brief."), layer=Layer.SYSTEM), command_block(command)])


def local_backend(path: Path, state: Path, *, measured: bool = True, **options: Any) -> LlamaBackend:
    """`measured`: on this machine already, which saves the trial run."""
    if measured:
        note_trial(path, state, Tuning(2, 2))
    options = {"context": 2048, "sampling": Sampling(seed=7), **options}
    return LlamaBackend(path, name="local/test", wires=options.pop("wires", MemoryWireStore()), state=state, **options)


def note_trial(path: Path, state: Path, tuning: Tuning) -> None:
    """As if this machine had been measured with the model: figures that chance has a part in change the last digits."""
    state.mkdir(parents=True, exist_ok=True)
    note = state / f"trial-{build_key(fingerprint(path), 'all', 'f16')}"
    if not note.exists():
        note.write_text(tuning.to_json())


async def collect(stream: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in stream]


class Turn:
    """One call, run to its end."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.usage: Usage = [event.usage for event in events if isinstance(event, UsageReported)][-1]
        self.prefill = [event for event in events if isinstance(event, Prefill)]
        finished = events[-1]
        assert isinstance(finished, ReplyFinished)
        self.finished = finished
        self.reply = reply_block(finished.parts)


async def take_turn(backend: LlamaBackend, prompt: Prompt, max_output: int = 48, temperature: float = 0.0) -> Turn:
    request = Request(prompt, max_output=max_output, temperature=temperature)
    return Turn(await collect(backend.stream(request)))


class ByteTokenizer:
    """Every UTF-8 byte is a token; `<|…|>`, `<…_of_turn>`, `[INST]` and `<s>` are control tokens where asked for."""

    bos: int | None = None

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._control: dict[str, int] = {}

    def tokenize(self, text: str, *, special: bool = False) -> "array[int]":
        import re

        self.calls.append(text)
        tokens = array("i")
        for piece in re.split(r"(<\|[^|]*\|>|<\w+_of_turn>|\[/?INST\]|</?s>)", text) if special else [text]:
            if special and re.fullmatch(r"<\|[^|]*\|>|<\w+_of_turn>|\[/?INST\]|</?s>", piece):
                tokens.append(self._control.setdefault(piece, 256 + len(self._control)))
            else:
                tokens.extend(piece.encode())
        return tokens

    def piece(self, token: int) -> bytes:
        if token < 256:
            return bytes([token])
        return next(text for text, number in self._control.items() if number == token).encode()

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(self.piece(token) for token in tokens).decode()
