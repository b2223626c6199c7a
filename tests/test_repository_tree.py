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
    listing = list_files(tmp_path, os.environ)
    assert listing.paths == (".gitignore", "a.py", "new.py")
    assert listing.git


def test_inside_a_git_hook_the_folder_decides_which_repository_is_listed(tmp_path: Path) -> None:
    for name in ("here", "hooked"):
        make(tmp_path / name, f"{name}.py")
        git(tmp_path / name, "init")
    hook = {**os.environ, "GIT_DIR": str(tmp_path / "hooked/.git"), "GIT_WORK_TREE": str(tmp_path / "hooked")}
    assert list_files(tmp_path / "here", hook).paths == ("here.py",)


def test_without_git_the_ignore_file_still_holds(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "build/out.o", "node_modules/x/index.js")
    (tmp_path / ".gitignore").write_text("build/\n")
    listing = list_files(tmp_path, os.environ)
    assert listing.paths == (".gitignore", "a.py")
    assert not listing.git


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a trace when it runs."""
    path = tmp_path / "program.sh"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/it-ran\nexit 1\n")
    path.chmod(0o755)
    return path


def test_listing_runs_no_file_system_monitor_of_the_repository(tmp_path: Path, program: Path) -> None:
    root = tmp_path / "repo"
    make(root, "a.py")
    git(root, "init")
    git(root, "add", ".")
    git(root, "config", "core.fsmonitor", str(program))
    assert list_files(root, os.environ).paths == ("a.py",)
    assert not (tmp_path / "it-ran").exists()


def test_listing_fetches_nothing_for_a_partial_clone(tmp_path: Path, program: Path) -> None:
    """git would fetch the folders that a sparse index leaves out, with a program that the repository names."""
    origin, root = tmp_path / "origin", tmp_path / "repo"
    make(origin, "inside/a.py", "outside/deep/b.py")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (["init"], ["add", "."], [*who, "commit", "-m", "x"], ["config", "uploadpack.allowFilter", "1"]):
        git(origin, *arguments)
    git(tmp_path, "clone", "--filter=tree:0", "--no-checkout", f"file://{origin}", str(root))
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "inside")
    git(root, "checkout")
    for pack in (root / ".git/objects/pack").iterdir():
        pack.unlink()
    git(root, "config", "remote.origin.uploadpack", str(program))
    git(root, "config", "protocol.file.allow", "always")
    assert "inside/a.py" in list_files(root, os.environ).paths
    assert not (tmp_path / "it-ran").exists()


def test_names_that_are_no_words_are_shown_as_one(tmp_path: Path) -> None:
    for name in (b"caf\xe9.txt", "汉字.py".encode(), b"two\nlines", b"a b.txt"):
        (tmp_path / os.fsdecode(name)).write_text("x")
    text = render_tree(list_files(tmp_path, os.environ).paths, 500)
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
        assert list_files(tmp_path, os.environ).paths == ("a.py",)
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


def test_without_git_every_gitignore_holds_as_git_would_have_it(tmp_path: Path) -> None:
    """The innermost rule decides; what is below an ignored folder stays ignored. Git itself is asked for the truth."""
    make(
        tmp_path,
        "a.log",
        "keep.log",
        "src/b.log",
        "src/c.py",
        "src/gen/d.py",
        "src/gen/keep.py",
        "out/e.py",
        "x/out/f.py",
    )
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\n/out/\n")
    (tmp_path / "src/.gitignore").write_text("!b.log\ngen/\n")
    (tmp_path / "src/gen/.gitignore").write_text("!keep.py\n")
    (tmp_path / "x/.gitignore").write_bytes(b"\xff\xfe[\n")
    walked = list_files(tmp_path, {**os.environ, "PATH": ""})
    assert not walked.git
    git(tmp_path, "init")
    assert walked.paths == list_files(tmp_path, os.environ).paths
    assert "src/b.log" in walked.paths
