"""What can be read of a model file without loading it: its header, its parts where it is split, and a fingerprint.

Format: GGUF specification, versions 2 and 3 (ggml, `docs/gguf.md`, as of 2026-11). A header may say anything; so no
count in it is believed further than the file reaches, and none makes us wait or fill the memory.
"""

import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from backends.base import BackendError, ErrorKind

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_SCALARS: Final = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING: Final = 8
_ARRAY: Final = 9

Scalar = int | float | bool | str

_MOST_PAIRS: Final = 1 << 16
_MOST_TENSORS: Final = 1 << 17  # the largest mixtures of experts have about 50,000
_MOST_ITEMS: Final = 1 << 22  # strings in arrays: vocabulary and merges of the largest models have about a million
_MOST_TEXT: Final = 1 << 24  # bytes; the longest chat templates have a hundred thousand
_KEPT_ITEMS: Final = 4_096  # arrays up to this length are kept: one value for each layer
_DIMENSIONS: Final = 4
_PART: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")

_HEAD_BYTES: Final = 8 << 20  # holds the metadata with the vocabulary of every model we know
_SAMPLE_BYTES: Final = 64 << 10
_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class Header:
    """`architecture` as in the file (`qwen2`, `llama`, …); `context` is the trained context window in tokens, None when
    the file does not say.
    """

    architecture: str
    context: int | None


@dataclass(frozen=True, slots=True)
class Items:
    """An array in the metadata. `values` are kept of short arrays of numbers only, and empty otherwise."""

    count: int
    values: tuple[Scalar, ...] = ()


