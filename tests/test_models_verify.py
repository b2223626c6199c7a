"""A wrong file is found before it is loaded, and a right one is hashed once."""

import os
from pathlib import Path

import pytest
from models_support import MODEL, tiny_spec

from backends.llama.models import LocalModel, ModelError
from backends.llama.verify import FileState, check, ready_path


def model_with(folder: Path, data: bytes | None) -> LocalModel:
    spec = tiny_spec()
    path = folder / spec.file
    if data is not None:
        path.write_bytes(data)
    return LocalModel(spec.full_name, path, data is not None, spec)


def test_a_truncated_file_is_named_as_such_with_both_sizes(tmp_path: Path) -> None:
    model = model_with(tmp_path, MODEL[:-1000])
    assert check(model, tmp_path) is FileState.WRONG_SIZE
    with pytest.raises(ModelError, match=r"truncated: 9 MB of 9 MB \(9000238 of 9001238 bytes\).*models pull tiny"):
        ready_path(model, tmp_path)


def test_a_longer_file_is_another_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not Tiny Test Model: it has 9001239 bytes"):
        ready_path(model_with(tmp_path, MODEL + b"x"), tmp_path)


def test_a_file_of_the_right_size_and_wrong_content_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="SHA-256 differs"):
        ready_path(model_with(tmp_path, MODEL[:-1] + b"x"), tmp_path)


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="agent models pull tiny"):
        ready_path(model_with(tmp_path, None), tmp_path)


def test_a_hash_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    model = model_with(tmp_path, MODEL)
    assert check(model, tmp_path) is FileState.UNVERIFIED
    assert ready_path(model, tmp_path) == model.path
    assert check(model, tmp_path) is FileState.VERIFIED

    before = model.path.stat()
    model.path.write_bytes(MODEL[:-1] + b"x")
    os.utime(model.path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert check(model, tmp_path) is FileState.UNVERIFIED
    with pytest.raises(ModelError, match="SHA-256 differs"):
        ready_path(model, tmp_path)


def test_the_full_check_believes_no_time_stamp(tmp_path: Path) -> None:
    model = model_with(tmp_path, MODEL)
    ready_path(model, tmp_path)
    before = model.path.stat()
    model.path.write_bytes(MODEL[:-1] + b"x")
    os.utime(model.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert check(model, tmp_path) is FileState.VERIFIED  # the quick check cannot see it
    assert check(model, tmp_path, full=True) is FileState.WRONG_HASH
    assert check(model, tmp_path) is FileState.WRONG_HASH  # and now it is known


@pytest.mark.parametrize("stamps", ["", "[]", '{"x": 1}', '{"x": {"size": 1}}', "{"])
def test_a_damaged_memory_of_hashes_only_costs_a_hash(tmp_path: Path, stamps: str) -> None:
    model = model_with(tmp_path, MODEL)
    (tmp_path / "verified.json").write_text(stamps)
    assert ready_path(model, tmp_path) == model.path
    assert check(model, tmp_path) is FileState.VERIFIED


def test_a_models_folder_that_is_not_there_does_not_hinder_a_file_elsewhere(tmp_path: Path) -> None:
    model = model_with(tmp_path, MODEL)
    assert ready_path(model, tmp_path / "none") == model.path


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>please log in</html>")
    with pytest.raises(ModelError, match="not a GGUF file"):
        ready_path(LocalModel(f"local:{page}", page, True), tmp_path)
    empty = tmp_path / "empty.gguf"
    empty.touch()
    with pytest.raises(ModelError, match="not a GGUF file"):
        ready_path(LocalModel(f"local:{empty}", empty, True), tmp_path)
    real = tmp_path / "real.gguf"
    real.write_bytes(MODEL)
    assert ready_path(LocalModel(f"local:{real}", real, True), tmp_path) == real
