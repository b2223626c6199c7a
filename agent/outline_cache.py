"""Outlines that have been made before, by content: a repository is parsed once.

A SQLite file in the user's cache folder. It only saves work: what is made with it is what is made without it.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import context.names
import context.repo.outline
from context.repo.outline import VERSION, Outline, outline

_SCHEMA = """
CREATE TABLE IF NOT EXISTS outline (digest TEXT, version TEXT, body BLOB, PRIMARY KEY (digest, version)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS made (key TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (path TEXT PRIMARY KEY, signature TEXT, digest TEXT) WITHOUT ROWID;
"""

_LARGEST = 256 << 20  # bytes; an outline takes about one kilobyte

_MAKERS = (Path(context.repo.outline.__file__).parent, Path(context.names.__file__))

Make = Callable[[str, bytes], Outline | None]


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0.2)
    try:
        connection.executescript(_SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@cache
def makers_version(makers: tuple[Path, ...] = _MAKERS) -> str:
    """Stands for the code that `OutlineCache.remembered` keeps results of: files, and folders of them. Another release
    makes them anew, and so does another state of a checkout.
    """
    files = sorted(file for maker in makers for file in (maker.glob("*.py") if maker.is_dir() else [maker]))
    state = hashlib.blake2b(VERSION.encode(), digest_size=8)
    for file in files:
        with suppress(OSError):  # installed in some other way than as files: the outlines' own version must do
            state.update(file.read_bytes())
    return state.hexdigest()


class OutlineCache:
    """`path` None: in memory, for this process. A locked file costs time and nothing else; one that is damaged or has
    grown too large is begun anew. `make` makes an outline of the bytes of a file with that name. `version`: of the code
    that makes what is `remembered` (None: this code).
    """

    def __init__(self, path: Path | None, make: Make = outline, version: str | None = None) -> None:
        self.make = make
        self._version = makers_version() if version is None else version
        self._connection = self._open(path)

    def _open(self, path: Path | None) -> sqlite3.Connection:
        if path is not None:
            with suppress(OSError, sqlite3.Error):
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists() and path.stat().st_size > _LARGEST:
                    path.unlink()
                try:
                    return _connected(path)
                except sqlite3.DatabaseError as error:
                    if isinstance(error, sqlite3.OperationalError):  # locked, a full disk: not its fault
                        raise
                    path.unlink()
                    return _connected(path)
        connection = sqlite3.connect(":memory:")
        connection.executescript(_SCHEMA)
        return connection

    def digest(self, path: Path, signature: Iterable[int]) -> str | None:
        """The digest that the file at `path` had in this state."""
        row = self._one("SELECT signature, digest FROM state WHERE path = ?", str(path))
        return str(row[1]) if row and row[0] == json.dumps(list(signature)) else None

    def note(self, path: Path, signature: Iterable[int], digest: str) -> None:
        self._write("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", str(path), json.dumps(list(signature)), digest)

    def find(self, digest: str) -> tuple[bool, Outline | None]:
        """Whether it is known, and the outline (None: there is none to be made)."""
        row = self._one("SELECT body FROM outline WHERE digest = ? AND version = ?", digest, VERSION)
        if row is None:
            return False, None
        try:
            told = json.loads(zlib.decompress(row[0]))
            return True, None if told is None else Outline(told[0], tuple(told[1]), frozenset(told[2]))
        except (zlib.error, ValueError, TypeError, IndexError):
            return False, None

    def keep(self, digest: str, outline: Outline | None) -> None:
        told = None if outline is None else [outline.text, outline.defines, sorted(outline.mentions)]
        body = zlib.compress(json.dumps(told).encode(), 1)
        self._write("INSERT OR REPLACE INTO outline VALUES (?, ?, ?)", digest, VERSION, body)

    def remembered(self, key: str, make: Callable[[], str]) -> str:
        """What `make` gives for `key`, which says all that it depends on but the code."""
        key = f"{self._version} {key}"
        row = self._one("SELECT body FROM made WHERE key = ?", key)
        try:
            if row is not None:
                return zlib.decompress(row[0]).decode(errors="surrogatepass")
        except (zlib.error, ValueError, TypeError):
            pass
        text = make()
        self._write(
            "INSERT OR REPLACE INTO made VALUES (?, ?)", key, zlib.compress(text.encode(errors="surrogatepass"), 1)
        )
        return text

    def _one(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        try:
            found: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        except (sqlite3.Error, UnicodeEncodeError):  # a name that is no text is not looked up
            return None
        return found

    def _write(self, sql: str, *values: object) -> None:
        with suppress(sqlite3.Error, UnicodeEncodeError):
            self._connection.execute(sql, values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(sqlite3.Error):
            self._connection.commit()
        self._connection.close()
