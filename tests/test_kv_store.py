"""KV states on disk: found again by exact tokens, never used damaged, within their quota, whole after a kill."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.llama.kv_store import KvStore, Model, kept, prune

ROOT = Path(__file__).parent.parent
QUOTA = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KvStore]:
    with opened(tmp_path) as one:
        yield one


class opened:  # noqa: N801 - used like a function
    def __init__(self, folder: Path, key: str = "model", quota: int = QUOTA) -> None:
        self.warnings: list[str] = []
        self.store = KvStore(folder, Model(key, {"model": f"local/{key}"}), quota, self.warnings.append)

    def __enter__(self) -> KvStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


def tokens(count: int, start: int = 0) -> "array[int]":
    return array("i", range(start, start + count))


def put(store: KvStore, text: "array[int]", start: int, data: bytes) -> None:
    store.keep(text, start, data)
    store.flush()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


def test_a_turn_adds_one_segment_behind_what_is_shared(store: KvStore, tmp_path: Path) -> None:
    head = tokens(100)
    put(store, head, 0, b"head")
    put(store, head + tokens(50, 1000), 100, b"one")
    put(store, head + tokens(70, 2000), 100, b"other")
    with opened(tmp_path) as again:
        found = again.find(head + tokens(70, 2000) + tokens(9, 1), parts=False)
        assert [again.load(one) for one in found.segments] == [b"head", b"other"]
        assert found.length == 170
        assert again.find(head, parts=False).length == 100


def test_a_state_is_found_at_every_instant_of_its_writing(store: KvStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is finished while the folder is being listed."""
    listed, rename, listing = threading.Event(), os.replace, os.scandir

    def renamed_late(source: Path, target: Path) -> None:
        assert listed.wait(30)
        rename(source, target)

    def listed_early(folder: Path) -> list[os.DirEntry[str]]:
        entries = list(listing(folder))
        listed.set()
        store.flush()
        return entries

    put(store, tokens(10, 5000), 0, b"so that there is a folder")
    monkeypatch.setattr(os, "replace", renamed_late)
    text = tokens(100)
    store.keep(text, 0, b"state")
    monkeypatch.setattr(os, "scandir", listed_early)
    assert store.find(text, parts=False).length == 100


def test_the_beginning_of_a_segment_is_of_use_where_tokens_can_be_taken_back(store: KvStore) -> None:
    put(store, tokens(100), 0, b"state")
    changed = tokens(60) + tokens(60, 1000)
    assert store.find(changed, parts=True).length == 60
    assert store.find(changed, parts=False).length == 0
    assert store.find(tokens(60), parts=False).length == 0


def test_states_of_another_model_build_or_setting_are_not_seen(store: KvStore, tmp_path: Path) -> None:
    put(store, tokens(100), 0, b"state")
    with opened(tmp_path, "another") as other:
        assert other.find(tokens(100), parts=True).length == 0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8), st.booleans())
def test_what_is_found_is_the_longest_that_was_kept(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]], parts: bool
) -> None:
    with opened(tmp_path_factory.mktemp("kv")) as store:
        whole: list[list[int]] = []
        for text in texts:
            known = array("i", text)
            start = store.find(known, parts=False).length
            if start < len(text):
                put(store, known, start, bytes(text[start:]))
            whole.append(text)
            found = store.find(known, parts=False)
            assert found.length == len(text)
            assert b"".join(store.load(one) or b"?" for one in found.segments) == bytes(text)
        for text in whole:
            found = store.find(array("i", [*text, 9]), parts=parts)
            assert found.length == len(text), "kept, whatever was kept behind or beside it"


@pytest.mark.parametrize("damage", ["cut", "payload", "tokens", "head", "empty", "foreign"])
def test_a_damaged_file_is_not_used_and_is_removed(tmp_path: Path, damage: str) -> None:
    with opened(tmp_path) as store:
        put(store, tokens(100), 0, b"state" * 100)
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    match damage:
        case "cut":
            data = data[:-7]
        case "payload":
            data[-9] ^= 1
        case "tokens":
            data[60] ^= 1
        case "head":
            data[0] ^= 1
        case "empty":
            data = bytearray()
        case "foreign":
            data = bytearray(b"something else altogether" * 20)
    path.write_bytes(data)
    with opened(tmp_path) as store:
        found = store.find(tokens(100), parts=True)
        assert [store.load(one) for one in found.segments] in ([], [None])
        assert files(tmp_path) == []
        put(store, tokens(100), 0, b"state")
        assert store.find(tokens(100), parts=True).length == 100


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    with opened(tmp_path, quota=10_000) as store:
        for number in range(3):
            put(store, tokens(100, 1000 * number), 0, bytes(2_500))
            for path in files(tmp_path):
                os.utime(path, (path.stat().st_mtime - 100,) * 2)
        (first,) = store.find(tokens(100), parts=False).segments
        assert store.load(first) is not None
        put(store, tokens(100, 9000), 0, bytes(2_500))
        found = [store.find(tokens(100, start), parts=False).length for start in (0, 1000, 2000, 9000)]
    assert found == [100, 0, 100, 100]
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 10_000


