"""Getting a model file: sources in order, one growing part file, the hash while writing, then one rename.

`<file>.<hash>.part` always holds a prefix of the file with that hash, so its length is all that a later run, or another
source, needs to go on, and a file that changed at its source begins anew. The file appears under its own name only when
its SHA-256 is the one that the registry or the hub states.
"""

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.base import ErrorKind
from backends.llama.models import LocalModel, ModelError, ModelSpec, megabytes
from backends.llama.sources import CHUNK, DiskFullError, Source, SourceError, scratch_folder
from backends.llama.verify import FileState, check, remember

_MARGIN: Final = 16 << 20  # bytes left free besides what is needed
_RECONNECTS: Final = 20  # how often one source is asked again after it broke off
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a fetch is, in bytes of the model file.

    `done` of `total` are here or on their way, `resumed` of them from an earlier run. It never goes back, except when
    a source delivered a wrong file. `source`: the source's title.
    """

    source: str
    done: int
    total: int
    resumed: int


def free_bytes(folder: Path) -> int:
    """Free disk space in bytes, for this user, where `folder` lies."""
    return shutil.disk_usage(folder).free


def kept_bytes(spec: ModelSpec, models_dir: Path) -> int:
    """How much of an unfinished download is kept."""
    try:
        return _part_path(spec, models_dir).stat().st_size
    except OSError:
        return 0


async def fetch_all(
    spec: ModelSpec,
    models_dir: Path,
    sources_of: Callable[[ModelSpec], Sequence[Source]],
    *,
    progress: Callable[[FetchProgress], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
    disk_free: Callable[[Path], int] = free_bytes,
) -> Path:
    """Bring all files of a model to `models_dir`, one after another, and return the path of the first.

    Progress counts in bytes of all files; that all will fit on the disk is checked ahead of the first. As `fetch`.
    """
    here = [_bytes_here(file, models_dir) for file in spec.files]
    if spec.rest and sum(here) < spec.total_bytes:
        _require_space(spec, models_dir, spec.total_bytes - sum(here), sum(here), disk_free)
    before, resumed = 0, 0
    for file, kept in zip(spec.files, here, strict=True):

        def show(now: FetchProgress, before: int = before, resumed: int = resumed) -> None:
            progress(FetchProgress(now.source, before + now.done, spec.total_bytes, resumed + now.resumed))

        await fetch(file, models_dir, sources_of(file), progress=show, announce=announce, disk_free=disk_free)
        before, resumed = before + file.bytes, resumed + kept
    return models_dir / spec.file


def _bytes_here(spec: ModelSpec, models_dir: Path) -> int:
    try:
        return min(spec.bytes, (models_dir / spec.file).stat().st_size)
    except OSError:
        return kept_bytes(spec, models_dir)


async def fetch(
    spec: ModelSpec,
    models_dir: Path,
    sources: Sequence[Source],
    *,
    progress: Callable[[FetchProgress], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
    disk_free: Callable[[Path], int] = free_bytes,
) -> Path:
    """Bring a model's (first) file to `models_dir` and return its path; at once if it is there and right.

    `sources` are tried in order; one that fails is named in a line to `announce`, and the next one goes on from the
    same byte. Another process that fetches the same file is waited for. Cancel it at any time: what was downloaded is
    kept. Raises ModelError with what was tried, what was kept and what to do.
    """
    spec, target = spec.files[0], models_dir / spec.file
    try:
        os.makedirs(target.parent, exist_ok=True)
        if check(LocalModel(spec.full_name, target, True, spec), models_dir) is FileState.VERIFIED:
            return target  # without the lock: a shared folder may be read-only
        async with _only_one(models_dir / f"{spec.file}.lock", spec, announce):
            if not await _already_there(spec, target, models_dir, announce):
                _remove_other_parts(spec, models_dir, announce)
                with await asyncio.to_thread(_Part, _part_path(spec, models_dir)) as part:
                    await _fill(part, spec, models_dir, sources, progress, announce, disk_free)
                    part.publish(target)
                remember(target, models_dir, spec.sha256)
            shutil.rmtree(scratch_folder(spec, models_dir), ignore_errors=True)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise _disk_full(spec, models_dir) from error
        reason = error.strerror or str(error)
        raise ModelError(
            f"{spec.full_name} cannot be saved in {models_dir} ({reason}). Set KEEPWARM_MODELS_DIR to another folder."
        ) from error
    except DiskFullError as error:
        raise _disk_full(spec, models_dir) from error
    return target


class _Part:
    """The growing file. Its hash is kept up to date with every byte, those of earlier runs included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a+b", buffering=0)  # unbuffered: what is counted is in the file
        self._restart_hash()

    def __enter__(self) -> "_Part":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _restart_hash(self) -> None:
        self._hasher = hashlib.sha256()
        self.size = 0
        self._file.seek(0)
        while data := self._file.read(CHUNK):
            self._count(data)

    def _count(self, data: bytes | memoryview) -> None:
        self._hasher.update(data)
        self.size += len(data)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # a write near the end of the disk may take only some of it
            written = self._file.write(view) or 0
            self._count(view[:written])
            view = view[written:]

    def empty(self) -> None:
        self._file.truncate(0)
        self._restart_hash()

    def sha256(self) -> str:
        return self._hasher.hexdigest()

    def publish(self, target: Path) -> None:
        os.fsync(self._file.fileno())
        self._file.close()  # Windows renames no open file
        os.replace(self._path, target)


