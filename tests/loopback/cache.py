"""A prefix cache as the API bills it, kept small: exact prefixes, written at markers, found by a short look back.

No clock: nothing expires. Source: prompt-caching documentation as of 2026-08-22.
"""

import hashlib
import json
import threading
from typing import Any

from .bodies import Body, elements, without_markers

_BYTES_PER_TOKEN = 3


class PrefixCache:
    """Entries of one workspace. `min_tokens`: shorter prefixes are not cached; `lookback` in content blocks."""

    def __init__(self, min_tokens: int = 1024, lookback: int = 20) -> None:
        self.min_tokens = min_tokens
        self.lookback = lookback
        self._entries: set[bytes] = set()
        self._lock = threading.Lock()

    def bill(self, body: Body) -> dict[str, Any]:
        """The input counters of a request, as `message_start` reports them. Writes its entries."""
        with self._lock:
            return self._bill(body)

    def _bill(self, body: Body) -> dict[str, Any]:
        chain = hashlib.sha256(str(body.get("model")).encode())
        digests, totals, marked, total = list[bytes](), list[int](), list[tuple[int, str]](), 0
        bare = [element for _, element in elements(without_markers(body))]
        for position, ((place, element), plain) in enumerate(zip(elements(body), bare, strict=True)):
            data = json.dumps(plain, ensure_ascii=False).encode()
            chain.update(place.encode() + data)
            total += len(data) // _BYTES_PER_TOKEN + 1
            digests.append(chain.digest())
            totals.append(total)
            if control := element.get("cache_control"):
                marked.append((position, control.get("ttl", "5m")))

        cacheable = [(position, ttl) for position, ttl in marked if totals[position] >= self.min_tokens]
        hit = self._hit([position for position, _ in cacheable], digests)
        read = totals[hit] if hit >= 0 else 0
        long_end = max((totals[position] for position, ttl in cacheable if ttl == "1h"), default=0)
        end = max([totals[position] for position, _ in cacheable], default=0)
        self._entries.update(digests[position] for position, _ in cacheable)
        long = max(0, long_end - read)
        short = max(0, end - max(read, long_end))
        return {
            "input_tokens": total - max(read, end),
            "cache_creation_input_tokens": long + short,
            "cache_read_input_tokens": read,
            "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        }

    def _hit(self, marked: list[int], digests: list[bytes]) -> int:
        """The furthest position that an earlier request wrote and a marker of this one looks back to, or -1."""
        for position in reversed(marked):
            for at in range(position, max(-1, position - self.lookback), -1):
                if digests[at] in self._entries:
                    return at
        return -1
