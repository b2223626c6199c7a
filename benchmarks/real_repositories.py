"""Snapshots of real source packages from the package registries: no crash, within budget, equal bytes everywhere.

`python benchmarks/real_repositories.py [FOLDER …]`

Without folders it fetches source distributions by pip and packages by npm (where there is one). Each is read in two
processes with different hash seeds, from two copies whose files were made in another order, without and with git; each
copy gets files with CJK and latin-1 names besides.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = ("django", "pygments", "pelican", "python-slugify")
PACKAGES = ("typescript", "iconv-lite", "next")
ROOT = Path(__file__).parent.parent
READ = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agent.config import Folders, Settings
from agent.head import make_head
from agent.redact import Redactor
from context.tokens import count_tokens
root = Path(sys.argv[2])
os.chdir(root)
settings, folders = Settings(), Folders.find(os.environ)
head = make_head(Path("."), "cloud", settings, folders, Redactor({}), (), os.environ, lambda: "2026-12-01")
started = time.perf_counter()
project = head()[-1]
taken = time.perf_counter() - started
facts = head.facts()
rules = count_tokens(facts.house_rules or "")
budget = settings.files_budget + settings.tree_budget + rules + 200
print(project.digest, count_tokens(project.text), budget, len(facts.listing.paths), f"{taken:.2f}")
"""


def fetch(folder: Path) -> list[Path]:
    for name in SOURCES:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(folder),
            name,
        ]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    if shutil.which("npm"):
        for name in PACKAGES:
            subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for archive in sorted(folder.glob("*.t*gz")):
        target = folder / archive.name.removesuffix(".tar.gz").removesuffix(".tgz")
        target.mkdir()
        shutil.unpack_archive(archive, target, "gztar", filter="data")
    return sorted(path for path in folder.iterdir() if path.is_dir())


def copy(source: Path, target: Path, seed: int) -> None:
    """The same files, made in another order."""
    files = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    random.Random(seed).shuffle(files)
    for path in files:
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
    for name in (os.fsencode("中文/日記.py"), "ÅÄÖ/prix_€.py".encode(), b"caf\xe9.py"):  # the last one is latin-1
        odd = Path(os.fsdecode(os.path.join(os.fsencode(target), name)))
        odd.parent.mkdir(exist_ok=True)
        odd.write_text("def main():\n    pass\n")


def read(root: Path, home: Path, seed: int) -> list[str]:
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "KEEPWARM_HOME": str(home)}
    command = [sys.executable, "-c", READ, str(ROOT), str(root)]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.split()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "fetched").mkdir()
        folders = [Path(folder).resolve() for folder in sys.argv[1:]] or fetch(work / "fetched")
        print(f"{'repository':<28}{'files':>8}{'tokens':>8}{'budget':>8}{'seconds':>9}  equal")
        for folder in folders:
            for with_git in (False, True):
                found = []
                for seed in (1, 2):
                    root, home = work / f"copy{seed}", work / f"home{seed}"
                    copy(folder, root, seed)
                    if with_git:
                        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
                    found.append(read(root, home, seed))
                    shutil.rmtree(root)
                    shutil.rmtree(home, ignore_errors=True)
                digest, tokens, budget, files, taken = found[0]
                equal, fits = digest == found[1][0], int(tokens) <= int(budget)
                label = f"{folder.name[:22]}{' (git)' if with_git else ''}"
                print(f"{label:<28}{files:>8}{tokens:>8}{budget:>8}{taken:>9}  {'yes' if equal and fits else 'NO'}")


if __name__ == "__main__":
    main()