async def _fill(
    part: _Part,
    spec: ModelSpec,
    models_dir: Path,
    sources: Sequence[Source],
    progress: Callable[[FetchProgress], None],
    announce: Callable[[str], None],
    disk_free: Callable[[Path], int],
) -> None:
    """Fill the part until it is the model. Raises ModelError when no source can."""
    failures: list[str] = []
    for index, source in enumerate(sources):
        try:
            await _complete(part, spec, models_dir, source, progress, announce, disk_free)
            return
        except SourceError as error:
            failures.append(f"{source.title}: {error}")
            if index + 1 < len(sources):
                announce(f"{_sentence(failures[-1])}. Trying {sources[index + 1].title}.")
    raise _all_failed(spec, models_dir, failures, part.size)


async def _complete(
    part: _Part,
    spec: ModelSpec,
    models_dir: Path,
    source: Source,
    progress: Callable[[FetchProgress], None],
    announce: Callable[[str], None],
    disk_free: Callable[[Path], int],
) -> None:
    """Fill the part from one source. Raises SourceError when it cannot, or delivers another file."""
    while part.sha256() != spec.sha256:
        if part.size >= spec.bytes:
            part.empty()
            announce(f"The unfinished download of {spec.full_name} was damaged. It begins anew.")
        begun_at = part.size
        _check_space(part, spec, models_dir, source, disk_free)
        await _download(part, spec, source, progress, announce)
        if begun_at == 0 and part.sha256() != spec.sha256:  # every byte is this source's
            part.empty()
            raise SourceError("it delivered another file than was stated (SHA-256 differs); it was removed")


async def _download(
    part: _Part,
    spec: ModelSpec,
    source: Source,
    progress: Callable[[FetchProgress], None],
    announce: Callable[[str], None],
) -> None:
    """Read one source to the end, asking it again as long as every try brings something."""
    resumed = shown = part.size

    def show(in_flight: int = 0) -> None:
        nonlocal shown
        on_its_way = min(part.size + in_flight, spec.bytes - 1)  # complete is only what is written
        shown = max(shown, part.size, on_its_way)
        progress(FetchProgress(source.title, shown, spec.bytes, resumed))

    for _ in range(_RECONNECTS):
        before = part.size
        show()
        try:
            async with aclosing(source.read(part.size, show)) as chunks:
                async for chunk in chunks:
                    part.append(chunk)
                    show()
                    if part.size > spec.bytes:
                        part.empty()
                        raise SourceError("it delivered more bytes than the file has; they were removed")
            if part.size == spec.bytes:
                return
            raise SourceError("it ended early", interrupted=True)
        except SourceError as error:
            if not error.interrupted or part.size == before:
                raise
            announce(f"{_sentence(source.title)}: {error} at {megabytes(part.size)}. Going on from there.")
    raise SourceError(f"it broke off {_RECONNECTS} times")


