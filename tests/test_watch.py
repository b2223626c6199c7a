"""What of a repository may have changed, as the system reports it."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.outline_cache import OutlineCache
from context.repo import watch as watch_module
from context.repo.core import core_files
from context.repo.files import is_ignored, unignored_folders
from context.repo.watch import Dirty, Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports changes so far")


class Watched:
    """A git repository that is watched."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.warnings: list[str] = []
        env = dict(os.environ)
        self.watch = Watch(
            root,
            lambda: unignored_folders(root, env),
            lambda folder: is_ignored(root, folder, env),
            self.warnings.append,
        )
        self.all = Dirty()

    def until(self, done: Callable[[Dirty], bool]) -> Dirty:
        """Take until what was taken together satisfies `done`."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            taken = self.watch.take()
            self.all = Dirty(self.all.paths | taken.paths, self.all.everything or taken.everything)
            if done(self.all):
                return self.all
            os.sched_yield()
        raise AssertionError(f"not told: {self.all}")

    def start(self) -> None:
        assert self.watch.ready()
        assert self.watch.take().everything, "of what was before nothing is known"

    def fresh(self) -> None:
        """Let what has happened be reported, and forget it."""
        mark = self.root / "mark"
        mark.write_text("x")
        self.until(lambda dirty: dirty.everything or mark in dirty.paths)
        mark.unlink()
        self.all = Dirty()
        self.watch.take()


def git(root: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(root), *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    for name in ("src/deep/a.py", "src/b.py", "node_modules/x/y/z.js", "build/out.o"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".gitignore").write_text("node_modules/\nbuild/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    desk = Watched(tmp_path)
    with desk.watch:
        desk.start()
        yield desk


def test_what_is_ignored_is_never_scheduled(watched: Watched) -> None:
    """Field report 152: count the watches."""
    names = {str(folder.relative_to(watched.root)) for folder in watched.watch.watched}
    assert names == {".", ".git", "src", "src/deep", "empty"}


def test_a_write_an_atomic_save_a_rename_and_a_deletion_are_reported(watched: Watched) -> None:
    root = watched.root
    path = root / "src/deep/a.py"
    path.write_text("y")
    assert not watched.until(lambda dirty: path in dirty.paths).everything
    saved = root / "src/deep/.a.py.swp"
    saved.write_text("z")
    watched.all = Dirty()
    saved.replace(path)
    watched.until(lambda dirty: path in dirty.paths)
    moved = root / "src/A.PY"
    path.rename(moved)
    watched.until(lambda dirty: {path, moved} <= dirty.paths)
    watched.all = Dirty()
    moved.unlink()
    watched.until(lambda dirty: moved in dirty.paths)
    assert watched.warnings == []


def test_new_folders_are_watched_and_what_was_made_in_them_meanwhile_is_not_lost(watched: Watched) -> None:
    (watched.root / "new/deeper").mkdir(parents=True)
    watched.until(lambda dirty: dirty.everything)
    end = time.monotonic() + 10
    while watched.root / "new/deeper" not in watched.watch.watched:
        assert time.monotonic() < end
        os.sched_yield()
    watched.fresh()
    path = watched.root / "new/deeper/c.py"
    path.write_text("x")
    watched.until(lambda dirty: path in dirty.paths or dirty.everything)
    (watched.root / "build/more").mkdir()
    (watched.root / "node_modules/more").mkdir()
    watched.fresh()
    assert not any("build" in folder.parts or "node_modules" in folder.parts for folder in watched.watch.watched)


def test_another_branch_a_stash_and_other_rules_mean_everything(watched: Watched) -> None:
    root = watched.root
    git(root, "checkout", "-q", "-b", "other")
    watched.until(lambda dirty: dirty.everything)
    watched.fresh()
    (root / "src/b.py").write_text("changed")
    git(root, "stash", "-q")
    watched.until(lambda dirty: dirty.everything)
    watched.fresh()
    (root / "src/.gitignore").write_text("*.tmp\n")
    watched.until(lambda dirty: dirty.everything)


def test_whether_all_is_quiet_is_known_at_once(watched: Watched) -> None:
    """No change is missed because the system has not got round to reporting it."""
    path = watched.root / "src/b.py"
    for number in range(200):
        watched.watch.take()
        assert watched.watch.quiet()
        path.write_text(str(number))
        assert not watched.watch.quiet()


def test_a_file_that_is_replaced_a_thousand_times_is_one_path(watched: Watched) -> None:
    path = watched.root / "src/b.py"
    for number in range(1_000):
        temporary = watched.root / "src/.b.tmp"
        temporary.write_text(str(number))
        temporary.replace(path)
    watched.until(lambda dirty: path in dirty.paths)
    assert len(watched.all.paths) <= 2


@pytest.mark.parametrize("number", [28, 24])
def test_where_the_system_watches_no_more_everything_is_looked_at_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Field report 151: a limit of 100."""
    from watchdog.observers.inotify_c import InotifyFD

    for folder in range(150):
        (tmp_path / f"d{folder}").mkdir()
        (tmp_path / f"d{folder}/f").write_text("x")
    git(tmp_path, "init", "-q")
    real, count = InotifyFD.add_callback, iter(range(100))

    def limited(self: InotifyFD, *arguments: object) -> object:
        if next(count, None) is None:
            raise OSError(number, os.strerror(number))
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(InotifyFD, "add_callback", limited)
    desk = Watched(tmp_path)
    with desk.watch:
        assert not desk.watch.ready()
        (warning,) = desk.warnings
        assert "fs.inotify.max_user_" in warning
        assert "before each turn" in warning
        assert desk.watch.take() == Dirty(frozenset(), True)
        assert desk.watch.take() == Dirty(frozenset(), True), "each time"
    assert len(desk.warnings) == 1


