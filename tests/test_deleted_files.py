"""Tracked files that are not there: git is asked again when a name came or went, and only then."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from context.repo.deleted import DeletedFiles
from context.repo.files import list_files

LATER = 4e9  # seconds since 1970: whatever happens in a test is long settled


class Memory:
    """Remembers everything, and counts what was not known."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.made = 0

    def __call__(self, key: str, make: Callable[[], str]) -> str:
        if key not in self.known:
            self.known[key] = make()
            self.made += 1
        return self.known[key]


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    for path in ("a/one.py", "a/two.py", "a/deep/three.py", "b/four.py", "top.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    git(root, "init", "-q")
    git(root, "add", ".")
    return root


def tick(root: Path) -> None:
    """Return when the file system's clock has gone on."""
    probe = root.parent / "probe"
    probe.touch()
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        probe.touch()


def rename_folder(root: Path) -> None:
    (root / "a/deep").rename(root / "a/deeper")


def put_link_in_place_of_folder(root: Path) -> None:
    outside = root.parent / "outside"
    (root / "b").rename(outside)
    (root / "b").symlink_to(outside)


def put_folder_in_place_of_file(root: Path) -> None:
    (root / "a/two.py").unlink()
    (root / "a/two.py").mkdir()


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {  # and whether git has to be asked again
    "a file is deleted": (lambda root: (root / "a/deep/three.py").unlink(), True),
    "a file in the top folder is deleted": (lambda root: (root / "top.py").unlink(), True),
    "a folder is renamed": (rename_folder, True),
    "a link takes the place of a folder": (put_link_in_place_of_folder, True),
    "a folder takes the place of a file": (put_folder_in_place_of_file, True),
    "a file is no longer tracked": (lambda root: git(root, "rm", "-q", "--cached", "a/one.py"), True),
    "a file is tracked and not there": (
        lambda root: git(root, "update-index", "--add", "--cacheinfo", f"100644,{'1' * 40},b/never.py"),
        True,
    ),
    "a file is written in place": (lambda root: (root / "top.py").write_text("changed"), False),
    "a file comes where none was tracked": (lambda root: (root.parent / "elsewhere").touch(), False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_remembered_is_what_git_would_say(root: Path, name: str) -> None:
    change, asks = CHANGES[name]
    memory = Memory()
    deleted = DeletedFiles(memory, lambda: LATER)
    (root / "a/one.py").unlink()
    assert list_files(root, os.environ, deleted).paths == list_files(root, os.environ).paths
    tick(root)
    change(root)
    assert list_files(root, os.environ, deleted).paths == list_files(root, os.environ).paths
    assert memory.made == 1 + asks


def test_below_the_top_of_a_repository(root: Path) -> None:
    """Git names files from the top unless told otherwise."""
    (root / "a/one.py").unlink()
    (root / "a/deep/three.py").unlink()
    assert list_files(root / "a", os.environ, DeletedFiles(Memory(), lambda: LATER)).paths == ("two.py",)
    assert list_files(root / "a", os.environ).paths == ("two.py",)


def test_a_file_that_is_back_is_listed_again(root: Path) -> None:
    memory = Memory()
    deleted = DeletedFiles(memory, lambda: LATER)
    (root / "top.py").unlink()
    assert "top.py" not in list_files(root, os.environ, deleted).paths
    tick(root)
    (root / "top.py").write_text("again")
    assert "top.py" in list_files(root, os.environ, deleted).paths


def test_a_folder_that_changed_just_now_is_not_relied_upon(root: Path) -> None:
    """Another change could leave the same time stamp."""
    memory = Memory()
    deleted = DeletedFiles(memory, lambda: max(path.stat().st_ctime for path in root.rglob("*")) + 1.9)
    (root / "top.py").unlink()
    assert "top.py" not in list_files(root, os.environ, deleted).paths
    assert memory.made == 0


def test_an_answer_of_another_index_is_not_remembered(root: Path) -> None:
    """The file is taken out of the index between the two questions, and put back."""
    memory = Memory()
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "all")
    (root / "top.py").unlink()
    tick(root)
    taken_out = DeletedFiles(memory, lambda: git(root, "rm", "-q", "--cached", "--ignore-unmatch", "top.py") or LATER)
    list_files(root, os.environ, taken_out)
    assert memory.known == {}
    git(root, "reset", "-q")
    assert "top.py" not in list_files(root, os.environ, DeletedFiles(memory, lambda: LATER)).paths


def test_where_git_does_not_answer_nothing_is_remembered(root: Path) -> None:
    memory = Memory()
    (root / ".git/index").write_bytes(b"no index")
    assert not list_files(root, os.environ, DeletedFiles(memory, lambda: LATER)).git
    assert memory.known == {}
