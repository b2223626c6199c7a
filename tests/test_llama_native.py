"""Model files and the native library: bad files, missing or crashing libraries, threads, and the settings of OpenMP."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from llama_support import local_backend, plain, take_turn

from backends.base import BackendError, ErrorKind
from backends.llama import native, probe
from backends.llama.child_python import child_env
from backends.llama.cores import usable_cores
from backends.llama.gguf import Header, fingerprint, read_header
from backends.llama.needs import Demand
from backends.llama.tuning import Tuning
from backends.llama.weights import Weights

pytest_plugins = ["local_models"]

ROOT = Path(__file__).parent.parent


def message(error: pytest.ExceptionInfo[BackendError]) -> str:
    """The error's text, checked to be one line about a local model."""
    assert error.value.kind is ErrorKind.LOCAL
    assert not error.value.retriable
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_header_tells_architecture_and_context(smollm2_path: Path) -> None:
    assert read_header(smollm2_path) == Header("llama", 8192)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "first bytes"),
        (b"GGUF\x03\x00", "cut off"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(16), "version is 99"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\x05" + bytes(7) + b"\xff" * 8, "damaged"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\x05" + bytes(7) + b"\x01" + bytes(7) + b"k\xff\0\0\0", "damaged"),
    ],
    ids=["empty", "html", "short", "version", "endless string", "unknown type"],
)
def test_a_file_that_is_no_model_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(BackendError) as caught:
        Weights.load(path)
    assert str(path) in message(caught)
    assert reason in message(caught)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for read in (Weights.load, fingerprint, read_header):
        with pytest.raises(BackendError) as caught:
            read(tmp_path / "none.gguf")
        assert "There is no model file at" in message(caught)


def test_a_folder_is_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        read_header(tmp_path)
    assert "cannot be read" in message(caught)


