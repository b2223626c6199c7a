"""Cached prefixes with their time to live: what all APIs with breakpoints share."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Entry:
    """One cached prefix: `tokens` long; it dies at `expires` (seconds since the epoch), `ttl` behind its last use."""

    tokens: int
    ttl: float
    expires: float


class Entries:
    """The entries of one workspace by the digest of their prefix. Safe for several threads.

    A request that starts exactly when an entry expires does not find it any more.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._lock = threading.Lock()

    def live(self, digest: bytes, now: float) -> bool:
        with self._lock:
            return self._live(digest, now) is not None

    def _live(self, digest: bytes, now: float) -> Entry | None:
        entry = self._entries.get(digest)
        return entry if entry is not None and now < entry.expires else None

    def write(self, digest: bytes, tokens: int, ttl: float, started: float) -> None:
        """Write an entry of a request that started at `started`. One that lives already is used, and keeps its TTL."""
        with self._lock:
            entry = self._live(digest, started)
            if entry is None:
                self._entries[digest] = Entry(tokens, ttl, started + ttl)
            else:
                entry.expires = max(entry.expires, started + entry.ttl)

    def refresh(self, digests: Iterable[bytes], started: float) -> None:
        """A request that started at `started` used these; those among them that are dead or unknown stay so."""
        with self._lock:
            for digest in digests:
                if (entry := self._live(digest, started)) is not None:
                    entry.expires = max(entry.expires, started + entry.ttl)

    def evict(self, *digests: bytes) -> None:
        """Forget these entries; without any, all of them."""
        with self._lock:
            if not digests:
                self._entries.clear()
            for digest in digests:
                self._entries.pop(digest, None)