def test_a_network_mount_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "unreported", lambda *_: "nfs4")
    desk = Watched(tmp_path)
    with desk.watch:
        assert not desk.watch.ready()
        assert desk.watch.take().everything
    assert desk.warnings == ["Changes on nfs4 are not reported: files are looked at before each turn."]


def test_where_nothing_is_watched_yet_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module.sys, "platform", "darwin")
    desk = Watched(tmp_path)
    with desk.watch:
        assert not desk.watch.quiet()
        assert desk.watch.take().everything
    assert desk.warnings == ["Changes are not watched on darwin yet: files are looked at before each turn."]


def test_odd_trees_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "f").write_text("x")
    desk = Watched(tmp_path)  # no repository of git
    with desk.watch:
        desk.start()
        (tmp_path / "f").write_text("y")
        desk.until(lambda dirty: tmp_path / "f" in dirty.paths)
        (tmp_path / "closed").rmdir()
        shutil.rmtree(tmp_path)
        desk.until(lambda dirty: dirty.everything)
    assert desk.warnings == []


_steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete", "rename", "make", "move"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(steps=_steps)
def test_whatever_happens_each_path_that_differs_is_reported(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, int]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for folder in range(2):
        (root / f"d{folder}").mkdir()
        (root / f"d{folder}/f0").write_text("x")
    desk = Watched(root)

    def state() -> dict[Path, str]:
        return {path: path.read_text() for path in root.rglob("*") if path.is_file() and path.name != "mark"}

    with desk.watch:
        desk.start()
        before = state()
        for what, folder, file, other in steps:
            path, target = root / f"d{folder}/f{file}", root / f"d{other}/f{file}"
            try:
                match what:
                    case "write":
                        path.write_text(f"{what} {other}")
                    case "delete":
                        path.unlink()
                    case "rename":
                        path.rename(target)
                    case "make":
                        (root / f"d{other}").mkdir()
                    case "move":
                        (root / f"d{folder}").rename(root / f"d{other}")
            except OSError:
                continue
        after = state()
        differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}

        def told(dirty: Dirty) -> bool:
            named = dirty.paths
            return dirty.everything or all(any(path == at or at in path.parents for at in named) for path in differing)

        desk.until(told)


_IN_A_NAMESPACE = "echo 100 > /proc/sys/user/max_inotify_watches && exec "
_CHILD = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from test_watch import Watched
desk = Watched(Path(sys.argv[3]))
with desk.watch:
    print(desk.watch.ready(), desk.watch.take().everything, desk.warnings)
"""


def test_the_systems_own_limit_of_a_hundred_is_met(tmp_path: Path) -> None:
    """Field report 151, by the kernel itself: in a namespace of users it can be lowered for one process."""
    for folder in range(150):
        (tmp_path / f"d{folder}").mkdir()
        (tmp_path / f"d{folder}/f").write_text("x")
    here = Path(__file__).parent
    python = shlex.join([sys.executable, "-c", _CHILD, str(here), str(here.parent), str(tmp_path)])
    done = subprocess.run(["unshare", "-Ur", "sh", "-c", _IN_A_NAMESPACE + python], capture_output=True, text=True)
    if "Operation not permitted" in done.stderr or "unshare" in done.stderr:
        pytest.skip("this machine lets nobody make a namespace of users")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False True ['The system watches no more folders (fs.inotify.max_user_watches")
    assert done.stdout.count("before each turn") == 1


def test_a_tree_that_may_only_be_read_is_watched_and_shown(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.py").write_text("def main():\n    pass\n")
    for path in (tmp_path / "src/main.py", tmp_path / "src", tmp_path):
        path.chmod(0o555)
    desk = Watched(tmp_path)
    try:
        with desk.watch:
            desk.start()
            assert desk.watch.quiet()
            paths = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")]
            assert [file.path for file in core_files(tmp_path, paths, "k", 4_000, OutlineCache(None)).files] == paths
    finally:
        for path in (tmp_path, tmp_path / "src"):
            path.chmod(0o755)
    assert desk.warnings == []
