"""Which files of a repository the model is shown from the start, and in which form."""

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RunAgent

from agent.config import Folders, Settings
from agent.head import make_head
from agent.outline_cache import OutlineCache
from agent.redact import Redactor
from context.layers.project import Core
from context.repo.core import core_files
from context.repo.rank import mentions, named_in, rank
from context.tokens import count_tokens


def write(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return sorted(files)


SHOP = {
    "README.md": "# Shop\n\nSells things.\n",
    "pyproject.toml": '[project]\nname = "shop"\n',
    "shop/__main__.py": "from shop.price import total\n\nprint(total(1, 2))\n",
    "shop/price.py": "def total(price, tax):\n    return price + tax\n",
    "shop/basket.py": "from shop.price import total\n\nclass Basket:\n    def sum(self):\n        return total(1, 2)\n",
    "shop/data.py": "TABLE = 1\n",
    "tests/test_price.py": "from shop.price import total\n",
    "logo.png": "\0PNG",
}


def core(root: Path, budget: int = 4_000, cache: OutlineCache | None = None, **options: object) -> Core:
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return core_files(root, paths, repr(paths), budget, cache or OutlineCache(None), **options)  # type: ignore[arg-type]


def test_the_rank_is_that_of_the_table(tmp_path: Path) -> None:
    write(tmp_path, SHOP)
    chosen = [(file.path, file.form, file.why) for file in core(tmp_path).files]
    assert chosen == [
        ("README.md", "full", "README"),
        ("pyproject.toml", "full", "manifest"),
        ("shop/__main__.py", "full", "entry point"),
        ("shop/price.py", "full", "3 files mention it"),
        ("shop/basket.py", "full", "the repository is small"),
        ("shop/data.py", "full", "the repository is small"),
    ]


def test_only_a_repository_whose_source_fits_the_budget_is_shown_whole(tmp_path: Path) -> None:
    write(tmp_path, {**SHOP, "shop/table.py": "TABLE = 1\n" * 2_000})
    assert not {file.path for file in core(tmp_path).files} & {"shop/basket.py", "shop/data.py", "shop/table.py"}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"pinned": ["shop/data.py"]}, ("shop/data.py", "pinned")),
        ({"rules": "Look at shop/basket.py first."}, ("shop/basket.py", "named in the house rules")),
        ({"recent": {"shop/data.py": 40}}, ("shop/data.py", "in 40 recent commits")),
    ],
)
def test_what_a_person_names_pins_or_works_on_ranks(
    tmp_path: Path, options: dict[str, object], first: tuple[str, str]
) -> None:
    write(tmp_path, SHOP)
    assert first in [(file.path, file.why) for file in core(tmp_path, **options).files]


def test_names_in_rules_are_whole_paths_or_names_that_only_one_file_has() -> None:
    paths = ["a/util.py", "b/util.py", "c/main.py", "Makefile"]
    assert named_in("see util.py, main.py. and ./b/util.py", paths) == {"c/main.py", "b/util.py"}
    assert named_in("run the main", paths) == set()


def test_who_mentions_whom_counts_names_that_one_file_alone_defines() -> None:
    defines = {"a": ["total", "run"], "b": ["run"], "c": []}
    uses = {"a": ["total"], "b": ["total", "run"], "c": ["total", "run"]}
    assert mentions(defines, uses) == {"a": 2}


def test_tests_examples_and_foreign_code_come_last() -> None:
    paths = ["main.py", "vendor/main.py", "examples/main.py", "src/main.py", "x.min.js", "tests/main.py"]
    assert [file.path for file in rank(paths, lambda path: True)] == ["main.py", "src/main.py"]


def test_large_files_stand_as_outlines_and_large_texts_with_their_beginning_and_headings(tmp_path: Path) -> None:
    body = "\n".join(f"def function_{n}(a, b):\n    return a + b + {n}\n" * 1 for n in range(60))
    readme = "# Shop\n\n" + "Words. " * 60 + "\n\n" + "".join(f"## Part {n}\n\n{'text ' * 60}\n\n" for n in range(30))
    write(tmp_path, {"main.py": body + "# filler\n" * 2_000, "README.md": readme, "empty/__main__.py": ""})
    found = {file.path: file for file in core(tmp_path).files}
    assert found["main.py"].form == "outline"
    assert "function_59(a, b)" in found["main.py"].text
    assert "return" not in found["main.py"].text
    assert found["README.md"].form == "head"
    assert found["README.md"].text.startswith("# Shop\n\nWords.")
    assert "[cut: " in found["README.md"].text
    assert "## Part 29" in found["README.md"].text
    assert "empty/__main__.py" not in found


