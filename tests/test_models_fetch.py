"""The download as a whole: order of sources, what is kept, what is said, and that a wrong file never gets its name."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from models_support import MODEL, FakeHub, serving, tiny_spec

from backends.base import ErrorKind
from backends.llama.fetch import FetchProgress, fetch, kept_bytes
from backends.llama.models import LocalModel, ModelError, resolve
from backends.llama.sources import SourceError
from backends.llama.verify import FileState, check

SPEC = tiny_spec()
STEP = 1_000_000
CHILD = Path(__file__).parent / "models_child.py"


class Bytes:
    """A source that delivers `data`. It breaks off at each of `breaks` in turn, for good if `final`."""

    def __init__(
        self, data: bytes = MODEL, title: str = "a test source", breaks: tuple[int, ...] = (), final: str = ""
    ):
        self.data, self.title, self.breaks, self.final = data, title, list(breaks), final
        self.offsets: list[int] = []

    scratch_bytes = 0

    async def read(self, offset: int, in_flight: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
        self.offsets.append(offset)
        end = self.breaks.pop(0) if self.breaks else len(self.data)
        for start in range(offset, end, STEP):
            yield self.data[start : min(start + STEP, end)]
            await asyncio.sleep(0)
        if end < len(self.data):
            raise SourceError(self.final or "the connection broke", interrupted=not self.final)


def unreachable(title: str = "the far source") -> Bytes:
    return Bytes(title=title, breaks=(0,), final="cannot be reached (no route)")


async def test_the_file_appears_under_its_name_verified_and_nothing_else_stays(tmp_path: Path) -> None:
    seen: list[FetchProgress] = []
    path = await fetch(SPEC, tmp_path / "new" / "models", [Bytes()], progress=seen.append)
    assert path.read_bytes() == MODEL
    assert (
        check(LocalModel(SPEC.full_name, path, True, SPEC), path.parent) is FileState.VERIFIED
    )  # without being hashed again
    assert sorted(p.name for p in path.parent.iterdir()) == [SPEC.file, f"{SPEC.file}.lock", "verified.json"]
    assert seen[0] == FetchProgress("a test source", 0, len(MODEL), 0)
    assert seen[-1].done == len(MODEL)
    assert [p.done for p in seen] == sorted(p.done for p in seen)


async def test_bytes_on_their_way_count_and_the_progress_never_goes_back(tmp_path: Path) -> None:
    class Parcels(Bytes):
        async def read(self, offset: int, in_flight: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
            for start in range(0, len(MODEL), 3 * STEP):
                for size in (2 * STEP, 4 * STEP, 0):
                    in_flight(size)
                yield MODEL[start : start + 3 * STEP]

    seen: list[int] = []
    await fetch(SPEC, tmp_path, [Parcels()], progress=lambda now: seen.append(now.done))
    assert seen[1] == 2 * STEP
    assert seen == sorted(seen)
    assert seen[-1] == len(MODEL)


async def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / SPEC.file).write_bytes(MODEL)
    assert await fetch(SPEC, tmp_path, [unreachable()]) == tmp_path / SPEC.file


async def test_a_wrong_file_under_the_name_is_put_aside_not_lost(tmp_path: Path) -> None:
    (tmp_path / SPEC.file).write_bytes(b"GGUF of my own")
    said: list[str] = []
    path = await fetch(SPEC, tmp_path, [Bytes()], announce=said.append)
    assert path.read_bytes() == MODEL
    assert (tmp_path / "tiny-q4.gguf.wrong").read_bytes() == b"GGUF of my own"
    assert said == ["tiny-q4.gguf was not Tiny Test Model (wrong size). It is now tiny-q4.gguf.wrong."]


async def test_the_next_source_goes_on_from_the_same_byte_and_that_is_said(tmp_path: Path) -> None:
    first = Bytes(title="the first", breaks=(4_000_000,), final="it closed for the night")
    second = Bytes(title="the second")
    said: list[str] = []
    path = await fetch(SPEC, tmp_path, [first, second], announce=said.append)
    assert path.read_bytes() == MODEL
    assert second.offsets == [4_000_000]
    assert said == ["The first: it closed for the night. Trying the second."]


async def test_a_broken_connection_is_taken_up_again_as_long_as_it_brings_something(tmp_path: Path) -> None:
    flaky = Bytes(breaks=(2_000_000, 5_000_000))
    said: list[str] = []
    assert (await fetch(SPEC, tmp_path, [flaky], announce=said.append)).read_bytes() == MODEL
    assert flaky.offsets == [0, 2_000_000, 5_000_000]
    assert said[0] == "A test source: the connection broke at 2 MB. Going on from there."

    dead = Bytes(breaks=(2_000_000, 2_000_000, 2_000_000))
    with pytest.raises(ModelError):
        await fetch(SPEC, tmp_path / "other", [dead])
    assert dead.offsets == [0, 2_000_000]


async def test_when_every_source_fails_one_line_says_all(tmp_path: Path) -> None:
    broken = Bytes(title="the near source", breaks=(3_000_000,), final="it ran dry")
    with pytest.raises(ModelError) as caught:
        await fetch(SPEC, tmp_path, [unreachable(), broken])
    message = str(caught.value)
    assert "the far source: cannot be reached (no route); the near source: it ran dry." in message
    assert "3 MB of 9 MB that were downloaded are kept" in message
    assert "or put tiny-q4.gguf into" in message
    assert "\n" not in message
    assert caught.value.kind is ErrorKind.NETWORK
    assert kept_bytes(SPEC, tmp_path) == 3_000_000


async def test_a_source_with_another_file_is_left_and_its_bytes_removed(tmp_path: Path) -> None:
    wrong = Bytes(MODEL[:-1] + b"x", title="the wrong source")
    said: list[str] = []
    path = await fetch(SPEC, tmp_path, [wrong, Bytes()], announce=said.append)
    assert path.read_bytes() == MODEL
    assert "SHA-256 differs" in said[0]
    with pytest.raises(ModelError, match="SHA-256 differs"):
        await fetch(SPEC, tmp_path / "other", [wrong])
    assert not (tmp_path / "other" / SPEC.file).exists()
    assert kept_bytes(SPEC, tmp_path / "other") == 0


async def test_a_source_with_more_bytes_than_the_file_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="more bytes than the file has"):
        await fetch(SPEC, tmp_path, [Bytes(MODEL + bytes(5_000_000))])
    assert kept_bytes(SPEC, tmp_path) == 0


@pytest.mark.parametrize(
    "part", [MODEL[:999] + b"x", MODEL[:-1] + b"x", MODEL + b"x"], ids=["inside", "complete", "too long"]
)
async def test_a_damaged_part_of_an_earlier_run_costs_only_a_fresh_start(tmp_path: Path, part: bytes) -> None:
    (tmp_path / f"{SPEC.file}.{SPEC.sha256[:8]}.part").write_bytes(part)
    said: list[str] = []
    assert (await fetch(SPEC, tmp_path, [Bytes()], announce=said.append)).read_bytes() == MODEL
    assert said == ["The unfinished download of local/tiny was damaged. It begins anew."]


async def test_a_part_that_is_complete_needs_no_source(tmp_path: Path) -> None:
    (tmp_path / f"{SPEC.file}.{SPEC.sha256[:8]}.part").write_bytes(MODEL)
    assert (await fetch(SPEC, tmp_path, [unreachable()])).read_bytes() == MODEL


async def test_too_little_disk_space_is_said_before_a_byte_is_fetched(tmp_path: Path) -> None:
    source = Bytes()
    with pytest.raises(ModelError, match=r"needs 26 MB of disk space.*5 MB are free.*KEEPWARM_MODELS_DIR"):
        await fetch(SPEC, tmp_path, [source], disk_free=lambda _: 5_000_000)
    assert source.offsets == []


async def test_only_what_is_still_missing_needs_space(tmp_path: Path) -> None:
    (tmp_path / f"{SPEC.file}.{SPEC.sha256[:8]}.part").write_bytes(MODEL[:9_000_000])
    assert await fetch(SPEC, tmp_path, [Bytes()], disk_free=lambda _: 17_000_000)


async def test_cancelling_keeps_what_came_and_the_next_run_goes_on(tmp_path: Path) -> None:
    def stop(now: FetchProgress) -> None:
        if now.done >= 4 * STEP:
            task.cancel()

    task = asyncio.create_task(fetch(SPEC, tmp_path, [Bytes()], progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kept_bytes(SPEC, tmp_path) == 4 * STEP
    again = Bytes()
    seen: list[FetchProgress] = []
    assert (await fetch(SPEC, tmp_path, [again], progress=seen.append)).read_bytes() == MODEL
    assert again.offsets == [4 * STEP]
    assert seen[0].resumed == 4 * STEP


async def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot be saved in .*file/models \(Not a directory\)"):
        await fetch(SPEC, tmp_path / "file" / "models", [Bytes()])


def child(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, str(CHILD), *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(CHILD.parent.parent)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def read_until(process: "subprocess.Popen[str]", start: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line
    raise AssertionError(f"the child ended without a line that begins with {start!r}")


def test_a_disk_that_runs_full_keeps_what_fits_and_says_so(tmp_path: Path) -> None:
    with serving(FakeHub()) as hub:
        with child(tmp_path, hub.endpoint, 5_000_000) as process:
            line = read_until(process, "failed")
        assert "The disk is full" in line
        assert "5 MB of 9 MB that were downloaded are kept." in line
        assert kept_bytes(SPEC, tmp_path) == 5_000_000
        with child(tmp_path, hub.endpoint) as process:
            read_until(process, "done")
        assert hub.ranges == ["bytes=0-", "bytes=5000000-"]


def test_a_kill_loses_nothing_that_was_written(tmp_path: Path) -> None:
    with serving(FakeHub(hold_at=4 * STEP)) as hub:
        with child(tmp_path, hub.endpoint) as process:
            read_until(process, "at 3")
            process.kill()
        kept = kept_bytes(SPEC, tmp_path)
        assert kept >= 3 * STEP
        hub.hold_at = None
        hub.go_on.set()
        with child(tmp_path, hub.endpoint) as process:
            read_until(process, "done")
        assert hub.ranges == ["bytes=0-", f"bytes={kept}-"]
    assert (tmp_path / SPEC.file).read_bytes() == MODEL


def test_two_processes_fetch_a_file_once(tmp_path: Path) -> None:
    with serving(FakeHub(hold_at=4 * STEP)) as hub, child(tmp_path, hub.endpoint) as first:
        read_until(first, "at 3")
        with child(tmp_path, hub.endpoint) as second:
            read_until(second, "Another process is fetching local/tiny. Waiting for it.")
            hub.go_on.set()
            read_until(first, "done")
            read_until(second, "done")
        assert hub.ranges == ["bytes=0-"]


def test_the_published_file_put_there_by_hand_is_found(tmp_path: Path) -> None:
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    model = resolve("local/smollm2-135m", tmp_path)
    assert model.present
    assert check(model, tmp_path) is FileState.WRONG_SIZE
