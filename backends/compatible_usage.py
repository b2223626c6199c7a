"""The bill of one call to a Chat Completions server, in counters that never overlap (rule R4).

Everywhere `prompt_tokens` is all of the input, cached or not. Sources: openai 3.57.0, types/completion_usage.py; the
servers' own forms by endpoints.toml; genai-prices 0.2.3 for tokens of reasoning that are billed besides the output.
"""

from collections.abc import Mapping
from typing import Any

from backends.base import Usage
from backends.compatible_endpoints import Endpoint
from backends.payload import count_of, tier_of


def read_usage(told: Mapping[str, Any], endpoint: Endpoint, *, marked: bool = False, long_asked: bool = False) -> Usage:
    """`told` holds `usage`, `timings` and `service_tier` as the server reported them, as far as it did.

    `marked`: the request had cache markers, so that a missing count of writes is unknown. Without them nothing is
    billed as a write unless the server says so. `long_asked`: one of them asked for the long time to live.
    """
    read = _first(told, *endpoint.read_fields)
    prompt = _prompt_tokens(told, endpoint, read)
    write = _first(told, *endpoint.write_fields)
    if write is None and read is not None and not marked:
        write = 0
    fresh = None
    if prompt is not None and read is not None and write is not None:
        # More cached than there was: one of these counters is not what it is called, so what is left over is unknown.
        fresh = prompt - read - write if read + write <= prompt else None
    output, reasoning = _output(told, endpoint)
    return Usage(
        fresh=fresh,
        cache_read=read,
        cache_write=write,
        cache_write_long=_long(told, write, long_asked=long_asked),
        output=output,
        reasoning=reasoning,
        tier=tier_of(told.get("service_tier")),
    )


def _prompt_tokens(told: Mapping[str, Any], endpoint: Endpoint, read: int | None) -> int | None:
    prompt = _first(told, "usage.prompt_tokens")
    if prompt is None and read is not None:
        missed = _first(told, *([endpoint.miss_field] if endpoint.miss_field else []), "timings.prompt_n")
        prompt = None if missed is None else read + missed
    return prompt


def _output(told: Mapping[str, Any], endpoint: Endpoint) -> tuple[int | None, int | None]:
    """All generated tokens, and how many of them were reasoning."""
    output = _first(told, "usage.completion_tokens", "timings.predicted_n")
    reasoning = _first(told, "usage.completion_tokens_details.reasoning_tokens", "usage.reasoning_tokens")
    total, prompt = _first(told, "usage.total_tokens"), _first(told, "usage.prompt_tokens")
    if output is None:
        return None, reasoning
    besides = None if total is None or prompt is None else total - prompt - output
    if reasoning and besides == reasoning:  # told by the total, whatever the server's name
        return output + reasoning, reasoning
    if endpoint.reasoning_outside and reasoning and besides is None:
        return output + reasoning, reasoning
    if endpoint.reasoning_outside and not reasoning and besides is not None and besides > 0:
        return output + besides, besides
    return output, reasoning


def _long(told: Mapping[str, Any], write: int | None, *, long_asked: bool) -> int | None:
    """Of the writes, those at the long time to live; unknown where it was asked for and the server does not tell."""
    if write == 0 or (write is not None and not long_asked):
        return 0
    for place in ("usage.prompt_tokens_details", "usage"):
        for split, name in (
            ("cache_creation", "ephemeral_1h_input_tokens"),
            ("cache_write_tokens_details", "ttl_12h_tokens"),
        ):
            if (long := _first(told, f"{place}.{split}.{name}")) is not None:
                return long if write is not None and long <= write else None
    return None


def _first(told: Mapping[str, Any], *paths: str) -> int | None:
    """The first counter that is there. Whatever is no counter is passed over: a server's mistake must not be a bill."""
    for path in paths:
        value: Any = told
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if (found := count_of(value)) is not None:
            return found
    return None
