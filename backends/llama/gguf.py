"""What can be known of a model file without loading it: whether it is GGUF, its architecture and trained context, and a
fingerprint.

Format: GGUF specification, versions 2 and 3 (ggml, `docs/gguf.md`, as of 2026-11).
"""

import hashlib
import os
import struct
from collections.abc import Iterator
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


def read_header(path: Path) -> Header:
    """Read the first metadata of a model file. Raises BackendError (LOCAL) for a file that is missing or no GGUF."""
    architecture = ""
    try:
        with path.open("rb") as file:
            for key, value in _metadata(file, path):
                if key == "general.architecture":
                    architecture = str(value)
                elif architecture and key == f"{architecture}.context_length" and isinstance(value, int):
                    return Header(architecture, value)
    except OSError as error:
        raise unreadable(path, error) from error
    except (struct.error, UnicodeDecodeError) as error:
        raise _foreign(path, "its header is cut off or damaged") from error
    return Header(architecture, None)


def fingerprint(path: Path) -> str:
    """SHA-256 in hex that names the model file by its content, read in milliseconds.

    It covers the size, the first 8 MiB (metadata and vocabulary) and 64 samples spread over the weights: enough to tell
    models apart, not a check against damage. Raises BackendError (LOCAL) for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            hasher = hashlib.sha256(size.to_bytes(8, "little"))
            hasher.update(file.read(_HEAD_BYTES))
            if size > _HEAD_BYTES:
                step = (size - _HEAD_BYTES) / _SAMPLES
                for index in range(1, _SAMPLES + 1):
                    file.seek(_HEAD_BYTES + max(0, int(step * index) - _SAMPLE_BYTES))
                    hasher.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise unreadable(path, error) from error
    return hasher.hexdigest()


def unreadable(path: Path, error: OSError) -> BackendError:
    """The error for a model file that the operating system does not give."""
    if isinstance(error, FileNotFoundError):
        return BackendError(
            ErrorKind.LOCAL,
            f"There is no model file at {path}. Check the path, or choose a model of `agent models list`.",
        )
    return BackendError(ErrorKind.LOCAL, f"The model file {path} cannot be read: {error.strerror}.")


def _metadata(file: BinaryIO, path: Path) -> Iterator[tuple[str, Scalar | None]]:
    """The key-value pairs in the order of the file; arrays are skipped and come as None."""
    magic = file.read(4)
    if magic != MAGIC:
        raise _foreign(path, "it is empty" if not magic else "its first bytes say otherwise")
    version, _tensors, count = struct.unpack("<IQQ", file.read(20))
    if version not in _VERSIONS:
        raise _foreign(path, f"its format version is {version}, known are {_VERSIONS[0]} and {_VERSIONS[1]}")
    for _ in range(count):
        key = _string(file)
        (kind,) = struct.unpack("<I", file.read(4))
        yield key, _value(file, kind)


def _value(file: BinaryIO, kind: int) -> Scalar | None:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        item, count = struct.unpack("<IQ", file.read(12))
        if item in _SCALARS:
            file.seek(struct.calcsize(_SCALARS[item]) * count, os.SEEK_CUR)
        else:
            for _ in range(count):
                _value(file, item)
        return None
    form = _SCALARS.get(kind)
    if form is None:
        raise struct.error(f"unknown value type {kind}")
    value: Scalar = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    return value


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > 1 << 30:
        raise struct.error(f"a string of {length} bytes")
    data = file.read(length)
    if len(data) < length:
        raise struct.error("the file ends inside a string")
    return data.decode()


def _foreign(path: Path, reason: str) -> BackendError:
    return BackendError(
        ErrorKind.LOCAL,
        f"{path} is no GGUF model file: {reason}. Download it again, or choose a model of `agent models list`.",
    )
