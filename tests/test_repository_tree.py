"""Which files are listed, and how the tree fits its budget."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from context.repo.files import list_files, recent_changes
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


def commit_all(root: Path) -> None:
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "all")


def test_what_recent_commits_changed_is_told_without_a_program_of_the_repository(tmp_path: Path, program: Path) -> None:
    """A folder that was unpacked, not cloned, brings its own configuration: here one that has signatures verified."""
    root = tmp_path / "repo"
    make(root, "a.py")
    commit_all(root)
    (root / "a.py").write_text("y")
    git(root, "add", ".")
    named = [
        subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout.strip()
        for words in (["write-tree"], ["rev-parse", "HEAD"])
    ]
    who = "a <a@example.org> 1 +0000"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n"
    commit = f"tree {named[0]}\nparent {named[1]}\nauthor {who}\ncommitter {who}\n{signature}\nsigned\n"
    (tmp_path / "commit").write_text(commit)
    told = ["git", "-C", root, "hash-object", "-t", "commit", "-w", tmp_path / "commit"]
    signed = subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()
    git(root, "update-ref", "HEAD", signed)
    git(root, "config", "log.showSignature", "true")
    git(root, "config", "gpg.program", str(program))
    assert recent_changes(root, os.environ) == {"a.py": 1}
    assert not (tmp_path / "it-ran").exists()


def test_listing_runs_no_filter_of_the_repository(tmp_path: Path, program: Path) -> None:
    """Git reads a file again whose time is later than that of its index, through the filter that attributes name."""
    root = tmp_path / "repo"
    make(root, "a.txt", ".gitattributes")
    (root / ".gitattributes").write_text("*.txt filter=own\n")
    os.utime(root / "a.txt", (4e9, 4e9))
    commit_all(root)
    git(root, "config", "filter.own.clean", str(program))
    assert list_files(root, os.environ).paths == (".gitattributes", "a.txt")
    assert not (tmp_path / "it-ran").exists()


def test_a_folder_in_the_place_of_a_file_is_listed_by_what_is_in_it(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    commit_all(tmp_path)
    (tmp_path / "a").unlink()
    make(tmp_path, "a/deep/1")
    assert list_files(tmp_path, os.environ).paths == ("a/deep/1", "b")


def test_what_git_tracks_and_is_not_there_is_not_listed(tmp_path: Path) -> None:
    """Deleted or renamed by a person, or left out of a sparse checkout."""
    make(tmp_path, "a/gone.py", "a/kept.py", "b/left_out.py", "b/c/left_out.py", "old.py")
    commit_all(tmp_path)
    (tmp_path / "a/gone.py").unlink()
    (tmp_path / "old.py").rename(tmp_path / "new.py")
    git(tmp_path, "sparse-checkout", "set", "--cone", "a")
    assert list_files(tmp_path, os.environ).paths == ("a/kept.py", "new.py")


def test_a_first_file_that_is_left_out_and_files_in_conflict(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py", "c.py")
    commit_all(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "other")
    (tmp_path / "b.py").write_text("other\n")
    commit_all(tmp_path)
    git(tmp_path, "checkout", "-q", "-")
    (tmp_path / "b.py").write_text("here\n")
    commit_all(tmp_path)
    subprocess.run(["git", "-C", tmp_path, "merge", "-q", "other"], check=False, capture_output=True)
    assert list_files(tmp_path, os.environ).paths == ("a.py", "b.py", "c.py")  # b.py has three entries
    git(tmp_path, "update-index", "--skip-worktree", "a.py")
    (tmp_path / "a.py").unlink()
    assert list_files(tmp_path, os.environ).paths == ("b.py", "c.py")


def test_what_a_link_in_the_place_of_a_folder_leads_to_is_not_listed(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    make(tmp_path, "home/deep/id", "repo/keys/deep/id", "repo/a.py")
    commit_all(root)
    (root / "keys/deep/id").unlink()
    (root / "keys/deep").rmdir()
    (root / "keys").rmdir()
    (root / "keys").symlink_to(tmp_path / "home")
    assert list_files(root, os.environ).paths == ("a.py", "keys")


def test_a_repository_inside_of_another_is_one_name(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "src/inner/b.py")
    commit_all(tmp_path / "src/inner")
    git(tmp_path, "init", "-q")
    assert render_tree(list_files(tmp_path, os.environ).paths, 500) == "a.py\nsrc/: inner/"


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_without_git_rules_that_are_no_file_are_none(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    make(tmp_path, "root/a.py", "rules")
    (tmp_path / "rules").write_text("a.py\n")
    rules = root / ".gitignore"
    match kind:
        case "pipe":
            os.mkfifo(rules)
        case "folder":
            rules.mkdir()
        case "link":
            rules.symlink_to(tmp_path / "rules")
    assert "a.py" in list_files(root, {**os.environ, "PATH": ""}).paths


def test_a_walk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context.repo.files.WALK_LIMIT", 3)
    make(tmp_path, "a/1", "b/2", "c/3")
    env = {**os.environ, "PATH": ""}
    assert not list_files(tmp_path, env).complete, "the top is a folder too"
    (tmp_path / "c/3").unlink()
    (tmp_path / "c").rmdir()
    assert list_files(tmp_path, env).complete
    make(tmp_path, "b/3", "b/4")
    cut = list_files(tmp_path, env)
    assert (cut.paths, cut.complete) == (("a/1", "b/2", "b/3"), False)
