"""Prompts and calls for the tests of the Anthropic backend."""

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from emulator import Emulator

from backends.anthropic import AnthropicBackend
from backends.base import Event, MemoryWireStore, ReplyFinished, Request, ToolCallFinished, UsageReported
from backends.catalog import Catalog
from context.block import Block, Layer, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import Marker, plan_markers
from context.layers.history import reply_block
from context.prompt import Prompt
from context.tokens import count_parts

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
READ = ToolSpec("read", "Read a file.", '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')
SHELL = ToolSpec("shell", "Run a command.", '{"type":"object","properties":{"command":{"type":"string"}}}')


def block(layer: Layer, role: Role, *parts: Part) -> Block:
    return Block.make(layer, role, parts, count_parts(parts))


def user(text: str) -> Block:
    return block(Layer.COMMAND, Role.USER, Text(text))


def assistant(*parts: Part) -> Block:
    return block(Layer.HISTORY, Role.ASSISTANT, *parts)


def results(*parts: ToolResult) -> Block:
    return block(Layer.HISTORY, Role.USER, *parts)


SYSTEM = block(Layer.SYSTEM, Role.SYSTEM, READ, SHELL, Text("You are a coding agent. " + "Be careful. " * 400))
PROJECT = block(Layer.PROJECT, Role.SYSTEM, Text("Files:\n" + "src/module.py\n" * 400))
HEAD = Prompt.empty().extend([SYSTEM, PROJECT])


def backend_for(server: Emulator, model: str = "claude-sonnet-5-5", **options: Any) -> AnthropicBackend:
    options.setdefault("wires", MemoryWireStore())
    options.setdefault("env", server.env)
    return AnthropicBackend(Catalog.load().find(f"anthropic/{model}"), now=lambda: NOW, **options)


async def run(backend: AnthropicBackend, prompt: Prompt, **options: Any) -> list[Event]:
    """All events of one call."""
    request = Request(prompt, **options)
    async with aclosing(backend.stream(request)) as stream:
        return [event async for event in stream]


def finished(events: Sequence[Event]) -> ReplyFinished:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return last


def usages(events: Iterable[Event]) -> list[UsageReported]:
    return [event for event in events if isinstance(event, UsageReported)]


def calls(events: Iterable[Event]) -> list[ToolCall]:
    return [event.call for event in events if isinstance(event, ToolCallFinished)]


class Talk:
    """A conversation that plans its markers as the loop does."""

    def __init__(self, backend: AnthropicBackend, prompt: Prompt = HEAD) -> None:
        self.backend = backend
        self.prompt = prompt
        self.last_request: int | None = None

    async def turn(self, *blocks: Block, **options: Any) -> list[Event]:
        """Append `blocks`, call, and append the reply."""
        self.prompt = self.prompt.extend(blocks)
        markers = options.pop("markers", None) or self.markers()
        self.last_request = self.prompt.length
        events = await run(self.backend, self.prompt, markers=markers, **options)
        self.prompt = self.prompt.append(reply_block(finished(events).parts))
        return events

    def markers(self) -> tuple[Marker, ...]:
        capabilities = self.backend.capabilities
        return plan_markers(self.prompt, capabilities.cache, self.last_request, scale=capabilities.token_scale)

    def answers(self, text: str = "done") -> Block:
        """Results for the calls of the last reply."""
        last = self.prompt.block
        assert last is not None
        return results(*[ToolResult(call.id, text) for call in last.tool_calls])
