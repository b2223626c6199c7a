"""The contract between the loop and whatever runs the model: one request in, typed events out.

What a provider does not report is None, never 0 (rule R4 of the design).
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from context.block import Part, ToolCall
from context.breakpoints import Marker
from context.cache_rules import CacheRules
from context.prompt import Prompt
from context.usage import Usage as Usage


class StopReason(StrEnum):
    END = "end"  # the model finished its reply
    TOOLS = "tools"  # it waits for tool results
    MAX_OUTPUT = "max_output"  # cut at the output limit
    CONTEXT_FULL = "context_full"  # cut because the context window is full
    REFUSED = "refused"  # the provider or the model declined
    REPEATED = "repeated"  # cut by us, because it went round in circles; no backend says so
    PAUSED = "paused"  # the provider paused a long turn: send the reply back to go on


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A fragment of the arguments' JSON text."""

    id: str
    fragment: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress of reading the prompt. Local models only.

    In tokens: `done` of `total`, of which `reused` came from the KV cache.
    """

    done: int
    total: int
    reused: int


@dataclass(frozen=True, slots=True)
class UsageReported:
    """What is known of the bill so far.

    The last one of a stream is the whole bill; an earlier one stands if the stream breaks.
    """

    usage: Usage


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The provider's own word on a cache miss, against the response that the request named.

    `reason` as the provider spells it ("tools_changed", "prompt_cache_key_changed", …; "hit": it found no divergence;
    "not_found" and "unavailable": it cannot tell). `missed`: input tokens behind the divergence, if told.
    """

    reason: str
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The end of a stream: the reply's parts as they must be sent back, and why it ended.

    `response_id` is the provider's name for the response. `detail` is the provider's own words on an unusual stop, and
    `diagnosis` what it says of the cache, where it was asked.
    """

    parts: tuple[Part, ...]
    stop: StopReason
    response_id: str | None = None
    detail: str | None = None
    diagnosis: Diagnosis | None = None


Event = (
    TextDelta
    | ThinkingDelta
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallFinished
    | Prefill
    | UsageReported
    | ReplyFinished
)


class ErrorKind(StrEnum):
    AUTH = "auth"  # no key, or one that is refused
    BILLING = "billing"  # credit or spend limit used up
    NOT_FOUND = "not_found"  # no such model or endpoint
    OVERFLOW = "overflow"  # the prompt does not fit the context window
    INVALID = "invalid"  # the provider refuses the request as it is
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    BROKEN_CALL = "broken_call"  # the server could not read the tool call that its model wrote
    SERVER = "server"  # any other fault on the provider's side
    NETWORK = "network"  # unreachable, or the stream broke
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"  # the answer is not what the API promises (HTML, broken JSON)
    LOCAL = "local"  # the model inside the process: file, memory, native code


RETRIABLE = frozenset(
    {ErrorKind.RATE_LIMIT, ErrorKind.OVERLOADED, ErrorKind.SERVER, ErrorKind.NETWORK, ErrorKind.TIMEOUT}
)


class CacheOption(StrEnum):
    """A part of a request that serves the cache alone, which an endpoint may refuse. The call is made without it."""

    LONG_TTL = "long_ttl"  # a time to live other than the default
    MARKERS = "markers"  # cache_control, prompt_cache_breakpoint
    MODE = "mode"  # prompt_cache_options
    KEY = "key"  # prompt_cache_key and headers for affinity
    DIAGNOSTICS = "diagnostics"  # why a miss
    USAGE = "usage"  # stream_options.include_usage


class BackendError(Exception):
    """A failed call.

    `str(error)` is one line for a person: what happened and what to do. `retry_after` in seconds, if given. `option`:
    the cache option that the endpoint refuses (kind INVALID); the same call without it may pass. `window`: tokens of
    the context window, where a refusal names it (kind OVERFLOW).
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retry_after: float | None = None,
        retriable: bool | None = None,
        option: CacheOption | None = None,
        window: int | None = None,
    ):
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        self.retriable = kind in RETRIABLE if retriable is None else retriable
        self.option = option
        self.window = window


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the loop must know of a model. `context` and `max_output` in tokens; `token_scale`: its tokens per
    o200k_base token.

    `profile` names the SYSTEM layer that suits it. `default_effort`: what the model takes when none is named, where
    that is known; naming it changes nothing.
    """

    context: int
    max_output: int
    cache: CacheRules
    token_scale: float
    profile: str = "cloud"
    default_effort: str | None = None


Veto = Callable[[ToolCall], int | None]
"""None for a call that may do something; for one that cannot, the index in its arguments' text from which on it must
come out otherwise. Pure, because it is asked in another thread.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """One call.

    `max_output` in tokens; `effort` of reasoning (None: the model's default, nothing is sent); `previous_response` is
    the id of the last response in this epoch (for miss diagnostics). `off`: cache options that this endpoint has
    refused, and that are left out. `temperature` (None: the backend's own setting), `repeat` (the penalty on tokens
    that the reply has used just now, 1: none) and `veto` are for backends that draw the tokens themselves; the others
    pass them over.
    """

    prompt: Prompt
    markers: tuple[Marker, ...] = ()
    max_output: int | None = None
    effort: str | None = None
    previous_response: str | None = None
    off: frozenset[CacheOption] = frozenset()
    temperature: float | None = None
    repeat: float = 1.0
    veto: Veto | None = None


class WireStore(Protocol):
    """Keeps each block's wire form, so that a block is rendered once in its life and replayed byte for byte (rule
    R2).
    """

    def get(self, block_digest: str, dialect: str) -> bytes | None: ...

    def put(self, block_digest: str, dialect: str, wire: bytes) -> None: ...


class MemoryWireStore:
    """A WireStore that lasts as long as the process."""

    def __init__(self) -> None:
        self._wires: dict[tuple[str, str], bytes] = {}

    def get(self, block_digest: str, dialect: str) -> bytes | None:
        return self._wires.get((block_digest, dialect))

    def put(self, block_digest: str, dialect: str, wire: bytes) -> None:
        self._wires[block_digest, dialect] = wire


class Backend(Protocol):
    """One model, ready to be called.

    `name` is the full model name (`anthropic/…`, `openai/…`, `local/…`); `dialect` names its wire form; `endpoint` the
    host (with port) that is called, or "local": caches and refusals belong to one endpoint.
    """

    @property
    def name(self) -> str: ...

    @property
    def dialect(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def prepare(self) -> None:
        """Load what the first call needs (SDK, model file), so that it waits for nothing else. Optional, idempotent."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Run one call (an async generator).

        Ends with UsageReported and ReplyFinished, or raises BackendError. Closing the iterator cancels the call.
        """
        ...

    async def warm(self, request: Request) -> Usage | None:
        """Write or renew the cached prefix up to the request's last marker and generate nothing. Returns the bill.

        None where the API has no way to do it; nothing is sent then. Raises BackendError.
        """
        ...

    async def aclose(self) -> None:
        """Release connections, threads and memory. Idempotent."""
        ...


Env = Mapping[str, str]
