"""What the model is told of files that changed behind its back: told once, and enough to know the file again."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.redact import Redactor
from agent.repository import News, Repository, keep_listing
from agent.tools.base import ToolContext
from agent.tools.textfile import load
from agent.versions import Versions
from context.disk_changes import FileChange, tell, unified
from context.repo.files import list_files

_lines = st.lists(st.sampled_from(["a", "b", "", "x = 1", "\x0c", "\u2028", "é\r"]), max_size=12)
_texts = st.builds(lambda lines, end: "\n".join(lines) + end, _lines, st.sampled_from(["", "\n"]))


def applied(before: str, hunks: str) -> str:
    """`before` with the hunks of a diff applied, read from the words of the format alone."""
    old, new, at = before.split("\n"), [], 0
    lines = hunks.split("\n")[:-1]
    ends_open = False
    for number, line in enumerate(lines):
        if line.startswith("@@"):
            start = line.split(" ")[1][1:]
            first, _, count = start.partition(",")
            begin = int(first) - (0 if count == "0" else 1)
            new += old[at:begin]
            at = begin
        elif line.startswith("\\"):
            ends_open |= lines[number - 1][:1] in "+ "
        elif line[:1] in " -":
            assert old[at] == line[1:]
            new += [line[1:]] if line[:1] == " " else []
            at += 1
        else:
            new.append(line[1:])
    rest = old[at:]
    touched_end = not rest or rest == [""]
    return "\n".join(new + rest) if not touched_end else "\n".join(new) + ("" if ends_open or not new else "\n")


@settings(max_examples=500, deadline=None)
@given(before=_texts, after=_texts)
def test_a_diff_over_what_was_seen_is_what_is_there(before: str, after: str) -> None:
    hunks = unified(before, after)
    assert applied(before, hunks) == after if hunks else before == after


def test_large_changes_are_not_shown_but_said() -> None:
    many = FileChange("big.py", "a\n" * 1_000, "b\n" * 1_000)
    lost = FileChange("unknown.py", None, "b\n")
    binary = FileChange("now.bin", "a\n", None)
    for told in tell([many, lost, binary]):
        assert not told.known
        assert "read it again" in told.notice
        assert len(told.notice) < 120
    assert "in 2000 lines" in tell([many])[0].notice


def test_all_diffs_of_a_turn_have_one_budget() -> None:
    changes = [FileChange(f"{n}.py", "a\n", "".join(f"line {k} of {n}\n" for k in range(120))) for n in range(20)]
    told = tell(changes)
    assert told[0].known
    assert not told[-1].known
    assert sum(len(one.notice) for one in told) < 24_000


class Seen:
    """A folder whose files a model has seen."""

    def __init__(self, root: Path, secrets: dict[str, str] | None = None) -> None:
        self.root = root / "work"
        self.root.mkdir()
        self.context = ToolContext(self.root, root / "spill", {})
        self.versions = Versions(root / "versions")
        self.repository = Repository(self.context, self.versions, Redactor(secrets or {}))
        self.told: str | None = None

    def see(self, name: str) -> None:
        path = self.root / name
        self.context.seen[path] = load(path, name).digest
        self.repository.keep({path: self.context.seen[path]})

    def news(self) -> News:
        """What a turn tells now; it is told."""
        now = keep_listing(list_files(self.root, {}).paths, self.versions)
        news = self.repository.news(self.told, now)
        self.repository.settle(news)
        self.told = now
        return news


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def test_each_change_is_told_once(seen: Seen) -> None:
    path = seen.root / "a.py"
    path.write_text("one\ntwo\n")
    seen.see("a.py")
    assert seen.news().notices == []
    path.write_text("one\n2\n")
    (notice,) = seen.news().notices
    assert notice == "a.py has changed since you saw it, and not by you:\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert seen.news().notices == []
    path.write_text("one\ntwo\n")
    assert "+two" in seen.news().notices[0], "a change back is a change"


def test_a_file_is_known_by_content_and_not_by_its_time(seen: Seen) -> None:
    """Field report 156: the same size and time of change, another content."""
    import os

    path = seen.root / "a.py"
    path.write_text("one\n")
    seen.see("a.py")
    seen.news()
    stat = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "+two" in seen.news().notices[0]
    os.utime(path)
    assert seen.news().notices == [], "another time, the same content"


def test_what_came_went_and_moved(seen: Seen) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (seen.root / name).write_text(f"{name}\n")
        seen.see(name)
    assert seen.news().notices == []
    (seen.root / "sub").mkdir()
    (seen.root / "a.py").rename(seen.root / "sub/moved.py")
    (seen.root / "b.py").unlink()
    (seen.root / "new.py").write_text("n\n")
    assert seen.news().notices == [
        "a.py is now called sub/moved.py; its content is the same.",
        "b.py is gone.",
        "New files (1):\nnew.py",
    ]
    assert seen.news().notices == []
    (seen.root / "sub/moved.py").write_text("changed\n")
    assert seen.news().notices[0].startswith("sub/moved.py has changed")


def test_files_that_nobody_has_seen_are_told_by_name_alone(seen: Seen) -> None:
    (seen.root / "old.py").write_text("x")
    seen.news()
    (seen.root / "old.py").write_text("y")
    for number in range(3_000):
        (seen.root / f"made{number}.txt").write_text("z")
    (notice,) = seen.news().notices
    assert notice.startswith("New files (3,000):")
    assert len(notice) < 2_000


def test_line_ends_alone_are_no_diff(seen: Seen) -> None:
    path = seen.root / "a.py"
    path.write_bytes(b"one\ntwo\n")
    seen.see("a.py")
    path.write_bytes(b"one\r\ntwo\r\n")
    assert seen.news().notices == ["a.py has changed since you saw it, but in nothing that is shown to you."]


def test_a_file_whose_change_is_too_large_to_tell_is_not_overwritten_unread(seen: Seen) -> None:
    path = seen.root / "a.py"
    path.write_text("a\n" * 1_000)
    seen.see("a.py")
    path.write_text("b\n" * 1_000)
    assert "read it again" in seen.news().notices[0]
    assert path not in seen.context.seen, "writing it is refused until it has been read"
    assert seen.news().notices == []


def test_secrets_are_neither_kept_nor_told(tmp_path: Path) -> None:
    seen = Seen(tmp_path, {"SHOP_TOKEN": "hunter2hunter2"})
    path = seen.root / "a.env"
    path.write_text("token = hunter2hunter2\nport = 1\n")
    seen.see("a.env")
    path.write_text("token = hunter2hunter2\nport = 2\n")
    (notice,) = seen.news().notices
    assert "hunter2" not in notice
    assert "+port = 2" in notice
    kept = [file for file in (tmp_path / "versions").rglob("*") if file.is_file()]
    assert kept
    assert all("hunter2" not in (seen.versions.find(file.parent.name + file.name) or "") for file in kept)


def test_odd_files_do_no_harm(seen: Seen) -> None:
    import os

    for name in ("a", "b", "c", "d"):
        (seen.root / name).write_text("text\n")
        seen.see(name)
    (seen.root / "a").write_bytes(b"\0\1binary")
    (seen.root / "b").unlink()
    os.mkfifo(seen.root / "b")
    (seen.root / "c").unlink()
    (seen.root / "c").symlink_to("c")
    (seen.root / "d").unlink()
    (seen.root / "d").mkdir()
    notices = seen.news().notices
    assert len(notices) == 4
    assert all("read it again" in notice or "gone" in notice for notice in notices)
    assert seen.news().notices == []


def test_a_gigabyte_is_not_read(seen: Seen) -> None:
    path = seen.root / "big"
    path.write_text("small\n")
    seen.see("big")
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    assert "read it again" in seen.news().notices[0]


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.lists(st.tuples(st.integers(0, 3), st.none() | _texts), max_size=4), min_size=1, max_size=8))
def test_the_notices_over_the_snapshot_are_the_files_on_disk(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[tuple[int, str | None]]]
) -> None:
    """Whatever is written, deleted and made again between turns: who applies the notices has what is there."""
    seen = Seen(tmp_path_factory.mktemp("repo"))
    mind: dict[str, str] = {}  # what the model takes each file to be
    for number in range(3):
        (seen.root / f"{number}.txt").write_text("a\nb\n", newline="")
        seen.see(f"{number}.txt")
        mind[f"{number}.txt"] = "a\nb\n"
    seen.news()
    for step in steps:
        for number, text in step:
            path = seen.root / f"{number}.txt"
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(text, newline="")
        for notice in seen.news().notices:
            name, _, rest = notice.partition(" ")
            if rest.startswith("is now called "):
                mind[rest.removeprefix("is now called ").partition(";")[0]] = mind.pop(name)
            elif rest.startswith("has changed since you saw it, and not by you:\n"):
                mind[name] = applied(mind[name], rest.partition("\n")[2] + "\n")
            elif rest.startswith(("is gone", "has changed")) and "in nothing that is shown" not in rest:
                mind.pop(name)
        for name, text in mind.items():
            assert (seen.root / name).read_bytes().decode().replace("\r\n", "\n") == text.replace("\r\n", "\n")


def test_a_diff_applies_with_git(tmp_path: Path) -> None:
    """The format is what everybody takes it for."""
    before, after = "a\nb\nc\nd\ne\nf\ng", "a\nB\nc\nd\ne\nf\ng\nh"
    (tmp_path / "f").write_text(before)
    patch = f"--- a/f\n+++ b/f\n{unified(before, after)}"
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    assert (tmp_path / "f").read_text() == after


def test_versions_that_nobody_uses_go_and_all_of_them_have_a_limit(tmp_path: Path) -> None:
    import os

    versions = Versions(tmp_path / "versions")
    for number in range(10):
        versions.keep(f"{number:02}digest", f"text {number}" * 100)
    path = tmp_path / "versions/03/digest"
    now = path.stat().st_mtime
    for number in range(10):
        os.utime(tmp_path / f"versions/{number:02}/digest", (now + number, now + number))
    os.utime(path, (now - 40 * 86_400, now - 40 * 86_400))
    versions.prune(now)
    assert versions.find("03digest") is None
    assert versions.find("00digest") is not None
    versions.keep("00digest", "text 0" * 100)  # in use again
    size = (tmp_path / "versions/05/digest").stat().st_size
    os.utime(tmp_path / "versions/00/digest", (now + 20, now + 20))
    versions.prune(now, most=3 * size)
    left = [number for number in range(10) if versions.find(f"{number:02}digest") is not None]
    assert left == [0, 8, 9]
    Versions(tmp_path / "none").prune(now)


def test_a_link_in_the_place_of_a_file_shows_nothing_of_what_lies_outside(seen: Seen) -> None:
    """Checking out a branch can make such a link; it could lead to any file of the person's."""
    (seen.root / "deep").mkdir()
    outside = seen.root.parent / "key"
    for name in ("a.py", "deep/key"):
        (seen.root / name).write_text("x = 1\n")
        seen.see(name)
    outside.write_text("private\n")
    (seen.root / "a.py").unlink()
    (seen.root / "a.py").symlink_to(outside)
    (seen.root / "deep/key").unlink()
    (seen.root / "deep").rmdir()
    (seen.root / "deep").symlink_to(seen.root.parent)
    notices = seen.news().notices
    assert [notice for notice in notices if "read it again" in notice] == notices[:2]
    assert "private" not in "".join(notices)


def test_in_a_folder_that_was_empty_new_files_are_told_and_so_is_that_all_are_gone(seen: Seen) -> None:
    assert seen.news().notices == []
    (seen.root / "a.py").write_text("x")
    assert seen.news().notices == ["New files (1):\na.py"]
    (seen.root / "a.py").unlink()
    assert seen.news().notices == ["Files that are gone (1):\na.py"]


def test_what_changed_since_the_snapshot_was_taken_is_told(seen: Seen) -> None:
    path = seen.root / "a.py"
    path.write_text("one\n")
    digest = load(path, "a.py").digest
    path.write_text("two\n")
    seen.repository.show_whole({path: digest})
    assert seen.news().notices[0].startswith("a.py has changed since you saw it")
    assert path not in seen.context.seen, "writing it is refused until it has been read"
