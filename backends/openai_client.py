"""The official OpenAI SDK as a carrier: it does authentication, headers, connections and time-outs. Bodies are ours,
and answers come out as JSON, so any API that the SDK can reach is reached in this way.

The SDK takes about a second to import: call `connect` in a thread. Source: openai 3.57.0, _base_client.py,
_streaming.py.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from backends.base import BackendError, ErrorKind
from backends.errors import (
    Endpoint,
    Fault,
    api_error,
    broken_answer,
    cut_stream,
    from_response,
    from_transport,
    timed_out,
)
from backends.sse import check_type

if TYPE_CHECKING:
    import openai


def connect(
    endpoint: Endpoint, key: str, timeouts: tuple[float, float], headers: Mapping[str, str] | None = None
) -> "openai.AsyncOpenAI":
    """A client. `timeouts` in seconds: to connect, and between two signs of life. Raises BackendError."""
    import httpx2
    import openai

    connect_s, read_s = timeouts
    try:
        return openai.AsyncOpenAI(
            api_key=key,
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=httpx2.Timeout(read_s, connect=connect_s),
            default_headers=headers,
        )
    except httpx2.InvalidURL as error:
        raise BackendError(
            ErrorKind.INVALID, f"{endpoint.url_from} is no address ({error}). Nothing was sent. Correct it or unset it."
        ) from error


async def stream(
    client: "openai.AsyncOpenAI",
    path: str,
    body: bytes,
    endpoint: Endpoint,
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[Any, None]:
    """POST `body`; the payloads of the stream's events, parsed. Raises BackendError for any failure."""
    import httpx2
    import openai

    begun = False
    try:
        # Not responses.create: it would walk and write the whole history anew for each call, in its own way.
        events = await client.post(
            path,
            content=body,
            cast_to=object,
            options={"headers": dict(headers or {})},
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
        try:
            check_type(events.response, endpoint)
            async for payload in events:
                begun = True
                yield payload
        finally:
            await events.close()
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise from_sdk(error, endpoint, begun=begun) from error
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 that are none
        what = "bytes that are no UTF-8" if isinstance(error, UnicodeDecodeError) else "an event that is no JSON"
        raise broken_answer(endpoint, what) from error


async def post(
    client: "openai.AsyncOpenAI",
    path: str,
    body: bytes,
    endpoint: Endpoint,
    headers: Mapping[str, str] | None = None,
) -> Mapping[str, Any]:
    """POST `body`; the JSON object that comes back. Raises BackendError."""
    import httpx2
    import openai

    try:
        answer = await client.post(path, content=body, cast_to=object, options={"headers": dict(headers or {})})
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise from_sdk(error, endpoint, begun=False) from error
    except (ValueError, RecursionError) as error:
        raise broken_answer(endpoint, "something that is no JSON") from error
    if not isinstance(answer, Mapping):  # what is no JSON comes back as text
        raise broken_answer(endpoint, "something that is no JSON object")
    return answer


def from_sdk(error: Exception, endpoint: Endpoint, *, begun: bool) -> BackendError:
    """A failure that the SDK raised (openai.OpenAIError) or its HTTP client (httpx2.HTTPError)."""
    import openai

    match error:
        case openai.APIStatusError():
            return from_response(error.response, endpoint)
        case openai.APIConnectionError() if error.__cause__ is not None:
            return from_transport(error.__cause__, endpoint, begun=begun)
        case openai.APITimeoutError():
            return timed_out(endpoint)
        case openai.APIConnectionError():
            return cut_stream(endpoint, error, begun=begun)
        case openai.APIError():  # an event with an `error` in it, in the middle of a stream
            body = error.body
            fault = Fault.read(body if isinstance(body, Mapping) else {"message": body or error.message})
            return api_error(fault, endpoint)
        case _:
            return from_transport(error, endpoint, begun=begun)
