"""The one table of errors and retries, for all backends: what went wrong, whether a retry can help, one clear line.

A provider's module adds only what is its own. Sources: Anthropic's errors page as of 2026-08-22 and anthropic 2.14.0
(_base_client.py, types/shared/error_type.py); openai 3.57.0 (types/responses/response_error.py, _base_client.py).
Wordings of all the others: `error_words`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import SplitResult, urlsplit

from backends.base import BackendError, ErrorKind
from backends.error_words import (
    broken_call,
    is_money_code,
    money_is_gone,
    named_window,
    over_a_minute,
    refused_option,
    too_long,
)

if TYPE_CHECKING:
    import httpx2

_BY_WORD: Final = {  # an error's code or type: each means one thing only
    "authentication_error": ErrorKind.AUTH,
    "invalid_api_key": ErrorKind.AUTH,
    "invalid_authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "billing_error": ErrorKind.BILLING,
    "not_found_error": ErrorKind.NOT_FOUND,
    "model_not_found": ErrorKind.NOT_FOUND,
    "request_too_large": ErrorKind.OVERFLOW,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "rate_limit_reached_error": ErrorKind.RATE_LIMIT,
    "overloaded_error": ErrorKind.OVERLOADED,
    "engine_overloaded_error": ErrorKind.OVERLOADED,
    "server_is_overloaded": ErrorKind.OVERLOADED,
    "slow_down": ErrorKind.OVERLOADED,
    "timeout_error": ErrorKind.TIMEOUT,
    "api_error": ErrorKind.SERVER,
    "server_error": ErrorKind.SERVER,
    "conflict_error": ErrorKind.SERVER,
    "invalid_prompt": ErrorKind.INVALID,
    "bio_policy": ErrorKind.INVALID,
    "cyber_policy": ErrorKind.INVALID,
    "misalignment_policy_violation": ErrorKind.INVALID,
    "content_policy_violation": ErrorKind.INVALID,
    "data_residency_mismatch": ErrorKind.INVALID,
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
_VAGUE: Final = frozenset({"invalid_request_error", "BadRequestError", "bad_request", "bad_request_error"})
_NAMES_OPTIONS: Final = frozenset({400, 404, 422, None})  # statuses of an answer that may refuse an option
_KEY: Final = re.compile(r"sk-ant-[\w-]+|\b(?:sk|gsk|xai)-[\w-]{16,}|\bgsk_\w{16,}")
_WAIT_TOLD: Final = re.compile(r"(?:try again|retry) in (?:(\d+)m(?!s))?(?:([\d.]+)(ms|s))?", re.IGNORECASE)
_LONGEST_QUOTE: Final = 400
_SHORTEST_KEY: Final = 8  # characters of what is kept out of messages; no provider gives out a shorter one


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the calls go.

    `official`: the provider's own API, whose error rules are known. `secrets` never reach a message. `key_from` and
    `url_from` name the environment variables or settings that the key and the base URL are from (no key: None).
    `serves`: the API that must be served there. `url_hint` ends the advice on a wrong base URL. `now` tells the time
    for dated retry headers.
    """

    base_url: str
    url_from: str
    url_hint: str = ""
    serves: str
    model: str
    official: bool
    key_from: str | None
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
                f"{self.url_from} is no web address. It looks like https://gateway.example.org, or is left unset.",
            )

    @property
    def remote(self) -> bool:
        """Whether it is on another machine. Where nothing listens on this one, waiting brings nobody."""
        return self.host not in ("localhost", "127.0.0.1", "::1")

    @property
    def host(self) -> str:
        """The host's name, for messages."""
        parts = self._parts
        return (parts.hostname or "") if parts else ""

    @property
    def address(self) -> str:
        """The host with the port, if the base URL names one. Empty when the URL is none."""
        parts = self._parts
        if parts is None or not parts.hostname:
            return ""
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{host}:{parts.port}" if parts.port else host

    @property
    def shown_url(self) -> str:
        """The base URL without a password or a query."""
        parts = self._parts
        return f"{parts.scheme}://{self.address}{parts.path}" if parts else ""

    @property
    def _parts(self) -> SplitResult | None:
        try:
            parts = urlsplit(self.base_url)
            _ = parts.port  # read to see whether it is one
        except ValueError:
            return None
        return parts

    def quote(self, text: object) -> str:
        """Someone else's words on one line, of bearable length and without a key."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            if len(secret) >= _SHORTEST_KEY:  # a placeholder such as "x" stands in every word
                line = line.replace(secret, "[key]")
        line = _KEY.sub("[key]", line)
        return line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "…"


@dataclass(frozen=True, slots=True)
class Fault:
    """What an API says of an error. `code`, `type` and `param` as it spells them; `status`: HTTP's, None in a stream.

    `kind`: set where a provider's own module knows better than the table.
    """

    message: str
    status: int | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None
    request_id: str | None = None
    kind: ErrorKind | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any], status: int | None = None, request_id: object = None) -> Self:
        """From a JSON answer in whatever form: `{"error": {…}}`, `{"error": "…"}`, `{"message": …}`, `{"detail": …}`,
        or the error itself.
        """
        inner = body.get("error")
        error = inner if isinstance(inner, Mapping) else body
        told = inner if isinstance(inner, str) else error.get("message") or error.get("detail")
        code, details, metadata = error.get("code"), error.get("details"), error.get("metadata")
        if isinstance(details, Mapping) and isinstance(details.get("error_code"), str):  # Anthropic's
            code = details["error_code"]
        if isinstance(metadata, Mapping) and metadata.get("raw"):  # OpenRouter: what the provider behind it said
            told = f"{told}: {metadata['raw']}"
        if status is None and isinstance(code, int) and 400 <= code < 600:  # servers that fail within a stream
            status = code
        kind = error.get("type")
        return cls(
            message=str(told or kind or (f"HTTP {status}" if status else body)),
            status=status,
            code=code if isinstance(code, str) else None,
            type=kind if isinstance(kind, str) else None,
            param=error["param"] if isinstance(error.get("param"), str) else None,
            request_id=str(request_id) if request_id else None,
        )


def api_error(
    fault: Fault, endpoint: Endpoint, headers: Mapping[str, str] | None = None, *, bare_limit_is_cap: bool = False
) -> BackendError:
    """The error of a call that an API answered with `fault`.

    `bare_limit_is_cap`: a rate limit without a time to wait is the spend cap (Anthropic's own API).
    """
    headers = headers or {}
    wait = retry_after(headers, endpoint.now())
    if wait is None:
        wait = _told_wait(fault.message)
    kind = fault.kind or _kind(fault, dated=wait is not None, bare_limit_is_cap=bare_limit_is_cap)
    option = None
    if kind in (ErrorKind.INVALID, ErrorKind.NOT_FOUND, ErrorKind.SERVER) and fault.status in _NAMES_OPTIONS:
        option = refused_option(fault.message, fault.param)
        if option is not None:
            kind = ErrorKind.INVALID
    where = f"HTTP {fault.status}" if fault.status is not None else "in the middle of the reply"
    ticket = f", request {fault.request_id}" if fault.request_id else ""
    line = _line(kind, endpoint, f"{endpoint.quote(fault.message)} ({where}{ticket})")
    return BackendError(
        kind,
        line,
        retry_after=wait,
        retriable=False if option else _retriable(kind, headers),
        option=option,
        window=named_window(fault.message) if kind is ErrorKind.OVERFLOW else None,
    )


def from_response(
    response: "httpx2.Response",
    endpoint: Endpoint,
    *,
    read: Callable[[Fault], Fault] = lambda fault: fault,
    bare_limit_is_cap: bool = False,
) -> BackendError:
    """The error that an HTTP answer of 4xx or 5xx means; its body must have been received.

    `read` is the provider's own look at the fault.
    """
    headers, status = response.headers, response.status_code
    request_id = headers.get("request-id") or headers.get("x-request-id")
    try:
        body: object = json.loads(response.text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, list) and len(body) == 1:  # Gemini's
        body = body[0]
    if isinstance(body, Mapping):
        fault = read(Fault.read(body, status, request_id))
        return api_error(fault, endpoint, headers, bare_limit_is_cap=bare_limit_is_cap)
    if status < 500 and status not in (401, 408, 429):
        kind = "a web page" if "html" in headers.get("content-type", "") else "something that is no JSON"
        return broken_answer(endpoint, f"{kind} (HTTP {status})")
    fault = Fault(f"HTTP {status}", status, request_id=request_id)
    return api_error(fault, endpoint, headers, bare_limit_is_cap=bare_limit_is_cap)


def from_transport(error: BaseException, endpoint: Endpoint, *, begun: bool) -> BackendError:
    """A failure of the connection (httpx2.HTTPError); `begun`: after the reply had begun."""
    import httpx2

    match error:
        case httpx2.TimeoutException():
            return timed_out(endpoint)
        case httpx2.TooManyRedirects() | httpx2.DecodingError():
            return broken_answer(endpoint, f"something unreadable ({error})")
        case httpx2.ConnectError() | httpx2.ProxyError():
            return BackendError(
                ErrorKind.NETWORK,
                f"Cannot reach {endpoint.address} ({endpoint.quote(error)}). Check the network, and "
                f"{endpoint.url_from} and proxy variables if they are set.",
                retriable=endpoint.remote,
            )
        case _:
            return cut_stream(endpoint, error, begun=begun)


def timed_out(endpoint: Endpoint) -> BackendError:
    return BackendError(ErrorKind.TIMEOUT, f"{endpoint.host} did not answer in time. Try again.")


def broken_answer(endpoint: Endpoint, what: str) -> BackendError:
    """The answer is not what the API promises."""
    advice = (
        "Try again; if it stays, something between you and the API changes its answers (a proxy?)."
        if endpoint.official
        else f"Check {endpoint.url_from} ({endpoint.shown_url}): it must serve {endpoint.serves}."
    )
    return BackendError(ErrorKind.PROTOCOL, f"{endpoint.host} answered with {endpoint.quote(what)}. {advice}")


def cut_stream(endpoint: Endpoint, error: BaseException | None = None, *, begun: bool = True) -> BackendError:
    """The connection ended before the reply did; `begun`: after it had begun."""
    when = "in the middle of the reply" if begun else "before it answered"
    why = f" ({endpoint.quote(error)})" if error is not None and str(error) else ""
    return BackendError(ErrorKind.NETWORK, f"The connection to {endpoint.host} was lost {when}{why}. Try again.")


def with_kind(fault: Fault, kind: ErrorKind) -> Fault:
    return replace(fault, kind=kind)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
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


def _told_wait(message: str) -> float | None:
    """Seconds to wait by the message, where the headers say nothing ("Please try again in 1m7.5s")."""
    found = _WAIT_TOLD.search(message)
    if found is None or not (found[1] or found[2]):
        return None
    try:
        seconds = float(found[2] or 0) / (1000 if found[3] == "ms" else 1)
    except ValueError:
        return None
    return 60 * int(found[1] or 0) + seconds


def _kind(fault: Fault, *, dated: bool, bare_limit_is_cap: bool) -> ErrorKind:
    words = [word for word in (fault.code, fault.type) if word]
    kind = next((_BY_WORD[word] for word in words if word in _BY_WORD), None) or _BY_STATUS.get(fault.status or 0)
    if kind is None:
        ours = (fault.status is not None and fault.status < 500) or any(word in _VAGUE for word in words)
        kind = ErrorKind.INVALID if ours else ErrorKind.SERVER
    if is_money_code(*words):
        return ErrorKind.BILLING
    if too_long("", *words) or over_a_minute(fault.message):
        return ErrorKind.OVERFLOW
    match kind:
        case ErrorKind.INVALID | ErrorKind.SERVER if broken_call(fault.message, *words):
            return ErrorKind.BROKEN_CALL
        case ErrorKind.INVALID | ErrorKind.SERVER if too_long(fault.message):
            return ErrorKind.OVERFLOW
        case ErrorKind.INVALID | ErrorKind.AUTH if money_is_gone(fault.message):
            return ErrorKind.BILLING
        # A rate limit comes with the time to wait. Without one Anthropic's own is the spend cap, which no retry gets
        # past (errors page, 2026-08-22); any other bare 429 counts as one only when it says so.
        case ErrorKind.RATE_LIMIT if not dated and (bare_limit_is_cap or money_is_gone(fault.message)):
            return ErrorKind.BILLING
        case _:
            return kind


def _line(kind: ErrorKind, endpoint: Endpoint, told: str) -> str:
    host = endpoint.host
    match kind:
        case ErrorKind.AUTH if endpoint.key_from is None:
            return f"{host} wants a key: {told}. Give it one."
        case ErrorKind.AUTH:
            return f"{host} refused the key in {endpoint.key_from}: {told}. Check or replace it."
        case ErrorKind.BILLING:
            return f"The account's credit or spend limit is used up: {told}. Raise it, or use another model."
        case ErrorKind.NOT_FOUND:
            advice = "`agent models list` shows known names"
            if not endpoint.official:
                advice += f"; check {endpoint.url_from} ({endpoint.shown_url}) too{endpoint.url_hint}"
            return f"{host} does not have {endpoint.model}: {told}. {advice}."
        case ErrorKind.OVERFLOW:
            return f"The prompt is too long for {endpoint.model}: {told}. Start a new session, or use a larger model."
        case ErrorKind.RATE_LIMIT:
            return f"{host} limits the rate of requests: {told}."
        case ErrorKind.OVERLOADED:
            return f"{host} is overloaded: {told}."
        case ErrorKind.TIMEOUT:
            return f"{host} took too long: {told}."
        case ErrorKind.BROKEN_CALL:
            return f"{host} could not read the tool call that the model wrote: {told}."
        case ErrorKind.INVALID:
            return f"{host} refused the request: {told}."
        case _:
            return f"{host} failed: {told}."


def _retriable(kind: ErrorKind, headers: Mapping[str, str]) -> bool | None:
    """What the server says about retries goes over what the kind implies (None)."""
    told = headers.get("x-should-retry")
    if told in ("true", "false") and kind is not ErrorKind.BILLING:
        return told == "true"
    return None
