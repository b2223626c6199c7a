"""When a failed call is made again, and after how long. Pure."""

from typing import Final

from backends.base import BackendError

MAX_ATTEMPTS: Final = 8
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_ORDERED_WAIT_S: Final = 600.0  # a provider that asks for more than this will not answer in this sitting


def wait_before_retry(error: BackendError, attempt: int, jitter: float) -> float | None:
    """Seconds to wait after the failure of `attempt` (1, 2, …), or None when another try is pointless.

    A wait that the provider asks for is kept, never shortened. Otherwise it doubles from one second to a minute;
    `jitter` in [0, 1) spreads agents that failed together over the second half of it.
    """
    if not error.retriable or attempt >= MAX_ATTEMPTS:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= _LONGEST_ORDERED_WAIT_S else None
    wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (attempt - 1))
    return wait * (0.5 + 0.5 * jitter)
