"""After any edits, undo brings back exact bytes and modes, redo undoes that, and the person's git stays as it is."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from trees import EDITS, Edit, edit, everything

from agent.checkpoints import AFTER, BEFORE, Checkpoints

ENV = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
WITHOUT_GIT = {"PATH": "/nowhere"}


def with_git(root: Path) -> None:
    """A repository whose configuration would convert contents and run programs, if anything of it were asked for."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "start"]):
        subprocess.run(["git", *arguments], cwd=root, env=ENV, check=False)
    with open(root / ".git" / "config", "a") as file:
        file.write('[core]\n\tautocrlf = true\n\tfsmonitor = "touch HOOKED"\n')
        file.write('[filter "f"]\n\tclean = touch HOOKED; cat\n\tsmudge = touch HOOKED; cat\n')
    (root / ".git" / "info" / "attributes").write_text("* filter=f text ident eol=crlf\n")
    hook = root / ".git" / "hooks" / "post-index-change"
    hook.write_text("#!/bin/sh\ntouch HOOKED\n")
    hook.chmod(0o755)


@pytest.mark.parametrize("env", [ENV, WITHOUT_GIT], ids=["git", "without git"])
@settings(max_examples=6, deadline=None)
@given(start=EDITS, first=EDITS, between=EDITS, second=EDITS)
def test_undo_brings_back_bytes_and_modes_and_redo_undoes_it(
    env: dict[str, str], start: list[Edit], first: list[Edit], between: list[Edit], second: list[Edit]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        edit(root, start)
        if env is ENV:
            with_git(root)
        git = everything(root / ".git", frozenset()) if env is ENV else None
        points = Checkpoints(Path(folder) / "data", root, env, time.time)
        trees = []
        for turn, edits in ((1, first), (2, second)):
            if turn == 2:
                edit(root, between)
            assert points.take("s", turn, BEFORE)
            trees.append(everything(root))
            edit(root, edits)
            assert points.take("s", turn, AFTER)
            trees.append(everything(root))
        (_, after_1, before_2, after_2) = trees

        if before_2 != after_2:
            undone = points.undo("s")
            assert (undone.turn, undone.kept) == (2, ())
            assert everything(root) == before_2
            assert points.redo("s").turn == 2
            assert everything(root) == after_2
            points.undo("s")
        if not between and trees[0] != after_1:
            assert points.undo("s").turn == 1
            assert everything(root) == trees[0]
            points.redo("s")
            assert everything(root) == after_1
        beginning = points.beginning("s", 1)
        assert beginning is not None
        points.restore(beginning, force=True)
        assert everything(root) == trees[0], "any checkpoint can be gone back to"
        assert points.notices() == []
        if env is ENV:
            assert everything(root / ".git", frozenset()) == git
            assert not list(root.rglob("HOOKED"))


@settings(max_examples=15, deadline=None)
@given(start=EDITS, turn=EDITS, later=EDITS)
def test_what_a_person_changed_after_the_turn_is_never_overwritten(
    start: list[Edit], turn: list[Edit], later: list[Edit]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        edit(root, start)
        points = Checkpoints(Path(folder) / "data", root, WITHOUT_GIT, time.time)
        points.take("s", 1, BEFORE)
        before = everything(root)
        edit(root, turn)
        points.take("s", 1, AFTER)
        after = everything(root)
        edit(root, later)
        found = everything(root)
        undone = points.undo("s")
        left = everything(root)
        for path in before.keys() | after.keys() | found.keys():
            was, is_now = found.get(path), left.get(path)
            if was != after.get(path) and "folder" not in (was and was[0], is_now and is_now[0]):
                assert is_now == was, path
        told = {os.fsencode(kept.path) for kept in undone.kept}
        files = {path for path in after.keys() | before.keys() if before.get(path) != after.get(path)}
        for path in files - told:
            sort = {(entry or ("", 0, b""))[0] for entry in (before.get(path), after.get(path), left.get(path))}
            if "folder" not in sort and undone.turn is not None:
                assert left.get(path) == before.get(path), "what is not told is put back"
