"""Every way a call to Anthropic's API (or a gateway that speaks it) can fail, as one BackendError with one clear line.

Sources: the documentation's errors page as of 2026-08-22; anthropic 2.14.0, _exceptions.py, _error_classes.py and
_base_client.py (retry headers), types/shared/error_type.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from backends.base import BackendError, ErrorKind

if TYPE_CHECKING:
    import anthropic

OFFICIAL_URL: Final = "https://api.anthropic.com"

_BY_TYPE: Final = {
    "invalid_request_error": ErrorKind.INVALID,
    "authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "billing_error": ErrorKind.BILLING,
    "not_found_error": ErrorKind.NOT_FOUND,
    "request_too_large": ErrorKind.OVERFLOW,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "overloaded_error": ErrorKind.OVERLOADED,
    "timeout_error": ErrorKind.TIMEOUT,
    "api_error": ErrorKind.SERVER,
    "conflict_error": ErrorKind.SERVER,
}
_BY_STATUS: Final = {
    401: ErrorKind.AUTH,
    402: ErrorKind.BILLING,
    403: ErrorKind.AUTH,
    404: ErrorKind.NOT_FOUND,
    408: ErrorKind.TIMEOUT,
    409: ErrorKind.SERVER,
    413: ErrorKind.OVERFLOW,
    429: ErrorKind.RATE_LIMIT,
    504: ErrorKind.TIMEOUT,
    529: ErrorKind.OVERLOADED,
}
_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceeds? (the )?(maximum |model'?s? )?context|context (window|length|limit)|"
    r"too many (input )?tokens|input is too long",
    re.IGNORECASE,
)
_MONEY: Final = re.compile(
    r"credit balance|spend(ing)? limit|usage limit|budget has been exceeded|billing", re.IGNORECASE
)
_MONEY_CODES: Final = frozenset(
    {
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "linked_organization_spend_limit_reached",
    }
)
_SIGNATURE: Final = re.compile(r"invalid `?signature`? in `?thinking`? block", re.IGNORECASE)
_KEY: Final = re.compile(r"sk-ant-[\w-]+")
_LONGEST_QUOTE: Final = 400


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the calls go.

    `official`: Anthropic's own API, whose error rules are known. `secrets` never reach a message. `key_variable` names
    the environment variable that the key is from; `now` tells the time for dated retry headers.
    """

    base_url: str
    model: str
    official: bool
    key_variable: str
    secrets: tuple[str, ...]
    now: Callable[[], datetime]

    def check(self) -> None:
        """Raises BackendError (INVALID) for a base URL that is none."""
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or any(char.isspace() for char in self.base_url):
            raise BackendError(
                ErrorKind.INVALID,
                "ANTHROPIC_BASE_URL is no web address. It looks like https://gateway.example.org, or is left unset.",
            )

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def shown_url(self) -> str:
        """The base URL without a password or a query."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"

    def quote(self, text: object) -> str:
        """Someone else's words on one line, of bearable length and without a key."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "[key]")
        line = _KEY.sub("[key]", line)
        return line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "…"


def broken_answer(endpoint: Endpoint, what: str) -> BackendError:
    """The answer is not what the API promises."""
    advice = (
        "Try again; if it stays, something between you and the API changes its answers (a proxy?)."
        if endpoint.official
        else f"Check ANTHROPIC_BASE_URL ({endpoint.shown_url}): it must serve Anthropic's Messages API."
    )
    return BackendError(ErrorKind.PROTOCOL, f"{endpoint.host} answered with {endpoint.quote(what)}. {advice}")


def cut_stream(endpoint: Endpoint, error: BaseException | None = None, *, begun: bool = True) -> BackendError:
    """The connection ended before the reply did; `begun`: after it had begun."""
    when = "in the middle of the reply" if begun else "before it answered"
    why = f" ({endpoint.quote(error)})" if error is not None and str(error) else ""
    return BackendError(ErrorKind.NETWORK, f"The connection to {endpoint.host} was lost {when}{why}. Try again.")


def error_in_stream(payload: Mapping[str, Any], endpoint: Endpoint) -> BackendError:
    """An `error` event in the middle of a stream that began with HTTP 200."""
    error = payload.get("error")
    if not isinstance(error, Mapping):
        return broken_answer(endpoint, "an error event without an error")
    return _from_api(error, endpoint, status=None, headers={}, request_id=payload.get("request_id"))


def from_sdk(error: Exception, endpoint: Endpoint) -> BackendError:
    """A failure that the SDK raised (anthropic.AnthropicError) or its HTTP client (httpx2.HTTPError)."""
    import anthropic
    import httpx2

    if isinstance(error, anthropic.APIStatusError):
        return _from_status(error, endpoint)
    cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) and error.__cause__ else error
    match cause:
        case httpx2.TimeoutException() | anthropic.APITimeoutError():
            return BackendError(ErrorKind.TIMEOUT, f"{endpoint.host} did not answer in time. Try again.")
        case httpx2.TooManyRedirects() | httpx2.DecodingError():
            return broken_answer(endpoint, f"something unreadable ({cause})")
        case httpx2.ConnectError() | httpx2.ProxyError():
            return BackendError(
                ErrorKind.NETWORK,
                f"Cannot reach {endpoint.host} ({endpoint.quote(cause)}). Check the network, and ANTHROPIC_BASE_URL "
                "and proxy variables if they are set.",
            )
        case _:
            return cut_stream(endpoint, cause, begun=cause is error)