def test_a_full_disk_costs_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (about := opened(tmp_path)) as store:
        put(store, tokens(100), 0, b"before")
        monkeypatch.setattr(os, "replace", full)
        put(store, tokens(100, 500), 0, b"state")
        put(store, tokens(100, 900), 0, b"state")
    assert about.warnings == ["The model's state cannot be kept for the next start (No space left on device)."]
    assert len(files(tmp_path)) == 1
    assert not list(tmp_path.rglob("tmp-*"))


def test_kept_files_can_be_read_by_their_owner_only(store: KvStore, tmp_path: Path) -> None:
    put(store, tokens(100), 0, b"state")
    (path,) = files(tmp_path)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_kill_while_a_state_is_written_leaves_what_was_there(tmp_path: Path) -> None:
    """SIGKILL at many instants of a process that does nothing but write states."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from array import array; from pathlib import Path\n"
        "from backends.llama.kv_store import KvStore, Model\n"
        "store = KvStore(Path(sys.argv[2]), Model('model', {}), 1 << 30)\n"
        "print(flush=True)\n"
        "for number in range(10_000):\n"
        "    store.keep(array('i', range(number * 100, number * 100 + 50)), 0, bytes([number % 251]) * 3_000_000)\n"
        "    store.flush()\n"
    )
    for kill in range(12):
        child = subprocess.Popen([sys.executable, "-c", code, str(ROOT), str(tmp_path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        end = time.monotonic() + 0.003 * kill
        while time.monotonic() < end:
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        with opened(tmp_path, quota=1 << 30) as store:
            for number in range(len(files(tmp_path))):
                for segment in store.find(tokens(50, number * 100), parts=True).segments:
                    assert store.load(segment) == bytes([number % 251]) * 3_000_000
    prune(tmp_path, 1 << 40)
    assert not list(tmp_path.rglob("tmp-*")), "what a killed process has left is cleared away"


def test_what_is_kept_is_listed_and_pruned(tmp_path: Path) -> None:
    for key in ("one", "two"):
        with opened(tmp_path, key) as store:
            put(store, tokens(100), 0, bytes(1_000))
            put(store, tokens(150), 100, bytes(500))
    found = kept(tmp_path)
    assert [(one.about["model"], one.files, one.longest) for one in found] == [
        ("local/one", 2, 150),
        ("local/two", 2, 150),
    ]
    assert all(one.used is not None and one.bytes > 1_500 for one in found)
    assert prune(tmp_path, 0) == sum(one.bytes for one in found)
    assert kept(tmp_path) == []
    assert kept(tmp_path / "nowhere") == []


def test_a_damaged_count_asks_for_no_memory(tmp_path: Path) -> None:
    """A head that promises 4 billion tokens, read by a process that may have 2 GB."""
    with opened(tmp_path) as store:
        put(store, tokens(100), 0, b"state")
    (path,) = files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[10:14] = b"\xff" * 4  # the count, behind magic and start
    path.write_bytes(raw)
    code = (
        "import sys, resource; sys.path.insert(0, sys.argv[1])\n"
        "from array import array; from pathlib import Path\n"
        "from backends.llama.kv_store import KvStore, Model\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "store = KvStore(Path(sys.argv[2]), Model('model', {}), 1 << 30)\n"
        "print(store.find(array('i', range(100)), parts=True).length)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ROOT), str(tmp_path)], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"0\n", b"")
    assert not path.exists()


def test_what_is_no_file_of_ours_is_neither_waited_for_nor_removed(tmp_path: Path) -> None:
    """A pipe where a state would be, and a link to a folder of somebody else."""
    root, foreign = tmp_path / "kv", tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "about.json").write_text("{}")
    (foreign / "0000000-notes.kv").write_text("mine")
    with opened(root) as store:
        put(store, tokens(100), 0, b"state")
        (path,) = files(root)
        path.unlink()
        os.mkfifo(path)
        (root / "link").symlink_to(foreign)
        assert store.find(tokens(100), parts=True).length == 0
    assert [one.files for one in kept(root)] == [0]
    assert prune(root, 0) == 0
    assert sorted(file.name for file in foreign.iterdir()) == ["0000000-notes.kv", "about.json"]
