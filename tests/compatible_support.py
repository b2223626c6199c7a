"""Prompts, endpoints and calls for the tests of the Chat Completions backend."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from emulator import Emulator

from backends.base import Event, MemoryWireStore, ReplyFinished, Request, ToolCallFinished, Usage, UsageReported
from backends.catalog import Catalog
from backends.compatible import CompatibleBackend
from backends.compatible_endpoints import Endpoint, load_endpoints
from context.block import Block, Layer, Part, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import Marker, plan_markers
from context.layers.history import reply_block
from context.prompt import Prompt
from context.tokens import count_parts

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
READ = ToolSpec("read", "Read a file.", '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')
SHELL = ToolSpec("shell", "Run a command.", '{"type":"object","properties":{"command":{"type":"string"}}}')

# For each flavour of the emulator: the endpoint that speaks it, and a model that it serves.
FLAVOURS: Mapping[str, tuple[str, str]] = {
    "deepseek": ("deepseek", "deepseek-flash"),
    "openrouter": ("openrouter", "anthropic/claude-opus-5-5"),
    "vllm": ("vllm", "local-model"),
    "vllm-no-details": ("vllm", "local-model"),
    "llama-server": ("llama-server", "local-model"),
    "ollama": ("ollama", "local-model"),
    "lmstudio": ("lmstudio", "local-model"),
}


def block(layer: Layer, role: Role, *parts: Part) -> Block:
    return Block.make(layer, role, parts, count_parts(parts))


def user(text: str) -> Block:
    return block(Layer.COMMAND, Role.USER, Text(text))


def assistant(*parts: Part) -> Block:
    return block(Layer.HISTORY, Role.ASSISTANT, *parts)


def results(*parts: Part) -> Block:
    return block(Layer.HISTORY, Role.USER, *parts)


SYSTEM = block(Layer.SYSTEM, Role.SYSTEM, READ, SHELL, Text("You are a coding agent. " + "Be careful. " * 400))
PROJECT = block(Layer.PROJECT, Role.SYSTEM, Text("Files:\n" + "src/module.py\n" * 400))
HEAD = Prompt.empty().extend([SYSTEM, PROJECT])


def endpoint(name: str, model: str = "m", **own: Any) -> Endpoint:
    """An endpoint of the table, with quirks of one's own over it."""
    return load_endpoints({name: own} if own else None, "config.toml")[name].for_model(model)


def backend_at(
    url: str, name: str, model: str, *, env: Mapping[str, str] | None = None, **own: Any
) -> CompatibleBackend:
    """A backend for `model` of the endpoint `name`, which is served at `url`."""
    endpoints = load_endpoints({name: {"base_url": url, **own}}, "config.toml")
    info = Catalog.load(endpoints=endpoints).find(f"{name}/{model}")
    found = endpoints[name].for_model(model)
    keys = {found.key_env: "key-for-tests-0123456789"} if found.key_env else {}
    return CompatibleBackend(info, found, env={**keys, **(env or {})}, wires=MemoryWireStore(), now=lambda: NOW)


def backend_for(server: Emulator, flavour: str, **own: Any) -> CompatibleBackend:
    name, model = FLAVOURS[flavour]
    return backend_at(f"{server.url}/flavours/{flavour}/v1", name, model, **own)


async def run(backend: CompatibleBackend, prompt: Prompt, **options: Any) -> list[Event]:
    """All events of one call."""
    async with aclosing(backend.stream(Request(prompt, **options))) as stream:
        return [event async for event in stream]


def finished(events: Sequence[Event]) -> ReplyFinished:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return last


def usage(events: Iterable[Event]) -> Usage:
    return [event.usage for event in events if isinstance(event, UsageReported)][-1]


def calls(events: Iterable[Event]) -> list[ToolCall]:
    return [event.call for event in events if isinstance(event, ToolCallFinished)]


class Talk:
    """A conversation that plans its markers as the loop does."""

    def __init__(self, backend: CompatibleBackend, prompt: Prompt = HEAD) -> None:
        self.backend = backend
        self.prompt = prompt
        self.last_request: int | None = None

    async def turn(self, *blocks: Block, **options: Any) -> list[Event]:
        """Append `blocks`, call, and append the reply."""
        self.prompt = self.prompt.extend(blocks)
        markers = self.markers()
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