async def _already_there(spec: ModelSpec, target: Path, models_dir: Path, announce: Callable[[str], None]) -> bool:
    model = LocalModel(spec.full_name, target, True, spec)
    state = check(model, models_dir)
    if state is FileState.UNVERIFIED:
        state = await asyncio.to_thread(check, model, models_dir, full=True)
    if state in (FileState.WRONG_SIZE, FileState.WRONG_HASH):
        aside = target.with_name(f"{target.name}.wrong")
        os.replace(target, aside)
        announce(f"{target.name} was not {spec.title} ({state}). It is now {aside.name}.")
    return state is FileState.VERIFIED


def _check_space(
    part: _Part, spec: ModelSpec, models_dir: Path, source: Source, disk_free: Callable[[Path], int]
) -> None:
    _require_space(spec, models_dir, spec.bytes - part.size + source.scratch_bytes, part.size, disk_free)


def _require_space(
    spec: ModelSpec, models_dir: Path, missing: int, kept: int, disk_free: Callable[[Path], int]
) -> None:
    """Raise ModelError unless `missing` bytes fit on the disk of `models_dir`, which is made if need be."""
    os.makedirs(models_dir, exist_ok=True)
    needed = missing + _MARGIN
    if (free := disk_free(models_dir)) < needed:
        raise ModelError(
            f"{spec.full_name} needs {megabytes(needed)} of disk space in {models_dir}, {megabytes(free)} are free. "
            f"{_kept(kept)} Free some, or set KEEPWARM_MODELS_DIR to a folder on another disk."
        )


def _disk_full(spec: ModelSpec, models_dir: Path) -> ModelError:
    return ModelError(
        f"The disk is full: {spec.full_name} could not be saved in {models_dir}. "
        f"{_kept(kept_bytes(spec, models_dir), spec)} Free some space and run the same command again to go on, "
        "or set KEEPWARM_MODELS_DIR to a folder on another disk."
    )


def _all_failed(spec: ModelSpec, models_dir: Path, failures: Sequence[str], kept: int) -> ModelError:
    tried = "; ".join(failures) or "no source is known"
    return ModelError(
        f"{spec.full_name} could not be fetched. Tried {tried}. {_kept(kept, spec)} Run the same command again to go "
        f"on, or put {spec.file} into {models_dir} yourself.",
        ErrorKind.NETWORK,
    )


def _kept(size: int, spec: ModelSpec | None = None) -> str:
    if not size:
        return "Nothing was kept."
    return f"{megabytes(size)}{f' of {megabytes(spec.bytes)}' if spec else ''} that were downloaded are kept."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _part_path(spec: ModelSpec, models_dir: Path) -> Path:
    return models_dir / f"{spec.file}.{spec.sha256[:8]}.part"


def _remove_other_parts(spec: ModelSpec, models_dir: Path, announce: Callable[[str], None]) -> None:
    """Nobody will go on with what was begun of another file of that name."""
    mine = _part_path(spec, models_dir)
    for path in list(mine.parent.iterdir()):
        if path != mine and path.name.startswith(f"{Path(spec.file).name}.") and path.name.endswith(".part"):
            size = path.stat().st_size
            path.unlink()
            announce(f"{path.name} was begun of another file of that name: {megabytes(size)} were removed.")


@asynccontextmanager
async def _only_one(lock_path: Path, spec: ModelSpec, announce: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the lock of one model file. It goes with the process that holds it, however that ends."""
    from filelock import AsyncFileLock, Timeout

    lock = AsyncFileLock(lock_path, run_in_executor=False)
    try:
        await lock.acquire(timeout=0)
    except Timeout:
        announce(f"Another process is fetching {spec.full_name}. Waiting for it.")
        await lock.acquire()
    try:
        yield
    finally:
        await lock.release()
