"""KV states on disk, so that what one process has evaluated no other one evaluates again.

A state is kept in segments, each the tokens behind another segment: all sessions share the first ones, and a turn adds
one file with what was new. The name of a file says which tokens it follows and which it ends with, so that the folder
is the tree; there is no index to be damaged. Files only appear whole (by a rename), are checked by a checksum before
use, and whatever does not fit is removed: the worst that can happen is a cold start.
"""

import hashlib
import json
import os
import struct
import tempfile
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.llama.sequences import common_prefix

_MAGIC: Final = b"KWKV\x01\n"
_HEAD: Final = struct.Struct("<6sIIQII")  # magic, start, tokens, bytes of the state, its checksum, that of all else
_SUFFIX: Final = ".kv"
_TEMPORARY: Final = "tmp-"
_ABOUT: Final = "about.json"
_NAME: Final = 24  # hex digits of a digest in a name
_PIECE: Final = 8 << 20  # bytes written between two looks at whether to go on
_MOST_WAITING: Final = 512 << 20  # bytes
_CLOSE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Segment:
    """The state of `tokens`, the first of which is at position `start`."""

    path: Path
    start: int
    tokens: "array[int]"

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Stored:
    """What is there of a prompt: `segments` in order, and how many tokens of it they cover."""

    segments: tuple[Segment, ...] = ()
    length: int = 0

    def starts_within(self, length: int) -> int:
        """Where the segment begins in which position `length` is."""
        return max((one.start for one in self.segments if one.start <= length), default=0)


@dataclass(frozen=True, slots=True)
class Model:
    """What states depend on besides the tokens: `key` is a digest of it; `about` says it for people."""

    key: str
    about: Mapping[str, str]


