"""Which files are listed, and how the tree fits its budget."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from context.repo.files import list_files
from context.repo.tree import render_tree
from context.tokens import count_tokens


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")


def test_git_decides_what_is_listed(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "build/out.o", "new.py", ".gitignore")
    (tmp_path / ".gitignore").write_text("build/\n")
    git(tmp_path, "init")
    git(tmp_path, "add", "a.py")
    listing = list_files(tmp_path)
    assert listing.paths == (".gitignore", "a.py", "new.py")
    assert listing.git


def test_without_git_the_ignore_file_still_holds(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "build/out.o", "node_modules/x/index.js")
    (tmp_path / ".gitignore").write_text("build/\n")
    listing = list_files(tmp_path)
    assert listing.paths == (".gitignore", "a.py")
    assert not listing.git


def test_names_that_are_no_words_are_shown_as_one(tmp_path: Path) -> None:
    for name in (b"caf\xe9.txt", "汉字.py".encode(), b"two\nlines", b"a b.txt"):
        (tmp_path / os.fsdecode(name)).write_text("x")
    text = render_tree(list_files(tmp_path).paths, 500)
    assert "\n" not in text
    assert "汉字.py" in text
    assert '"a b.txt"' in text
    assert "caf\\xe9.txt" in text, "shown as the tools take it back"
    text.encode()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "locked/b.py")
    (tmp_path / "locked").chmod(0)
    try:
        assert list_files(tmp_path).paths == ("a.py",)
    finally:
        (tmp_path / "locked").chmod(0o700)


def test_the_tree_keeps_to_its_budget_and_counts_what_it_folds() -> None:
    paths = [f"src/pkg{i}/module{j}.py" for i in range(20) for j in range(50)] + ["README.md", "docs/index.md"]
    text = render_tree(paths, 300)
    assert count_tokens(text) <= 300
    assert "README.md" in text
    assert "docs/: index.md" in text
    folded = sum(int(number) for number in __import__("re").findall(r"\((\d+)\)", text))
    shown = text.count("module")
    assert folded + shown == 1000


def test_equal_files_in_any_order_give_equal_text() -> None:
    paths = [f"d{i % 7}/e{i % 3}/f{i}" for i in range(300)]
    shuffled = random.Random(1).sample(paths, len(paths))
    assert render_tree(paths, 400) == render_tree(shuffled, 400)


def test_one_huge_folder_is_cut_at_whole_names() -> None:
    text = render_tree([f"file-{i}.txt" for i in range(5000)], 200)
    assert count_tokens(text) <= 220
    assert text.endswith("more)")
