"""How an API plugs into the server: what it takes, what it refuses, how it bills, and how a reply looks on its wire."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .bill import Account
from .clock import Clock, SystemClock
from .models import ALL, Models
from .script import Failure, Reply


@dataclass(frozen=True)
class Offer:
    """A tool that a request offers: its name and the names of its parameters, in order."""

    name: str
    parameters: tuple[str, ...]


class Reader(Protocol):
    """What a scripted model must find in a request, whatever its wire form."""

    def offers(self, body: Mapping[str, Any]) -> list[Offer]: ...

    def steps_taken(self, body: Mapping[str, Any]) -> int:
        """Replies with tool calls since the last command of the user."""
        ...


@dataclass(frozen=True)
class Recorded:
    """One request. `raw` is its body as it came, `body` the same parsed; header names are in lower case.

    `number` counts from 1 over all APIs, `at` is its start on the server's clock (seconds since the epoch).
    """

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]
    number: int = 0
    at: float = 0.0
    method: str = "POST"
    reader: Reader | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Event:
    """One server-sent event. `name` None: without an `event:` line. `data`: an object, or a text as it is.

    `counted`: whether the faults of a script count it; pings are not counted. `settles`: from here on the output is
    billed (the event that reports it).
    """

    name: str | None
    data: Mapping[str, Any] | str
    counted: bool = True
    settles: bool = False

    def wire(self) -> bytes:
        data = self.data if isinstance(self.data, str) else json.dumps(self.data)
        head = "" if self.name is None else f"event: {self.name}\n"
        return f"{head}data: {data}\n\n".encode()


class Generation(Protocol):
    """One kind of request that the scripted model answers, for example POST /v1/messages.

    The order for one request: `refusal`, `unscripted`, (the script), `account`, then either `events` or `message`.
    """

    def refusal(self, request: Recorded) -> Failure | None:
        """What the API would refuse, with the API's words; None for a good request."""
        ...

    def unscripted(self, request: Recorded) -> Reply | None:
        """The reply to a request that no model is asked for (pre-warming, compaction); None: ask the script."""
        ...

    def account(self, request: Recorded, reply: Reply) -> Account:
        """Bill the request as of `request.at`. `reply.evict` happens before, `reply.short_ttl` holds for it."""
        ...

    def streams(self, request: Recorded) -> bool: ...

    def events(self, request: Recorded, reply: Reply, account: Account) -> Iterator[Event]:
        """The whole stream, in order, without faults: the server applies those."""
        ...

    def message(self, request: Recorded, reply: Reply, account: Account) -> Mapping[str, Any]:
        """The JSON answer to a request that does not stream."""
        ...

    def error_event(self, kind: str, message: str) -> Event: ...

    def garbage_event(self) -> Event:
        """An event as the API sends them, broken off inside its JSON."""
        ...


Handler = Generation | Callable[[Recorded], Failure]
"""A generation, or a function for what needs no model (token counts, lists of models)."""


class Api(Protocol):
    """One API. It keeps its own state (cached prefixes, what it must remember of earlier requests)."""

    name: str
    reader: Reader

    def env(self, url: str) -> dict[str, str]:
        """Environment variables that send this API's SDK to the server at `url`."""
        ...

    def find(self, method: str, path: str) -> Handler | None:
        """What answers a path (without its query); None for a path of another API."""
        ...

    def error_body(self, failure: Failure, request_id: str) -> Mapping[str, Any]:
        """The JSON body of a failure with an `error`."""
        ...

    def option_refusal(self, place: str, option: str) -> Failure:
        """The 400 of an endpoint that does not know a cache option, found at `place` (`system.1.cache_control.ttl`)."""
        ...

    def evict_all(self) -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """What the server gives to each API. `strict`: refuse what the API would refuse."""

    clock: Clock = field(default_factory=SystemClock)
    models: Models = ALL
    strict: bool = True


ApiFactory = Callable[[Surroundings], Api]


def json_answer(value: Mapping[str, Any], status: int = 200) -> Failure:
    """An answer of plain JSON, for handlers that need no model."""
    return Failure(status, body=json.dumps(value), headers={"content-type": "application/json"})
