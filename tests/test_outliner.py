"""Outlines from a child process: the same as here, and garbage that the parser cannot bear costs one file."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.outline_cache import OutlineCache, makers_version
from agent.outliner import Outliner
from context.repo.outline import outline

SOURCE = b"class Basket:\n    def add(self, price):\n        return price\n"


@pytest.fixture
def outliner() -> Iterator[Outliner]:
    with closing(Outliner()) as outliner:
        yield outliner


@pytest.mark.parametrize("name", ["a.py", "b.txt", "\udcff.py", 'quote".py'])
def test_an_outline_is_the_same_from_the_child(outliner: Outliner, name: str) -> None:
    for data in (SOURCE, b"", b"\xff\xfe\0", SOURCE * 1_000):
        assert outliner(name, data) == outline(name, data)


def test_garbage_that_takes_gigabytes_ends_the_child_and_the_next_file_is_read(outliner: Outliner) -> None:
    assert outliner("a.rs", b"%w(" * 2_000 + b"return ") is None  # 2.4 GB without a limit
    assert outliner("a.py", SOURCE) == outline("a.py", SOURCE)


def test_a_child_that_is_killed_is_started_again(outliner: Outliner) -> None:
    outliner("a.py", SOURCE)
    assert outliner._child is not None
    os.kill(outliner._child.pid, signal.SIGKILL)
    outliner._child.wait()
    outliner("a.py", SOURCE)
    assert outliner("a.py", SOURCE) == outline("a.py", SOURCE)


def test_a_damaged_cache_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "outlines.db"
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1_000)
    with OutlineCache(path) as cache:
        cache.keep("digest", outline("a.py", SOURCE))
    with OutlineCache(path) as cache:
        assert cache.find("digest") == (True, outline("a.py", SOURCE))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM outline").fetchone() == (1,)


def test_what_another_release_made_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "outlines.db"
    with OutlineCache(path) as cache:
        assert cache.remembered("tree", lambda: "old") == "old"
    with OutlineCache(path) as cache:
        assert cache.remembered("tree", lambda: "new") == "old", "the same code"
    with OutlineCache(path, version="another") as cache:
        assert cache.remembered("tree", lambda: "new") == "new"


def test_each_change_of_the_code_is_another_version(tmp_path: Path) -> None:
    names, folder = tmp_path / "names.py", tmp_path / "repo"
    folder.mkdir()
    seen = set()
    for file in (names, folder / "tree.py", folder / "rank.py", names):
        file.write_text(f"{file.read_text() if file.exists() else ''}x = 1\n")
        makers_version.cache_clear()
        seen.add(makers_version((folder, names)))
    assert len(seen) == 4
