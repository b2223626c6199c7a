"""What the scripted model says, and how the connection behaves while it says it. The same words for every API."""

import asyncio
import concurrent.futures
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


class Gate:
    """Holds a stream back until another thread opens it: `set` once, and all that wait go on."""

    def __init__(self) -> None:
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()

    def set(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def is_set(self) -> bool:
        return self._opened.done()

    async def wait(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._opened))


@dataclass(frozen=True)
class Say:
    """Text, streamed in `pieces` deltas."""

    text: str
    pieces: int = 2


@dataclass(frozen=True)
class Think:
    """Reasoning: an Anthropic thinking block, a Responses reasoning item, `reasoning_content` on chat servers.

    The signature (or encrypted content) is the emulator's own, bound to the request's prefix, unless one is given.
    """

    text: str = ""
    signature: str | None = None


@dataclass(frozen=True)
class Redacted:
    """Reasoning that is never shown (Anthropic only)."""

    data: str


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` as an object, or as the JSON text that the model writes."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    pieces: int = 3


Part = Say | Think | Redacted | Call


@dataclass(frozen=True)
class Reply:
    """One reply with HTTP 200.

    `stop`: the stop reason in the API's own words (None: what follows from the parts). `usage`: the input counters to
    report, in the API's own form (None: the true bill); a counter of None is left out. `final_usage`: counters of the
    last event on top. `diagnostics`: what to report instead of the emulator's own diagnosis.

    Faults, counted in events (the first one is 1; pings are not counted): `cut_after` closes the socket, `error_after`
    sends an error event (type, message) and ends, `garbage_after` sends what is no JSON. `gates`: wait for the gate
    before sending event number k. `extra_events`: sent before the end of the reply. `evict`: forget all cached
    prefixes, or the longest one that this request would read, before it is billed. `short_ttl`: a long TTL that is
    asked for is billed and kept as the short one.
    """

    parts: tuple[Part, ...] = ()
    stop: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None
    final_usage: Mapping[str, Any] = field(default_factory=dict)
    output_tokens: int = 20
    diagnostics: Mapping[str, Any] | None = None
    cut_after: int | None = None
    error_after: tuple[int, str, str] | None = None
    garbage_after: int | None = None
    gates: Mapping[int, Gate] = field(default_factory=dict)
    extra_events: tuple[Mapping[str, Any], ...] = ()
    evict: Literal["all", "deepest"] | None = None
    short_ttl: bool = False

    @classmethod
    def of(cls, *parts: Part | str, **options: Any) -> "Reply":
        """A reply of `parts`; a text alone is said."""
        return cls(tuple(Say(part) if isinstance(part, str) else part for part in parts), **options)

    @property
    def calls(self) -> bool:
        return any(isinstance(part, Call) for part in self.parts)


@dataclass(frozen=True)
class Failure:
    """Any answer that is no reply: a status with headers, and a body as an API error (type, message) or as it is.

    An empty error type stands for the one that the API gives to this status. `details` goes into the error object.
    """

    status: int
    error: tuple[str, str] | None = None
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] | None = None


Answer = Reply | Failure


def html_page(status: int = 200, text: str = "<!doctype html><title>Welcome to nginx</title>") -> Failure:
    return Failure(status, body=text, headers={"content-type": "text/html; charset=utf-8"})


def pieces_of(text: str, pieces: int) -> list[str]:
    """`text` in at most `pieces` parts of about equal length."""
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]