def _from_status(error: "anthropic.APIStatusError", endpoint: Endpoint) -> BackendError:
    headers, status = error.response.headers, error.status_code
    body = error.body
    api_error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(api_error, Mapping):
        return _from_api(api_error, endpoint, status=status, headers=headers, request_id=error.request_id)
    if isinstance(body, Mapping):  # JSON of another API: OpenAI-like gateways put a text here
        told = api_error if isinstance(api_error, str) else body.get("message") or body.get("detail") or body
        words = {"message": str(told)}
        return _from_api(words, endpoint, status=status, headers=headers, request_id=error.request_id)
    if status < 500 and status not in (401, 408, 429):
        kind = "a web page" if "html" in headers.get("content-type", "") else "something that is no JSON"
        return broken_answer(endpoint, f"{kind} (HTTP {status})")
    words = {"message": f"HTTP {status}"}
    return _from_api(words, endpoint, status=status, headers=headers, request_id=error.request_id)


def _from_api(
    error: Mapping[str, Any], endpoint: Endpoint, *, status: int | None, headers: Mapping[str, str], request_id: object
) -> BackendError:
    """An error in the API's own form: `type`, `message`, and perhaps `details.error_code`."""
    told = str(error.get("message") or error.get("type") or f"HTTP {status}")
    retry_after = _retry_after(headers, endpoint.now())
    kind = _kind(error, told, status, dated=retry_after is not None, official=endpoint.official)
    where = f"HTTP {status}" if status is not None else "in the middle of the reply"
    ticket = f", request {request_id}" if request_id else ""
    message = _line(kind, endpoint, f"{endpoint.quote(told)} ({where}{ticket})")
    return BackendError(kind, message, retry_after=retry_after, retriable=_retriable(kind, status, headers))


def _kind(error: Mapping[str, Any], told: str, status: int | None, *, dated: bool, official: bool) -> ErrorKind:
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, Mapping) else None
    kind = _BY_TYPE.get(str(error.get("type"))) or _BY_STATUS.get(status or 0)
    if kind is None:
        kind = ErrorKind.SERVER if status is None or status >= 500 else ErrorKind.INVALID
    if _SIGNATURE.search(told):
        return ErrorKind.INVALID  # some gateways answer it with 429, where no retry can help
    if code in _MONEY_CODES:
        return ErrorKind.BILLING
    if kind is ErrorKind.INVALID:
        if _TOO_LONG.search(told):
            return ErrorKind.OVERFLOW
        return ErrorKind.BILLING if _MONEY.search(told) else kind
    # A rate limit comes with the time to wait. Without one it is the spend cap, which no retry gets past (errors page,
    # 2026-08-22); a gateway's bare 429 counts as one only when it says so.
    if kind is ErrorKind.RATE_LIMIT and not dated and (official or _MONEY.search(told)):
        return ErrorKind.BILLING
    return kind


def _line(kind: ErrorKind, endpoint: Endpoint, told: str) -> str:
    host = endpoint.host
    match kind:
        case ErrorKind.AUTH:
            return f"{host} refused the key in {endpoint.key_variable}: {told}. Check or replace it."
        case ErrorKind.BILLING:
            return f"The account's credit or spend limit is used up: {told}. Raise it, or use another model."
        case ErrorKind.NOT_FOUND:
            advice = "`agent models list` shows known names"
            if not endpoint.official:
                advice += f"; check ANTHROPIC_BASE_URL ({endpoint.shown_url}) too, it needs no /v1 at its end"
            return f"{host} does not have {endpoint.model}: {told}. {advice}."
        case ErrorKind.OVERFLOW:
            return f"The prompt is too long for {endpoint.model}: {told}. Start a new session, or use a larger model."
        case ErrorKind.RATE_LIMIT:
            return f"{host} limits the rate of requests: {told}."
        case ErrorKind.OVERLOADED:
            return f"{host} is overloaded: {told}."
        case ErrorKind.TIMEOUT:
            return f"{host} took too long: {told}."
        case ErrorKind.INVALID:
            return f"{host} refused the request: {told}."
        case _:
            return f"{host} failed: {told}."


def _retriable(kind: ErrorKind, status: int | None, headers: Mapping[str, str]) -> bool | None:
    """What the server says about retries goes over what the kind implies (None)."""
    told = headers.get("x-should-retry")
    if told in ("true", "false") and kind is not ErrorKind.BILLING:
        return told == "true"
    return None


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait: `retry-after-ms`, or `retry-after` as seconds or as an HTTP date. None when none is readable."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if seconds >= 0 and seconds != float("inf"):
            return seconds
    try:
        date = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