async def test_a_truncated_file_is_refused_in_llama_cpps_words_and_the_next_one_loads(
    smollm2_path: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_path.open("rb") as whole:
        cut.write_bytes(whole.read(20_000_000))
    backend = local_backend(cut, tmp_path, measured=False)
    for _ in range(2):  # a failure is not remembered as a success
        with pytest.raises(BackendError) as caught:
            await backend.prepare()
        assert "cannot load" in message(caught)
        assert "not within the file bounds" in message(caught) or "corrupted" in message(caught)
    await backend.aclose()
    good = local_backend(smollm2_path, tmp_path)
    assert (await take_turn(good, plain("Hi"), max_output=1)).usage.output == 1
    await good.aclose()


@pytest.fixture
def base_model(smollm2_path: Path, tmp_path: Path) -> Path:
    """The model with its chat template under a name that nobody looks for."""
    data = smollm2_path.read_bytes()
    assert data.count(b"tokenizer.chat_template") == 1
    path = tmp_path / "base.gguf"
    path.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.xxxx_template"))
    return path


async def test_a_model_without_a_chat_template_is_refused(base_model: Path, tmp_path: Path) -> None:
    backend = local_backend(base_model, tmp_path, measured=False)
    with pytest.raises(BackendError) as caught:
        await backend.prepare()
    assert "no chat template" in message(caught)
    assert "instruct" in message(caught)
    await backend.aclose()


def test_a_fingerprint_names_the_content_and_not_the_place(smollm2_path: Path, tmp_path: Path) -> None:
    data = bytearray(smollm2_path.read_bytes())
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(data)
    assert fingerprint(copy) == fingerprint(smollm2_path)
    data[-1] ^= 1
    copy.write_bytes(data)
    assert fingerprint(copy) != fingerprint(smollm2_path)
    copy.write_bytes(data[:-1])
    assert fingerprint(copy) != fingerprint(smollm2_path)


def run(code: str, **environment: str) -> str:
    """What `code` prints, in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout


def test_a_missing_library_is_said_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['llama_cpp'] = None\n"
        "from backends.llama import native\n"
        "from backends.base import BackendError\n"
        "try: native.library()\n"
        "except BackendError as error: print(error.kind, error)\n"
    )
    assert "local Local models need llama.cpp" in run(code)
    assert "pip install '.[local]'" in run(code)


@pytest.mark.parametrize("before", [None, "active"])
def test_the_setting_for_openmp_does_not_reach_the_commands_we_run(before: str | None) -> None:
    code = "import os; from backends.llama import native; native.library(); print(os.environ.get('OMP_WAIT_POLICY'))"
    environment = {} if before is None else {"OMP_WAIT_POLICY": before}
    assert run(code, **environment).strip() == str(before)


def test_llama_cpp_says_nothing_on_the_terminal(smollm2_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from backends.llama.weights import Weights\n"
        "from backends.llama.decoder import ContextOptions, NativeDecoder; from backends.llama.tuning import Tuning\n"
        "weights = Weights.load(Path(sys.argv[1]))\n"
        "decoder = NativeDecoder(weights, ContextOptions(256, Tuning(1, 1)))\n"
        "decoder.evaluate(0, [1, 2, 3], 0); decoder.close(); weights.close(); weights.close(); decoder.close()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(smollm2_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("", "")


def test_memory_is_checked_against_what_the_cache_needs(smollm2_path: Path) -> None:
    weights = Weights.load(smollm2_path)
    needed = native.cache_bytes(weights.pointer, 8192)
    assert needed == 8192 * 30 * 3 * 64 * 2 * 2  # 30 layers, 3 key-value heads of 64, keys and values, 16 bit
    assert Demand.of_weights(weights, "f16").total(8192, 1) == needed
    native.require_memory(needed, 8192, lambda: needed)
    native.require_memory(needed, 8192, lambda: None)
    with pytest.raises(BackendError) as caught:
        native.require_memory(needed, 8192, lambda: needed - 1)
    assert "0.2 GB" in message(caught)
    weights.close()


def test_available_memory_is_unknown_where_the_system_does_not_say(tmp_path: Path) -> None:
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    assert native.available_memory(meminfo, limit) is None
    meminfo.write_text("MemTotal: 10 kB\nMemAvailable: 7 kB\n")
    limit.write_text("max\n")
    assert native.available_memory(meminfo, limit) == 7 * 1024


def test_a_containers_memory_limit_counts(tmp_path: Path) -> None:
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemAvailable: 7 kB\n")
    limit.write_text("5000\n")
    assert native.available_memory(meminfo, limit) == 5000


# The trial run.


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")


@pytest.mark.usefixtures("crashing")
async def test_a_crash_in_native_code_ends_a_child_and_is_explained(smollm2_path: Path, tmp_path: Path) -> None:
    backend = local_backend(smollm2_path, tmp_path, measured=False)
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            await backend.prepare()
        assert "crashed (SIGSEGV)" in message(caught)
        assert "--no-cache-dir llama-cpp-python" in message(caught)
    await backend.aclose()


def test_a_trial_that_nobody_waits_for_any_more_is_ended(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_CHILD", "import time; time.sleep(100)")
    begun = time.monotonic()
    with pytest.raises(BackendError, match="stopped"):
        probe.require_trial(smollm2_path, fingerprint(smollm2_path), tmp_path, stop=lambda: True)
    assert time.monotonic() - begun < 60  # the child would take 100


def test_a_trial_that_was_killed_is_no_fault_of_the_build(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(BackendError, match="memory ran out"):
        probe.require_trial(smollm2_path, fingerprint(smollm2_path), None)


def test_a_trial_that_succeeded_is_not_repeated(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fingerprint(smollm2_path)
    probe.require_trial(smollm2_path, name, tmp_path / "state")
    monkeypatch.setattr(probe, "_CHILD", "raise SystemExit(3)")
    probe.require_trial(smollm2_path, name, tmp_path / "state")
    for other, state in ((name[::-1], tmp_path / "state"), (name, None)):
        with pytest.raises(BackendError) as caught:
            probe.require_trial(smollm2_path, other, state)
        assert "status 3" in message(caught)


@pytest.mark.parametrize("by", ["PYTHONPATH", "working directory"])
def test_a_module_of_the_repository_is_not_taken_for_a_crash(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    (tmp_path / "typing.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "model.gguf").symlink_to(smollm2_path)
    monkeypatch.chdir(tmp_path)
    if by == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe.require_trial(Path("model.gguf"), fingerprint(smollm2_path), None)


def test_a_child_keeps_only_the_entry_of_pythonpath_that_holds_our_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "lib" / "keepwarm"
    kept = child_env({"PYTHONPATH": f"{tmp_path}:lib::{root}", "LANG": "C"}, root)
    assert kept == {"PYTHONPATH": str(tmp_path / "lib"), "LANG": "C"}
    assert child_env({"PYTHONPATH": str(tmp_path)}, root) == {}


@pytest.mark.usefixtures("crashing")
def test_a_folder_of_notes_that_cannot_be_written_does_not_matter(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_CHILD", f"print('{Tuning(3, 2).to_json()}')")
    blocked = tmp_path / "file"
    blocked.touch()
    assert probe.require_trial(smollm2_path, "f" * 64, blocked / "state") == Tuning(3, 2)


def test_a_child_that_ends_early_and_says_nothing_has_not_succeeded(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_CHILD", "")
    with pytest.raises(BackendError) as caught:
        probe.require_trial(smollm2_path, "f" * 64, None)
    assert "status 0" in message(caught)


# Threads.


def topology(folder: Path, *siblings: str) -> Path:
    for cpu, text in enumerate(siblings):
        file = folder / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(text + "\n")
    return folder


def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    cpus = topology(tmp_path, "0,2", "1,3", "0,2", "1,3")
    none = tmp_path / "none"
    assert usable_cores(frozenset(range(4)), cpus, none) == 2
    assert usable_cores(frozenset({0, 2}), cpus, none) == 1
    assert usable_cores(frozenset(range(4)), none, none) == 4
    assert usable_cores(frozenset(), cpus, none) == 1


def test_a_containers_quota_is_the_limit(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    for text, cores in (("150000 100000", 2), ("max 100000", 8), ("garbage", 8), ("50000 100000", 1)):
        quota.write_text(text + "\n")
        assert usable_cores(frozenset(range(8)), tmp_path, quota) == cores


def test_where_the_system_does_not_tell_all_processors_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cores(None, tmp_path, tmp_path / "none", logical=6) == 6
