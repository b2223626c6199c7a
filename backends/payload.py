"""Reading payloads of a stream, in which anything may turn out to be something else."""

import json
from collections.abc import Mapping
from typing import Any


class BrokenStreamError(ValueError):
    """An event is not what the API promises."""


def mapping_of(value: object, what: str) -> Mapping[str, Any]:
    """`value`, which must be a JSON object. Raises BrokenStreamError."""
    if not isinstance(value, Mapping):
        raise BrokenStreamError(f"{what} is no JSON object")
    return value


def text_of(payload: Mapping[str, Any], key: str) -> str:
    """The text under `key`, empty when it is absent. Raises BrokenStreamError for anything else."""
    value = payload.get(key, "")
    if not isinstance(value, str):
        raise BrokenStreamError(f"{key} is no text")
    return value


def index_of(event: Mapping[str, Any], key: str) -> int:
    """The number under `key`. Raises BrokenStreamError when it is absent."""
    value = event.get(key)
    if not isinstance(value, int):
        raise BrokenStreamError(f"{event.get('type')} without {key}")
    return value


def count_of(value: object) -> int | None:
    """A counter, or None for whatever is not one: a gateway's mistake must not become a bill."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


_STANDARD = ("auto", "default", "on_demand", "standard")


def tier_of(value: object) -> str | None:
    """How a call was served, in the provider's word, where that is not the standard way.

    Anthropic: `usage.speed` and `usage.service_tier`; OpenAI: `service_tier` of a response (anthropic 2.14.0,
    types/usage.py; openai 3.57.0, types/responses/response.py); Groq calls its standard one on_demand.
    """
    return value if isinstance(value, str) and value and value not in _STANDARD else None


def is_object(arguments: object) -> bool:
    """Whether a text is a whole JSON object: in a reply that was cut it may end anywhere."""
    try:
        return isinstance(json.loads(arguments if isinstance(arguments, str) else ""), dict)
    except (ValueError, RecursionError):
        return False


def dumps(value: object) -> bytes:
    """JSON without spaces, text as it is; a lone surrogate stays the escape that it came as."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return written.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
