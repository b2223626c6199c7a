"""Contents that the model has seen, by digest: what a later diff is made against. One file each, compressed.

Kept beside the ledger, without secrets (rule R10). What is missing or damaged is no error: then the model is told to
read again.
"""

import os
import secrets
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

_KEPT_S: Final = 30 * 86_400.0  # unused for longer, a version goes
_MOST: Final = 256 << 20  # bytes of all versions; beyond them the least recently used go
LARGEST: Final = 16 << 20  # characters; of a longer text no version is kept


class Versions:
    """In `folder`, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, digest: str, text: str) -> None:
        """Remember `text` under `digest`. A disk that refuses costs a diff, and nothing else."""
        path = self._path(digest)
        if len(text) > LARGEST:
            return
        with suppress(OSError):
            os.utime(path)  # it is there, and in use
            return
        temporary = path.with_name(f".{secrets.token_hex(8)}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with open(descriptor, "wb") as file:
                    file.write(zlib.compress(text.encode(errors="surrogatepass"), 1))
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def find(self, digest: str) -> str | None:
        try:
            return zlib.decompress(self._path(digest).read_bytes()).decode(errors="surrogatepass")
        except (OSError, zlib.error, UnicodeDecodeError):
            return None

    def prune(self, now: float, most: int = _MOST) -> None:
        """Forget what has not been used for long by `now` (seconds since the epoch), and the oldest of too much."""
        found = []
        for path in self._folder.glob("??/*"):
            with suppress(OSError):
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in found)
        for used, size, path in sorted(found):
            if used >= now - _KEPT_S and total <= most:
                break
            with suppress(OSError):
                path.unlink()
                total -= size

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]
