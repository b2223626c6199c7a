"""Is the file the model? Known by its hash once, and by size and time stamp from then on.

Hashing 1.1 GB takes a second or more, so a hash that was computed is remembered with the file's size and modification
time, in `verified.json` in the models folder. A truncated or foreign file is found before it is loaded.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from backends.llama.gguf import MAGIC
from backends.llama.models import REGISTERED, LocalModel, ModelError, ModelSpec, megabytes

_STAMPS: Final = "verified.json"


class FileState(StrEnum):
    MISSING = "missing"
    VERIFIED = "verified"  # the hash is that of the registry or the hub
    UNVERIFIED = "unverified"  # nothing speaks against it, but it was not hashed since it last changed
    WRONG_SIZE = "wrong size"
    WRONG_HASH = "wrong hash"
    NO_GGUF = "no GGUF file"


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What was known of a file when it was hashed. `mtime_ns`: modification time in nanoseconds."""

    size: int
    mtime_ns: int
    sha256: str


def check(model: LocalModel, models_dir: Path, *, full: bool = False) -> FileState:
    """What is known of the model's file.

    `full` reads and hashes all of it, otherwise only its size, its first bytes and the remembered hash are looked at. A
    file of which no hash is known is never VERIFIED; a split model is as its worst part. Raises ModelError for a file
    that cannot be read.
    """
    states = [_check_file(file, models_dir, full) for file in model.files]
    bad = [state for state in states if state not in (FileState.VERIFIED, FileState.UNVERIFIED)]
    return next(iter(bad), FileState.UNVERIFIED if FileState.UNVERIFIED in states else FileState.VERIFIED)


def _check_file(model: LocalModel, models_dir: Path, full: bool) -> FileState:
    try:
        status = model.path.stat()
        with model.path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError:
        return FileState.MISSING
    except OSError as error:
        raise ModelError(f"The model file {model.path} cannot be read: {error.strerror}.") from error
    if model.spec is not None and status.st_size != model.spec.bytes:
        return FileState.WRONG_SIZE
    if model.spec is None:
        return FileState.UNVERIFIED if magic == MAGIC else FileState.NO_GGUF
    if full:
        sha256 = _hash_and_remember(model.path, models_dir)
    else:
        stamp = _read_stamps(models_dir).get(str(model.path.resolve()))
        if stamp is None or (stamp.size, stamp.mtime_ns) != (status.st_size, status.st_mtime_ns):
            return FileState.UNVERIFIED
        sha256 = stamp.sha256
    return FileState.VERIFIED if sha256 == model.spec.sha256 else FileState.WRONG_HASH


def ready_path(model: LocalModel, models_dir: Path, *, full: bool = False) -> Path:
    """The path of a file that may be loaded.

    A registry file that was never hashed, or changed since, is hashed now (a second or more: call it in a thread).
    Raises ModelError for a file that is missing, truncated, another one, or no GGUF file.
    """
    state = check(model, models_dir, full=full)
    if state is FileState.UNVERIFIED and model.spec is not None:
        state = check(model, models_dir, full=True)
    if state not in (FileState.VERIFIED, FileState.UNVERIFIED):
        raise ModelError(describe(model, state))
    return model.path


def describe(model: LocalModel, state: FileState) -> str:
    """One line for a person on a file in `state`: what is wrong and what to do."""
    again = f"`agent models pull {model.spec.name}` fetches it again." if model.spec else ""
    match state:
        case FileState.MISSING if model.spec is not None:
            return f"{model.spec.full_name} is not on this machine. `agent models pull {model.spec.name}` fetches it."
        case FileState.MISSING if model.from_hub:
            pull = f"agent models pull {model.name.removeprefix(REGISTERED)}"
            return f"{model.name} is not on this machine. `{pull}` fetches it from the Hugging Face hub."
        case FileState.MISSING:
            return f"There is no file {model.path}. Check the path behind `local:`."
        case FileState.WRONG_SIZE if model.spec is not None:
            pairs = zip(model.files, model.spec.files, strict=True)
            wrong = next((file.path, spec) for file, spec in pairs if file.path.stat().st_size != spec.bytes)
            return f"{_size_mismatch(*wrong)} It was not loaded. {again}"
        case FileState.WRONG_HASH:
            return f"{model.path} has the right size but another content (SHA-256 differs). It was not loaded. {again}"
        case FileState.NO_GGUF:
            return f"{model.path} is not a GGUF file (it does not begin with GGUF). It was not loaded."
        case FileState.UNVERIFIED:
            return f"{model.path} was not verified yet."
        case _:
            return f"{model.path} is verified."


def remember(path: Path, models_dir: Path, sha256: str) -> None:
    """Remember the hash of a file that was just hashed in full."""
    status = path.stat()
    stamps = _read_stamps(models_dir)
    stamps[str(path.resolve())] = _Stamp(status.st_size, status.st_mtime_ns, sha256)
    # Without its stamp a file is hashed again next time: a folder that cannot be written to costs a second, no more.
    with contextlib.suppress(OSError):
        _write_stamps(models_dir, stamps)


def _hash_and_remember(path: Path, models_dir: Path) -> str:
    before = path.stat()
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if path.stat().st_mtime_ns == before.st_mtime_ns:  # else it changed under our eyes: true now, not worth keeping
        remember(path, models_dir, sha256)
    return sha256


def _size_mismatch(path: Path, spec: ModelSpec) -> str:
    size = path.stat().st_size
    if size < spec.bytes:
        return f"{path} is truncated: {megabytes(size)} of {megabytes(spec.bytes)} ({size} of {spec.bytes} bytes)."
    return f"{path} is not {spec.title}: it has {size} bytes instead of {spec.bytes}."


def _read_stamps(models_dir: Path) -> dict[str, _Stamp]:
    """The remembered hashes by resolved path. A list that is missing or damaged counts as empty."""
    try:
        data = json.loads((models_dir / _STAMPS).read_text(encoding="utf-8"))
        return {path: _Stamp(**stamp) for path, stamp in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write_stamps(models_dir: Path, stamps: dict[str, _Stamp]) -> None:
    data = {path: {"size": s.size, "mtime_ns": s.mtime_ns, "sha256": s.sha256} for path, s in sorted(stamps.items())}
    descriptor, name = tempfile.mkstemp(prefix=_STAMPS, dir=models_dir)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        os.replace(name, models_dir / _STAMPS)
    except OSError:
        os.unlink(name)
        raise
