"""What all streams of server-sent events have in common, whichever SDK reads them."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from backends.base import BackendError
from backends.errors import Endpoint, broken_answer

if TYPE_CHECKING:
    import httpx2

_DRAIN_S: Final = 1.0


def check_type(response: "httpx2.Response", endpoint: Endpoint) -> None:
    """Raises BackendError (PROTOCOL) for an answer that is no stream of events, such as a proxy's login page."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "text/event-stream":
        what = "a web page" if "html" in kind else f"{kind or 'no content type'}"
        raise broken_answer(endpoint, f"{what} instead of a stream of events")


async def drain(payloads: AsyncIterator[Any]) -> None:
    """Read to the end of the response, so that the connection can serve the next call."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in payloads:
                pass
    except (TimeoutError, BackendError):
        return  # the reply is whole; only the connection is of no more use
