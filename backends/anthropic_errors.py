"""What is Anthropic's own about errors; the table and the wordings are those of all backends (`errors`).

Sources: the documentation's errors page as of 2026-08-22; anthropic 2.14.0, _exceptions.py.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from backends.base import BackendError, ErrorKind
from backends.errors import (
    Endpoint,
    Fault,
    api_error,
    broken_answer,
    from_response,
    from_transport,
    timed_out,
    with_kind,
)

OFFICIAL_URL: Final = "https://api.anthropic.com"

_SIGNATURE: Final = re.compile(r"invalid `?signature`? in `?thinking`? block", re.IGNORECASE)


def error_in_stream(payload: Mapping[str, Any], endpoint: Endpoint) -> BackendError:
    """An `error` event in the middle of a stream that began with HTTP 200."""
    if not isinstance(payload.get("error"), Mapping):
        return broken_answer(endpoint, "an error event without an error")
    fault = _read(Fault.read(payload, request_id=payload.get("request_id")))
    return api_error(fault, endpoint, bare_limit_is_cap=endpoint.official)


def from_sdk(error: Exception, endpoint: Endpoint) -> BackendError:
    """A failure that the SDK raised (anthropic.AnthropicError) or its HTTP client (httpx2.HTTPError)."""
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        return from_response(error.response, endpoint, read=_read, bare_limit_is_cap=endpoint.official)
    if isinstance(error, anthropic.APIConnectionError) and error.__cause__ is not None:
        return from_transport(error.__cause__, endpoint, begun=False)
    if isinstance(error, anthropic.APITimeoutError):
        return timed_out(endpoint)
    return from_transport(error, endpoint, begun=True)


def _read(fault: Fault) -> Fault:
    """Some gateways answer a thinking block that they cannot verify with 429, where no retry can help."""
    return with_kind(fault, ErrorKind.INVALID) if _SIGNATURE.search(fault.message) else fault