class KvStore:
    """The states of one model under `folder`. `quota`: bytes that those of all models may take there. `warn` gets one
    line when nothing can be written. Reads are for the engine's thread; writing goes on in another one.
    """

    def __init__(self, folder: Path, model: Model, quota: int, warn: Callable[[str], None] = lambda _: None) -> None:
        self._root: Final = folder
        self._folder: Final = folder / model.key
        self._quota: Final = quota
        self._model: Final = model
        self._warn: Final = warn
        self._warned = False
        self._writer: Final = ThreadPoolExecutor(1, thread_name_prefix="kv-store")
        self._writing: list[tuple[Future[None], int]] = []  # with the bytes that they hold in memory
        self._coming: dict[str, Segment] = {}  # files that are being written, by their names
        self._stop: Final = threading.Event()

    def find(self, tokens: "array[int]", *, parts: bool) -> Stored:
        """The segments that cover most of the beginning of `tokens`. `parts`: the last one may go on otherwise."""
        best = Stored()
        ways = [(Stored(), _digest("", array("i")))]
        while ways:
            so_far, parent = ways.pop()
            at = so_far.length
            for segment in self._behind(parent, at):
                length = common_prefix(tokens[at:], segment.tokens)
                whole = length == len(segment.tokens)
                if not length or not (whole or parts):
                    continue
                way = Stored((*so_far.segments, segment), at + length)
                if way.length > best.length:
                    best = way
                if whole:
                    ways.append((way, _digest(parent, segment.tokens)))
        return best

    def has(self, tokens: "array[int]") -> bool:
        """Whether all of `tokens` are there in one segment, or are being written."""
        return self._is_there(self._name(array("i"), tokens))

    def load(self, segment: Segment) -> bytes | None:
        """The state, once it is checked; None and no file any more where it is damaged."""
        try:
            with segment.path.open("rb") as file:
                _, _, count, size, checksum, _ = _HEAD.unpack(file.read(_HEAD.size))
                file.seek(_HEAD.size + 4 * count)
                data = file.read()
        except (OSError, struct.error):
            return None
        if len(data) != size or zlib.crc32(data) != checksum:
            _remove(segment.path)
            return None
        with suppress(OSError):
            os.utime(segment.path)  # the least recently used go first
        return data

    def keep(self, tokens: "array[int]", start: int, data: bytes) -> None:
        """Write in the background the state of all `tokens` from `start` on."""
        if len(data) > self._quota or self._stop.is_set():
            return
        before, new = tokens[:start], tokens[start:]
        name = self._name(before, new)
        self._writing = [(job, size) for job, size in self._writing if not job.done()]
        waiting = sum(size for _, size in self._writing)
        if self._is_there(name) or (waiting and waiting + len(data) > _MOST_WAITING):  # the disk does not keep up
            return
        self._coming[name] = Segment(self._folder / name, start, new)
        self._writing.append((self._writer.submit(self._write, name, start, new, data), len(data)))

    def flush(self) -> None:
        """Wait until what was given is written."""
        for job, _ in self._writing:
            job.result()

    def close(self) -> None:
        """Finish writing, but not for ever: what takes too long is left out."""
        timer = threading.Timer(_CLOSE_S, self._stop.set)
        timer.daemon = True
        timer.start()
        self._writer.shutdown(wait=True)
        timer.cancel()
        self._stop.set()

    def _behind(self, parent: str, start: int) -> Iterator[Segment]:
        prefix = f"{start:07d}-{parent[:_NAME]}-"
        # Ahead of the folder: what is written meanwhile is in both, not in neither.
        coming = {name: one for name, one in list(self._coming.items()) if name.startswith(prefix)}
        try:
            # Only files: to open a pipe is to wait for ever.
            names = {
                entry.name for entry in os.scandir(self._folder) if entry.name.startswith(prefix) and entry.is_file()
            }
        except OSError:
            names = set()
        yield from coming.values()
        for name in sorted(names - coming.keys()):
            if name.endswith(_SUFFIX) and (tokens := _read_tokens(self._folder / name, start)) is not None:
                yield Segment(self._folder / name, start, tokens)

    def _is_there(self, name: str) -> bool:
        return name in self._coming or (self._folder / name).exists()

    def _name(self, before: "array[int]", new: "array[int]") -> str:
        parent = _digest("", array("i"))
        for segment in self.find(before, parts=False).segments if before else ():
            parent = _digest(parent, segment.tokens)
        return f"{len(before):07d}-{parent[:_NAME]}-{_digest(parent, new)[:_NAME]}{_SUFFIX}"

    # On the writer's thread

    def _write(self, name: str, start: int, tokens: "array[int]", data: bytes) -> None:
        temporary: Path | None = None
        try:
            prune(self._root, max(0, self._quota - len(data) - 4 * len(tokens) - _HEAD.size))
            self._prepare()
            checked = struct.pack("<II", start, len(tokens)) + tokens.tobytes()
            head = _HEAD.pack(_MAGIC, start, len(tokens), len(data), zlib.crc32(data), zlib.crc32(checked))
            descriptor, path = tempfile.mkstemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=self._folder)
            temporary = Path(path)
            with os.fdopen(descriptor, "wb") as file:
                file.write(head + tokens.tobytes())
                for at in range(0, len(data), _PIECE):
                    if self._stop.is_set():
                        return
                    file.write(data[at : at + _PIECE])
            os.replace(temporary, self._folder / name)
            temporary = None
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._warn(f"The model's state cannot be kept for the next start ({error.strerror or error}).")
        finally:
            self._coming.pop(name, None)
            if temporary is not None:
                _remove(temporary)

    def _prepare(self) -> None:
        if self._folder.is_dir():
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / _ABOUT).write_text(json.dumps(dict(self._model.about), indent=1), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Kept:
    """The states of one model: bytes, files, tokens of the longest prompt, and when one was last used (seconds)."""

    folder: Path
    about: Mapping[str, str]
    bytes: int
    files: int
    longest: int
    used: float | None


def kept(root: Path) -> list[Kept]:
    """What is kept under `root`, by model."""
    found = []
    for folder in sorted(_folders(root)):
        files = [(path, status) for path, status in _states(folder)]
        lengths = [int(path.name[:7]) + (_token_count(path) or 0) for path, _ in files]
        used = max((status.st_mtime for _, status in files), default=None)
        size = sum(status.st_size for _, status in files)
        found.append(Kept(folder, _about(folder), size, len(files), max(lengths, default=0), used))
    return found


def prune(root: Path, quota: int) -> int:
    """Remove what was not used for longest until all that is kept takes at most `quota` bytes, and what a killed
    process has left. Bytes that were freed.
    """
    files: list[tuple[float, int, int, Path]] = []
    freed = 0
    for folder in _folders(root):
        for path in _entries(folder):
            if path.name.startswith(_TEMPORARY) and not _is_alive(path.name):
                freed += _remove(path)
        # Of equally old ones the last segment goes first: without the ones before it, it is of no use.
        files += [(status.st_mtime, -int(path.name[:7]), status.st_size, path) for path, status in _states(folder)]
    total = sum(size for _, _, size, _ in files)
    for _, _, size, path in sorted(files):
        if total <= quota:
            break
        freed += _remove(path)
        total -= size
    for folder in _folders(root):
        if {path.name for path in _entries(folder)} <= {_ABOUT}:
            _remove(folder / _ABOUT)
            with suppress(OSError):
                folder.rmdir()
    return freed


def _states(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in _entries(folder):
        if path.name.endswith(_SUFFIX) and path.name[:7].isdecimal():
            with suppress(OSError):
                if path.is_file():
                    yield path, path.stat()


def _folders(root: Path) -> list[Path]:
    """Those of models. What a link leads to is not ours to clear."""
    return [path for path in _entries(root) if path.is_dir() and not path.is_symlink()]


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _about(folder: Path) -> dict[str, str]:
    path = folder / _ABOUT
    try:
        told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return {str(name): str(value) for name, value in told.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _read_tokens(path: Path, start: int) -> "array[int] | None":
    """Those of a file; None, and no file any more, where it is not what its name says."""
    try:
        with path.open("rb") as file:
            magic, at, count, size, _, checksum = _HEAD.unpack(file.read(_HEAD.size))
            # Ahead of reading: a damaged count would ask for gigabytes of memory.
            whole = os.fstat(file.fileno()).st_size == _HEAD.size + 4 * count + size
            raw = file.read(4 * count) if whole else b""
    except FileNotFoundError:
        return None
    except OSError:
        return None
    except struct.error:
        _remove(path)
        return None
    right = whole and magic == _MAGIC and at == start
    if not right or zlib.crc32(struct.pack("<II", at, count) + raw) != checksum:
        _remove(path)
        return None
    tokens = array("i")
    tokens.frombytes(raw)
    return tokens


def _token_count(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            return int(_HEAD.unpack(file.read(_HEAD.size))[2])
    except (OSError, struct.error):
        return None


def _remove(path: Path) -> int:
    """Bytes that were freed."""
    try:
        size = path.stat().st_size
        path.unlink()
    except OSError:
        return 0
    return size


def _is_alive(name: str) -> bool:
    """Whether the process that writes this temporary file still runs."""
    number = name.removeprefix(_TEMPORARY).partition("-")[0]
    if not number.isdecimal():
        return False
    if os.name != "posix":  # there, to ask for a process is to end it
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _digest(parent: str, tokens: "array[int]") -> str:
    """Of all tokens up to these, in hex; `parent` is that of those before them."""
    return hashlib.sha256(parent.encode() + tokens.tobytes()).hexdigest()
