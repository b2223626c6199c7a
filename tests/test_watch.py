"""What of a repository may have changed, as the system reports it."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.outline_cache import OutlineCache
from context.repo import watch as watch_module
from context.repo.core import core_files
from context.repo.files import is_ignored, unignored_folders
from context.repo.watch import Dirty, Watch
from context.repo.watch_places import unreported

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports changes so far")


class Watched:
    """A git repository that is watched."""

    def __init__(self, root: Path, kind: type[Watch] = Watch) -> None:
        self.root = root
        self.warnings: list[str] = []
        env = dict(os.environ)
        self.watch = kind(
            root,
            lambda: unignored_folders(root, env),
            lambda folder: is_ignored(root, folder, env),
            self.warnings.append,
        )
        self.all = Dirty()

    def until(self, done: Callable[[Dirty], bool]) -> Dirty:
        """Take until what was taken together satisfies `done`."""
        end = time.monotonic() + 60
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

    def settle(self) -> None:
        """Until all that happened has been taken."""
        end = time.monotonic() + 60
        while not self.watch.quiet():
            assert time.monotonic() < end, "never quiet"
            self.watch.take()

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
    assert names == {".", ".git", ".git/info", "src", "src/deep", "empty"}


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
    end = time.monotonic() + 60
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


def _moved_out(root: Path) -> None:
    (root / "src").rename(root.with_name(f"{root.name}-src"))
    (root / "src/deep").mkdir(parents=True)


def _made_again(root: Path) -> None:
    (root / "empty").rmdir()
    (root / "empty").mkdir()


def _swapped(root: Path) -> None:
    (root / "src").rename(root / "third")
    (root / "empty").rename(root / "src")
    (root / "third").rename(root / "empty")


def _tracked(root: Path) -> None:
    git(root, "add", "-f", "build/out.o")


def _another_branch(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "other")
    git(root, "rm", "-q", "--cached", ".gitignore")
    git(root, "add", "-f", "node_modules")
    git(root, "commit", "-qm", "with modules")
    git(root, "checkout", "-q", "-f", "-")
    git(root, "checkout", "-q", "-f", "other")


def _no_rules(root: Path) -> None:
    (root / ".gitignore").write_text("")


def _opened(root: Path) -> None:
    (root / "empty").chmod(0o000)
    (root / "empty").chmod(0o755)


@pytest.mark.parametrize(
    ("before", "path"),
    [
        (_moved_out, "src/n.py"),
        (_moved_out, "src/deep/n.py"),
        (_made_again, "empty/n.py"),
        (_swapped, "empty/deep/n.py"),
        (_tracked, "build/out.o"),
        (_another_branch, "node_modules/x/y/z.js"),
        (_no_rules, "node_modules/x/y/n.js"),
        (_opened, "empty/n.py"),
    ],
)
def test_a_folder_is_watched_whatever_became_of_it(watched: Watched, before: Callable[[Path], None], path: str) -> None:
    held = os.open(watched.root / "empty", os.O_RDONLY)  # as by a shell in it: its end is not reported before that
    try:
        before(watched.root)
        watched.settle()
        (watched.root / path).write_text("new")
        assert not watched.watch.quiet()
        assert watched.root / path in watched.watch.take().paths, "by its name of now"
    finally:
        os.close(held)


def test_what_is_newly_ignored_is_watched_no_more(watched: Watched) -> None:
    """Field report 152."""
    (watched.root / ".gitignore").write_text("src/\nempty/\n")
    git(watched.root, "rm", "-rq", "--cached", "src")
    watched.settle()
    names = {str(folder.relative_to(watched.root)) for folder in watched.watch.watched}
    assert not names & {"src", "src/deep", "empty"}
    (watched.root / "src/b.py").write_text("y")
    assert watched.watch.quiet()


@pytest.mark.parametrize("place", ["a working tree of its own", "a folder of a repository", "a new repository"])
def test_another_branch_is_seen_wherever_git_keeps_it(tmp_path: Path, place: str) -> None:
    main = tmp_path / "main"
    (main / "src").mkdir(parents=True)
    (main / "src/a.py").write_text("x")
    root = {"a working tree of its own": tmp_path / "second", "a folder of a repository": main / "src"}.get(place, main)
    if root != main:
        git(main, "init", "-q")
        git(main, "add", ".")
        git(main, "commit", "-qm", "all")
    if root == tmp_path / "second":
        git(main, "worktree", "add", "-q", str(root))
    desk = Watched(root)
    with desk.watch:
        desk.start()
        if root == main:
            git(root, "init", "-q")
        desk.settle()
        git(root, "checkout", "-q", "-b", "other")
        assert not desk.watch.quiet()
        desk.settle()
        excluded = main / ".git/info/exclude"
        excluded.write_text("*.tmp\n")
        assert not desk.watch.quiet()
        desk.settle()
        (root.parent / "elsewhere.txt").write_text("x")
        assert desk.watch.quiet(), "of the folders above only the rules matter"


def test_rules_of_the_folders_above_hold(tmp_path: Path) -> None:
    (tmp_path / "pkg/src").mkdir(parents=True)
    (tmp_path / "pkg/src/a.py").write_text("x")
    git(tmp_path, "init", "-q")
    desk = Watched(tmp_path / "pkg/src")
    with desk.watch:
        desk.start()
        desk.settle()
        (tmp_path / "pkg/.gitignore").write_text("*.py\n")
        assert not desk.watch.quiet()


@pytest.mark.parametrize("gone", ["moved", "deleted"])
def test_a_root_that_is_gone_is_never_quiet(watched: Watched, gone: str) -> None:
    root = watched.root
    if gone == "moved":
        root.rename(root.with_name(f"{root.name}-elsewhere"))
    else:
        shutil.rmtree(root)
    watched.until(lambda dirty: dirty.everything)  # also by .git, which goes before its folder does
    assert not watched.watch.quiet()
    assert not watched.watch.ready()
    assert [watched.watch.take().everything for _ in range(2)] == [True, True]
    assert not watched.watch.quiet()
    assert watched.warnings == []


def test_a_root_that_is_replaced_is_watched(tmp_path: Path) -> None:
    gate = threading.Event()

    class Slow(Watch):
        def on_event(self, event: "InotifyEvent") -> None:
            gate.wait(10)
            super().on_event(event)

    (tmp_path / "root/src").mkdir(parents=True)
    (tmp_path / "root/src/a.py").write_text("x")
    desk = Watched(tmp_path / "root", Slow)
    with desk.watch:
        assert desk.watch.ready()
        desk.root.rename(tmp_path / "before")
        (desk.root / "src").mkdir(parents=True)
        (desk.root / "src/a.py").write_text("x")
        gate.set()
        desk.settle()
        (desk.root / "src/a.py").write_text("y")
        assert not desk.watch.quiet()
        assert desk.watch.take() == Dirty(frozenset({desk.root / "src/a.py"}))


def test_a_report_that_comes_late_is_not_taken_for_the_one_that_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "_PATIENCE_S", 0.1)
    gates = {b"first": threading.Event(), b"second": threading.Event()}

    class Slow(Watch):
        def on_event(self, event: "InotifyEvent") -> None:
            if (gate := gates.get(event.name)) is not None:
                gate.wait(10)
            super().on_event(event)

    git(tmp_path, "init", "-q")
    desk = Watched(tmp_path, Slow)
    with desk.watch:
        desk.start()
        desk.settle()
        (tmp_path / ".git/first").write_text("means nothing")
        assert not desk.watch.quiet(), "it is not known"
        (tmp_path / "second").write_text("a change")
        monkeypatch.setattr(watch_module, "_PATIENCE_S", 0.5)
        bell = desk.watch._bell
        assert bell is not None
        rung = bell.stat().st_mtime_ns
        answers: list[bool] = []
        asking = threading.Thread(target=lambda: answers.append(desk.watch.quiet()))
        asking.start()
        while bell.stat().st_mtime_ns == rung and asking.is_alive():
            os.sched_yield()
        gates[b"first"].set()
        asking.join()
        gates[b"second"].set()
        assert answers == [False]
        desk.until(lambda dirty: tmp_path / "second" in dirty.paths)


def test_when_the_system_loses_events_all_is_looked_at_and_watched_again(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip("this machine's queue is too long to be filled in a test")
    gate = threading.Event()

    class Slow(Watch):
        def on_event(self, event: "InotifyEvent") -> None:
            gate.wait(10)
            super().on_event(event)

    (tmp_path / "src").mkdir()
    for name in ("a", "b", "src/c"):
        (tmp_path / name).write_text("x")
    git(tmp_path, "init", "-q")
    desk = Watched(tmp_path, Slow)
    with desk.watch:
        assert desk.watch.ready()
        desk.watch.take()
        for _ in range(limit):  # two names in turn: the system keeps one of equal events
            for name in ("a", "b"):
                (tmp_path / name).touch()
        (tmp_path / "src").rename(tmp_path.with_name(f"{tmp_path.name}-src"))
        (tmp_path / "src").mkdir()
        (tmp_path / "src/c").write_text("y")
        gate.set()
        desk.until(lambda dirty: dirty.everything)
        desk.settle()
        (tmp_path / "src/c").write_text("z")
        assert not desk.watch.quiet()
    assert desk.warnings == []


def test_kinds_of_file_systems_are_told_apart(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    root = tmp_path / "with space"
    escaped = str(root).replace(" ", "\\040")

    def kind(*lines: str, ignored: bool = False) -> str | None:
        mounts.write_text("".join(f"{line} rw 0 0\n" for line in ("/dev/a / ext4", *lines)))
        return unreported(root, lambda _: ignored, mounts)

    assert kind() is None
    assert kind(f"server:/x {escaped} nfs4") == "nfs4"
    assert kind(f"server:/x {escaped}-other nfs4") is None
    assert kind(f"auto {escaped} autofs", f"x {escaped} 9p") == "9p", "the last one covers the others"
    assert kind(f"server:/x {tmp_path} nfs", f"/dev/b {escaped} xfs") is None
    assert kind(f"server:/x {escaped}/data cifs") == "cifs"
    assert kind(f"server:/x {escaped}/data cifs", ignored=True) is None


_step = st.tuples(
    st.sampled_from(["write", "delete", "rename", "make", "move", "out", "in", "again"]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 2),
)


@settings(max_examples=40, deadline=None)
@given(rounds=st.lists(st.lists(_step, min_size=1, max_size=4), min_size=2, max_size=6))
def test_whatever_happens_each_path_that_differs_is_reported(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[str, int, int, int]]]
) -> None:
    """Between rounds all is taken, so that a folder which is watched no more shows in the next."""
    root, outside = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("outside")
    for folder in range(2):
        (root / f"d{folder}/sub").mkdir(parents=True)
        (root / f"d{folder}/f0").write_text("x")
    desk, held = Watched(root), list[int]()

    def state() -> dict[Path, str]:
        return {path: path.read_text() for path in root.rglob("*") if path.is_file()}

    def act(what: str, folder: int, file: int, other: int) -> None:
        here, there = root / f"d{folder}", root / f"d{other}"
        path, target = here / f"f{file}", there / f"f{file}"
        match what:
            case "write":
                path.write_text(f"{what} {other}")
            case "delete":
                path.unlink() if file else shutil.rmtree(here)
            case "rename":
                path.rename(target)
            case "make":
                there.mkdir()
            case "move":
                here.rename(there / "sub" if file else there)
            case "out":
                here.rename(outside / f"d{other}")
            case "in":
                (outside / f"d{folder}").rename(there)
            case "again":
                held.append(os.open(here, os.O_RDONLY))  # as by a shell that stands in it
                shutil.rmtree(here)
                here.mkdir()

    try:
        with desk.watch:
            desk.start()
            for steps in rounds:
                desk.settle()
                before = state()
                for step in steps:
                    with suppress(OSError):
                        act(*step)
                after = state()
                differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
                assert not (differing and desk.watch.quiet())
                told = desk.watch.take()
                missing = {path for path in differing if not told.paths & {path, *path.parents}}
                assert told.everything or not missing
    finally:
        for number in held:
            os.close(number)


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


def test_folders_without_files_are_watched_however_deep_they_are(tmp_path: Path) -> None:
    repo = tmp_path
    git(repo, "init", "-q")
    (repo / ".gitignore").write_text("build/\n")
    (repo / "kept").mkdir()
    (repo / "kept/a.py").write_text("")
    for folder in ("kept/x/y/z", "new/deep/deeper", "new/build/out", "new/node_modules/p", "build/out"):
        (repo / folder).mkdir(parents=True)
    (repo / "new/deep/one.py").write_text("")
    found = {str(path.relative_to(repo)) for path in unignored_folders(repo, dict(os.environ))}
    assert found == {"kept", "kept/x", "kept/x/y", "kept/x/y/z", "new", "new/deep", "new/deep/deeper"}


def test_without_git_folders_without_files_are_watched_too(tmp_path: Path) -> None:
    (tmp_path / "empty/deep").mkdir(parents=True)
    (tmp_path / "a.py").write_text("")
    desk = Watched(tmp_path)
    with desk.watch:
        desk.start()
        desk.settle()
        (tmp_path / "empty/deep/new.py").write_text("x")
        assert not desk.watch.quiet()


@pytest.mark.parametrize("content", [b"gitdir: \0\n", b"", b"gitdir: .\n", b"gitdir: nowhere\n", b"\xff" * 20_000])
def test_a_damaged_name_of_gits_folder_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    (tmp_path / "a.py").write_text("")
    desk = Watched(tmp_path)
    with desk.watch:
        desk.start()
        desk.settle()
        (tmp_path / "a.py").write_text("x")
        assert not desk.watch.quiet()


def test_a_damaged_name_of_what_working_trees_share_is_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".git/commondir").write_bytes(b"\0")
    desk = Watched(tmp_path)
    with desk.watch:
        desk.start()
