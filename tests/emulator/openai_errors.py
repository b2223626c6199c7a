"""OpenAI's error bodies, and the failures that its APIs share.

Sources: provider rules 2.4; the messages of public error reports (as of 2026-11).
"""

import re
from collections.abc import Mapping
from typing import Any

from .script import Failure

_TYPES = {429: "requests", 500: "server_error", 502: "server_error", 503: "server_error", 529: "server_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded", 503: "server_is_overloaded", 529: "server_is_overloaded"}
_SPENT = re.compile("quota|usage limit|billing", re.IGNORECASE)


def refused(message: str, param: str | None = None, code: str | None = None, status: int = 400) -> Failure:
    """A request that the API does not take."""
    return Failure(status, ("invalid_request_error", message), details={"param": param, "code": code})


def unknown_parameter(name: str) -> Failure:
    return refused(f"Unknown parameter: '{name}'.", name, "unknown_parameter")


def missing_parameter(name: str) -> Failure:
    return refused(f"Missing required parameter: '{name}'.", name, "missing_required_parameter")


def unsupported_parameter(name: str, more: str = "") -> Failure:
    text = f"Unsupported parameter: '{name}' is not supported with this model.{more}"
    return refused(text, name, "unsupported_parameter")


def invalid_value(name: str, value: object, supported: object) -> Failure:
    listed = ", ".join(f"'{each}'" for each in supported) if isinstance(supported, tuple) else str(supported)
    text = f"Invalid value: '{value}'. Supported values are: {listed}."
    return refused(text, name, "invalid_value")


def no_key() -> Failure:
    text = "You didn't provide an API key. You need to provide your API key in an Authorization header."
    return refused(text, None, "invalid_api_key", 401)


def rate_limited(headers: Mapping[str, str] | None = None, wait: str = "6ms") -> Failure:
    """The 429 that passes: too many tokens in this minute."""
    text = (
        "Rate limit reached for gpt-6.2-sol in organization org-test on tokens per min (TPM): "
        f"Limit 30000, Used 29000, Requested 2000. Please try again in {wait}."
    )
    return Failure(429, ("tokens", text), headers=headers or {}, details={"param": None, "code": "rate_limit_exceeded"})


def quota_exceeded() -> Failure:
    """The 429 that never passes: no credit is left."""
    text = "You exceeded your current quota, please check your plan and billing details."
    return Failure(429, ("insufficient_quota", text), details={"param": None, "code": "insufficient_quota"})


def error_body(failure: Failure) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`; an empty type stands for the API's own for that status."""
    kind, message = failure.error or ("", "")
    code = _CODES.get(failure.status)
    if not kind:
        kind = _TYPES.get(failure.status, "invalid_request_error")
        if failure.status == 429 and _SPENT.search(message):
            kind = code = "insufficient_quota"
    elif kind == "insufficient_quota":
        code = kind
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **(failure.details or {})}}


def bracketed(place: str) -> str:
    """A place as OpenAI writes it: `input.0.content.1.x` is `input[0].content[1].x`."""
    return re.sub(r"\.(\d+)", r"[\1]", place)