@pytest.mark.parametrize("budget", [0, 60, 400, 1_000, 4_000, 20_000])
def test_the_budget_holds_and_what_does_not_fit_is_told(budget: int) -> None:
    chosen = core(ROOT / "context", budget)
    assert sum(count_tokens(f"{file.path}\n{file.text}") for file in chosen.files) <= budget * 1.1
    if 0 < budget < 20_000:
        assert chosen.left_out
        assert all(why for _, why in chosen.left_out)


def test_a_cache_changes_nothing_and_notices_what_changes(tmp_path: Path) -> None:
    write(tmp_path / "shop", SHOP)
    root = tmp_path / "shop"
    with OutlineCache(tmp_path / "cache.db") as cache:
        first = core(root, cache=cache)
    with OutlineCache(tmp_path / "cache.db") as cache:
        assert core(root, cache=cache) == first == core(root)
    path = root / "shop/price.py"
    state = path.stat()
    path.write_text(path.read_text().replace("total", "TOTAL"))  # the same size
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with OutlineCache(tmp_path / "cache.db") as cache:
        assert core(root, cache=cache) == core(root) != first
    (tmp_path / "cache.db").write_bytes(b"no database" * 1_000)
    with OutlineCache(tmp_path / "cache.db") as cache:
        assert core(root, cache=cache) == core(root)


def test_odd_files_do_no_harm(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "x = 1\n", "cli.py": "def f(): pass\n"})
    (tmp_path / "app.py").symlink_to("/etc/passwd")
    (tmp_path / "index.py").symlink_to("index.py")
    os.mkfifo(tmp_path / "server.py")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "asgi.py"))
    (tmp_path / "lib.py").write_bytes(b"\xff\xfe\0x\0 \0=\0")
    with (tmp_path / "wsgi.py").open("wb") as file:
        file.truncate(1 << 30)
    found = {file.path for file in core(tmp_path, pinned=["gone.py"]).files}
    listening.close()
    assert found == {"main.py", "cli.py"}


def test_names_in_any_encoding_are_shown_and_do_no_harm(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    write(root, {"中文/main.py": "def 計算():\n    pass\n"})
    (root / os.fsdecode(b"caf\xe9")).mkdir()
    (root / os.fsdecode(b"caf\xe9/cli.py")).write_text("def f():\n    pass\n")
    made = []
    for _ in range(2):
        folders, env = Folders.find({"KEEPWARM_HOME": str(tmp_path / "home")}), {**os.environ}
        head = make_head(root, "cloud", Settings(), folders, Redactor({}), (), env, lambda: "2026-12-01")
        made.append(head()[-1])
    assert made[0].digest == made[1].digest
    assert "File 中文/main.py:" in made[0].text
    assert "caf\\xe9/cli.py" in made[0].text
    made[0].text.encode()


def test_equal_repositories_give_equal_bytes(tmp_path: Path, environment: dict[str, str]) -> None:
    """In two processes with different hash seeds, from two copies whose files were made in another order."""
    program = (
        "import sys; from pathlib import Path; from agent.config import Folders, Settings; "
        "from agent.head import make_head; from agent.redact import Redactor; import os; "
        "root = Path(sys.argv[1]); os.chdir(root.parent); "
        "folders = Folders.find(os.environ); "
        "head = make_head(Path(root.name), 'cloud', Settings(), folders, Redactor({}), (), os.environ, lambda: ''); "
        "print([block.digest for block in head()])"
    )
    digests = set()
    for number in range(2):
        root = tmp_path / str(number) / "shop"
        files = list(SHOP.items())
        random.Random(number).shuffle(files)
        write(root, dict(files))
        env = {**environment, "PYTHONHASHSEED": str(number), "KEEPWARM_HOME": str(tmp_path / f"home{number}")}
        env["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, "-c", program, str(root)]
        digests.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1


def test_the_command_says_where_the_tokens_go(run_agent: RunAgent, repository: Path) -> None:
    write(repository, SHOP)
    shown = run_agent("context", "--model", "anthropic/claude-sonnet-5-5")
    assert shown.returncode == 0, shown.stderr
    for said in ("SYSTEM", "PROJECT", "README.md (full)", "tree of files", "entry point", "total", "files_budget"):
        assert said in shown.stdout
    small = run_agent("context", "--model", "local/qwen2.5-coder-1.5b").stdout
    assert "README.md (" not in small, "small models are shown no files"
    missing = run_agent("context", "--file", "nothing.py")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no such file" in missing.stderr