Value = Scalar | Items


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape` in values, `type` as in ggml_type, `offset` in bytes from where the weights begin."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


@dataclass(frozen=True, slots=True)
class Contents:
    """All that one file says ahead of its weights. `data_offset`: where they begin, `size`: of the file, in bytes."""

    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int
    size: int


def read_header(path: Path) -> Header:
    """Read the first metadata of a model file. Raises BackendError (LOCAL) for a file that is missing or no GGUF."""
    architecture = ""
    with _opened(path) as reader:
        for key, value in reader.pairs():
            if key == "general.architecture":
                architecture = str(value)
            elif architecture and key == f"{architecture}.context_length" and isinstance(value, int):
                return Header(architecture, value)
    return Header(architecture, None)


def read_contents(path: Path) -> Contents:
    """Read metadata and tensor list of one file. Raises BackendError (LOCAL) for a file that is missing or no GGUF."""
    with _opened(path) as reader:
        metadata = dict(reader.pairs())
        tensors = tuple(reader.tensors())
        alignment = metadata.get("general.alignment", 32)
        step = alignment if isinstance(alignment, int) and 0 < alignment <= 1 << 20 else 32
        return Contents(metadata, tensors, -(-reader.position // step) * step, reader.size)


def is_part(name: str) -> tuple[str, int, int] | None:
    """Of a file name `stem-00001-of-00003.gguf`: the stem, the number and how many there are. None for other names."""
    match = _PART.fullmatch(name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]):
        return None
    return (match["stem"], int(match["number"]), int(match["count"]))


def part_paths(path: Path) -> tuple[Path, ...]:
    """All files of the model that begins with the file `path`: only that one, where the model is not split.

    Raises BackendError (LOCAL) when `path` is not the first part, or parts are missing.
    """
    part = is_part(path.name)
    if part is None:
        return (path,)
    stem, number, count = part
    if number != 1:
        raise BackendError(
            ErrorKind.LOCAL,
            f"{path} is part {number} of {count} of a model. Name its first part: {stem}-00001-of-{count:05}.gguf",
        )
    found = set(os.listdir(path.parent)) if path.parent.is_dir() else set()
    names = [f"{stem}-{each:05}-of-{count:05}.gguf" for each in range(1, count + 1)]
    missing = [name for name in names[1:] if name not in found]
    if missing:
        raise BackendError(
            ErrorKind.LOCAL,
            f"{path} is the first of {count} parts, and {len(missing)} of the others are not beside it, such as "
            f"{missing[0]}. Put them there, or fetch the model again with `agent models pull`.",
        )
    return tuple(path.with_name(name) for name in names)


def fingerprint(path: Path) -> str:
    """SHA-256 in hex that names the model file by its content, read in milliseconds.

    It covers the size, the first 8 MiB (metadata and vocabulary) and 64 samples spread over the weights, of each part
    of a split model: enough to tell models apart, not a check against damage. Raises BackendError (LOCAL) for a file
    that cannot be read.
    """
    hasher = hashlib.sha256()
    for part in part_paths(path):
        try:
            with part.open("rb") as file:
                _sample(file, hasher.update)
        except OSError as error:
            raise unreadable(part, error) from error
    return hasher.hexdigest()


def _sample(file: BinaryIO, take: Callable[[bytes], None]) -> None:
    size = os.fstat(file.fileno()).st_size
    take(size.to_bytes(8, "little"))
    take(file.read(_HEAD_BYTES))
    if size > _HEAD_BYTES:
        step = (size - _HEAD_BYTES) / _SAMPLES
        for index in range(1, _SAMPLES + 1):
            file.seek(_HEAD_BYTES + max(0, int(step * index) - _SAMPLE_BYTES))
            take(file.read(_SAMPLE_BYTES))


def unreadable(path: Path, error: OSError) -> BackendError:
    """The error for a model file that the operating system does not give."""
    if isinstance(error, FileNotFoundError):
        return BackendError(
            ErrorKind.LOCAL,
            f"There is no model file at {path}. Check the path, or choose a model of `agent models list`.",
        )
    return BackendError(ErrorKind.LOCAL, f"The model file {path} cannot be read: {error.strerror}.")


class _DamagedError(Exception):
    """The header contradicts itself or the file's size."""


@contextmanager
def _opened(path: Path) -> Iterator["_Reader"]:
    """A reader behind the first fields of the file. What goes wrong with it is told as a BackendError (LOCAL)."""
    try:
        with path.open("rb") as file:
            yield _Reader(file, path)
    except OSError as error:
        raise unreadable(path, error) from error
    except (_DamagedError, struct.error, UnicodeDecodeError) as error:
        raise _foreign(path, "its header is cut off or damaged") from error


class _Reader:
    """Reads a header from front to back: first `pairs`, then `tensors`."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        magic = file.read(4)
        if magic != MAGIC:
            raise _foreign(path, "it is empty" if not magic else "its first bytes say otherwise")
        version, self._tensors, self._pairs = struct.unpack("<IQQ", file.read(20))
        if version not in _VERSIONS:
            raise _foreign(path, f"its format version is {version}, known are {_VERSIONS[0]} and {_VERSIONS[1]}")
        if self._tensors > _MOST_TENSORS or self._pairs > _MOST_PAIRS:
            raise _DamagedError
        self._items = 0

    @property
    def position(self) -> int:
        return self._file.tell()

    def pairs(self) -> Iterator[tuple[str, Value]]:
        """The key-value pairs in the order of the file."""
        for _ in range(self._pairs):
            key = self._text()
            kind = self._number("<I")
            yield key, self._array() if kind == _ARRAY else self._scalar(int(kind))

    def tensors(self) -> Iterator[Tensor]:
        """What is said of each tensor."""
        for _ in range(self._tensors):
            name = self._text()
            dimensions = self._number("<I")
            if dimensions > _DIMENSIONS:
                raise _DamagedError
            shape = tuple(int(self._number("<Q")) for _ in range(int(dimensions)))
            kind, offset = struct.unpack("<IQ", self._file.read(12))
            yield Tensor(name, shape, kind, offset)

    def _number(self, form: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(form, self._file.read(struct.calcsize(form)))[0]
        return value

    def _scalar(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self._text()
        if kind not in _SCALARS:
            raise _DamagedError
        return self._number(_SCALARS[kind])

    def _text(self) -> str:
        length = int(self._number("<Q"))
        if length > min(_MOST_TEXT, self.size - self.position):
            raise _DamagedError
        return self._file.read(length).decode()

    def _array(self) -> Items:
        """Arrays of arrays are not used in model files and count as damage."""
        kind, count = struct.unpack("<IQ", self._file.read(12))
        if kind in _SCALARS:
            length = struct.calcsize(_SCALARS[kind]) * count
            if length > self.size - self.position:
                raise _DamagedError
            if count <= _KEPT_ITEMS:
                return Items(count, struct.unpack(f"<{count}{_SCALARS[kind][1]}", self._file.read(length)))
            self._file.seek(length, os.SEEK_CUR)
            return Items(count)
        self._items += count
        if kind != _STRING or self._items > _MOST_ITEMS:
            raise _DamagedError
        for _ in range(count):
            length = int(self._number("<Q"))
            if length > self.size:
                raise _DamagedError
            self._file.seek(length, os.SEEK_CUR)
        return Items(count)


def _foreign(path: Path, reason: str) -> BackendError:
    return BackendError(
        ErrorKind.LOCAL,
        f"{path} is no GGUF model file: {reason}. Download it again, or choose a model of `agent models list`.",
    )
