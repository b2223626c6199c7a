"""What the snapshot of a large repository and a change in it cost, against git on the same tree in the same run.

`python benchmarks/snapshot.py [--files N] [--repository FOLDER]`

Makes a repository of N files (100,000 when left out) in folders of 20, or takes the one in FOLDER, which must be a git
repository. Each figure is the best of three, but for the first snapshot, which has no cache to go by.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.config import Folders, Settings
from agent.head import Look, make_head
from agent.redact import Redactor
from agent.repository import Repository
from agent.tools.base import ToolContext
from agent.tools.textfile import load
from agent.versions import Versions
from context.repo.files import is_ignored, unignored_folders
from context.repo.watch import Watch


def make(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"area{number // 2_000}" / f"part{number // 20}"
        if number % 20 == 0:
            folder.mkdir(parents=True)
        (folder / f"file{number}.py").write_text(f"def function_{number}(a):\n    return a + {number}\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "all")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, stdout=subprocess.DEVNULL)


def seconds(work: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def measure(root: Path, home: Path) -> None:
    folders = Folders.find({"KEEPWARM_HOME": str(home)})
    versions, redact, env = Versions(folders.data / "versions"), Redactor({}), dict(os.environ)
    head = make_head(root, "cloud", Settings(), folders, redact, (), env, lambda: "2026-12-01")
    look = Look(root, "auto", False, versions, env, lambda: "2026-12-01")
    listed = ("ls-files", "--cached", "--others", "--exclude-standard")
    first = seconds(head, 1)
    files = len(head.facts().listing.paths)
    print(f"{files:,} files")
    ls_files, status = seconds(lambda: git(root, *listed)), seconds(lambda: git(root, "status", "--porcelain"))
    context = ToolContext(root, home / "spill", env)
    repository = Repository(context, versions, redact)
    path = root / next(name for name in head.facts().listing.paths if name.endswith(".py"))
    context.seen[path] = load(path, path.name).digest
    repository.keep({path: context.seen[path]})
    before = look()

    def change_to_notice() -> None:
        path.write_text(path.read_text() + "# changed\n")
        news = repository.news(before.files, look().files)
        assert len(news.notices) == 1
        repository.settle(news)

    rows = [
        ("git ls-files (tracked and not ignored)", ls_files),
        ("git status", status),
        ("first snapshot", first),
        ("next snapshot", seconds(head)),
        ("one change to its notice", seconds(change_to_notice)),
    ]
    for name, taken in [*rows, *watching(root, look)]:
        print(f"{name:<42}{taken * 1000:>9,.0f} ms{taken / ls_files:>8.2f} x ls-files{taken / status:>8.2f} x status")


def watching(root: Path, look: Look) -> list[tuple[str, float]]:
    """The same with a watcher; prints what it needs."""
    env, before = dict(os.environ), resident()
    watch = Watch(root, lambda: unignored_folders(root, env), lambda folder: is_ignored(root, folder, env), print)
    started = time.perf_counter()
    with watch:
        watch.ready()
        ready = time.perf_counter() - started
        look.watch = watch
        look()
        quiet = seconds(look)
        path = next(root.rglob("*.py"))

        def reported() -> None:
            path.write_text(path.read_text() + "# again\n")
            look()

        told = seconds(reported)
        grown = (resident() - before) / 1e6
        spent = time.process_time()
        time.sleep(5)
        share = (time.process_time() - spent) / 5
        print(f"watcher: {len(watch.watched):,} folders, {grown:.0f} MB more, {share:.2%} of a core when idle")
    return [
        ("watching all folders", ready),
        ("a look while nothing is reported", quiet),
        ("a change reported and looked at", told),
    ]


def resident() -> int:
    """Bytes of memory that the process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--repository", type=Path)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        root = told.repository or Path(folder) / "repository"
        if told.repository is None:
            root.mkdir()
            make(root, told.files)
        measure(root.resolve(), home)


if __name__ == "__main__":
    main()
