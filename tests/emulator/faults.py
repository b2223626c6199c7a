"""The faults that are no part of one reply, and helpers to write the others down.

A fault inside a stream stands in the `Reply` (`cut_after`, `gates` for stalls, `garbage_after`, `error_after`, `usage`,
`evict`, `short_ttl`); an answer instead of a reply is a `Failure` in the script, or one that `Emulator.interrupt` puts
before it; `Emulator.refused_options` names cache options that the endpoint does not know.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Literal

from .api import Recorded
from .script import Answer, Failure, Gate, Reply

Script = Callable[[Recorded], Answer]

CACHE_OPTIONS = (
    "ttl",
    "cache_control",
    "prompt_cache_options",
    "prompt_cache_key",
    "prompt_cache_breakpoint",
    "diagnostics",
)
_OTHER_PEOPLES_WORDS = frozenset({"input_schema", "parameters", "input", "arguments", "schema"})


def retry_after(
    seconds: float, form: Literal["seconds", "milliseconds", "date"] = "seconds", *, now: datetime | None = None
) -> dict[str, str]:
    """Headers that ask for a pause, in each of the three forms; a date needs `now`."""
    if form == "milliseconds":
        return {"retry-after-ms": f"{seconds * 1000:g}"}
    if form == "seconds":
        return {"retry-after": f"{seconds:g}"}
    if now is None:
        raise ValueError("a date needs to know what time it is")
    return {"retry-after": format_datetime(now.astimezone(UTC) + timedelta(seconds=seconds), usegmt=True)}


def rate_limited(headers: Mapping[str, str] | None = None, message: str = "Number of requests exceeded") -> Failure:
    return Failure(429, ("", message), headers=headers or {})


def spend_cap() -> Failure:
    """The 429 that never succeeds: without a Retry-After."""
    return Failure(429, ("", "You have reached your specified API usage limits."))


def overloaded(headers: Mapping[str, str] | None = None, status: int = 529) -> Failure:
    """529 is Anthropic's status for it, 503 the others'."""
    return Failure(status, ("", "Overloaded"), headers=headers or {})


def server_error(status: int = 500, headers: Mapping[str, str] | None = None) -> Failure:
    return Failure(status, ("", "Internal server error"), headers=headers or {})


def broken_at_each_event(reply: Reply, events: int) -> Iterator[tuple[str, Reply]]:
    """`reply` with one fault at each of its first `events` events: a cut, an error, garbage. Each with a name."""
    for after in range(events + 1):
        yield f"cut-{after}", replace(reply, cut_after=after)
    for after in range(1, events + 1):
        yield f"error-{after}", replace(reply, error_after=(after, "overloaded_error", "Overloaded"))
        yield f"garbage-{after}", replace(reply, garbage_after=after)


def spoiled(script: Callable[[Recorded], Answer], faults: Mapping[int, Failure | Mapping[str, Any]]) -> Script:
    """`script` with faults in some of its answers, counted from 1: another answer, or changes to the reply's fields.

    A `Failure` does not use up an answer of a script that counts the steps in the request, as `actions.play` does.
    """
    numbers = itertools.count(1)

    def answer(request: Recorded) -> Answer:
        fault = faults.get(next(numbers))
        if isinstance(fault, Failure):
            return fault
        reply = script(request)
        return reply if fault is None or isinstance(reply, Failure) else replace(reply, **fault)

    return answer


def stalled(reply: Reply, before: int) -> tuple[Reply, Gate]:
    """`reply` that stops before event number `before` until the gate is set."""
    gate = Gate()
    return replace(reply, gates={**reply.gates, before: gate}), gate


def place_of(option: str, body: Any, place: str = "") -> str | None:
    """Where a request uses `option`, as a path (`system.1.cache_control.ttl`); None: nowhere.

    Schemas and arguments of tools are not looked into: their names are no options.
    """
    if isinstance(body, Mapping):
        for key, value in body.items():
            here = f"{place}.{key}".lstrip(".")
            if key == option:
                return here
            ours = key not in _OTHER_PEOPLES_WORDS or (
                key == "input" and isinstance(value, list)
            )  # Responses: the prompt
            if ours and (found := place_of(option, value, here)) is not None:
                return found
    elif isinstance(body, list):
        for number, value in enumerate(body):
            if (found := place_of(option, value, f"{place}.{number}".lstrip("."))) is not None:
                return found
    return None
