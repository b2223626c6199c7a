"""The tasks: a small repository, what a person asks for, and how to see that it was done.

The prompts say what a person would say, no more. `solution` is one right way, for the test of the checks; the agent
never sees it.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local_tasks import checks
from benchmarks.local_tasks.checks import Check, all_of

REPOSITORIES = Path(__file__).parent / "repositories"


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which occurs once in `path`, by `new`. An empty `old` makes a new file."""

    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        file = root / self.path
        if not self.old:
            file.write_text(self.new)
            return
        text = file.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path}: {self.old!r} occurs {text.count(self.old)} times")
        file.write_text(text.replace(self.old, self.new))

    def reversed(self) -> "Edit":
        return Edit(self.path, self.new, self.old)


@dataclass(frozen=True)
class Task:
    """`plant` makes the repository the one of the task. `solution`: edits, or the answer to a question."""

    name: str
    repository: str
    prompt: str
    check: Check
    plant: tuple[Edit, ...] = ()
    solution: tuple[Edit, ...] | str = ()

    def write(self, target: Path) -> None:
        """Write the repository to the new folder `target`."""
        shutil.copytree(REPOSITORIES / self.repository, target)
        for edit in self.plant:
            edit.apply(target)


def bug(name: str, repository: str, prompt: str, planted: Edit, hidden: str = "") -> Task:
    """A planted bug of one line. Solved when the original tests, untouched, and the hidden ones pass."""
    check = all_of(checks.tests_untouched, checks.behaves(hidden))
    return Task(name, repository, prompt, check, (planted,), (planted.reversed(),))


def question(name: str, repository: str, prompt: str, names: tuple[str, ...], right: str) -> Task:
    """A question about the project. Answered when the answer names what it must and no file was changed."""
    return Task(name, repository, prompt, all_of(checks.nothing_changed, checks.answer_names(*names)), (), right)


BUGS = (
    bug(
        "bug-slug",
        "textkit",
        "test_no_hyphen_at_the_ends fails. Please fix it.",
        Edit("src/textkit/slug.py", "plain.lower()).strip(SEPARATOR)", "plain.lower())"),
        'from textkit import slugify\n\n\ndef test_hidden():\n    assert slugify("(a) b?") == "a-b"\n',
    ),
    bug(
        "bug-discount",
        "shop",
        "One of the tests fails. Find the bug and fix it.",
        Edit("shop/discount.py", "if amount >= threshold", "if amount > threshold"),
        "from shop.discount import discount_percent as d\n\n\n"
        "def test_hidden():\n    assert [d(19999), d(20000), d(20001)] == [5, 10, 10]\n",
    ),
    bug(
        "bug-average",
        "tally",
        "The tests in tests/test_report.py fail. Fix the code, please.",
        Edit("tally/report.py", "// len(paid)", "// (len(paid) - 1)"),
        "from tally.ledger import Ledger\nfrom tally.report import average\n\n\n"
        'def test_hidden():\n    ledger = Ledger()\n    ledger.add("a", 700)\n    assert average(ledger) == 700\n',
    ),
    bug(
        "bug-leap-year",
        "textkit",
        "is_leap(2000) returns False, but 2000 was a leap year. Fix it and run the tests.",
        Edit("src/textkit/dates.py", "(year % 100 != 0 or year % 400 == 0)", "year % 100 != 0"),
        "from textkit import is_leap\n\n\n"
        "def test_hidden():\n    leap = [y for y in range(1600, 2401) if is_leap(y)]\n    assert len(leap) == 195\n",
    ),
    bug(
        "bug-wrap",
        "textkit",
        "wrap() breaks lines one character too early: a line may be exactly as long as the width. Fix it.",
        Edit("src/textkit/wrap.py", "len(word) <= width", "len(word) < width"),
        'from textkit import wrap\n\n\ndef test_hidden():\n    assert wrap("a b c", width=3) == ["a b", "c"]\n',
    ),
    bug(
        "bug-crash",
        "tally",
        "`tally largest` crashes with a ValueError when there are no expenses yet. Fix that.",
        Edit("tally/report.py", "expense.cents, default=None)", "expense.cents)"),
        "from tally.cli import main\n\n\ndef test_hidden(tmp_path, capsys):\n"
        '    file = str(tmp_path / "e.json")\n    assert not main(["--file", file, "largest"])\n'
        '    main(["--file", file, "add", "ben", "3", "tea"])\n    main(["--file", file, "add", "ann", "9", "pie"])\n'
        '    capsys.readouterr()\n    main(["--file", file, "largest"])\n'
        '    assert capsys.readouterr().out == "ann: 9.00 EUR pie\\n"\n',
    ),
)

CHANGES = (
    Task(
        "version-one-place",
        "textkit",
        "Bump the version to 1.3.0.",
        all_of(
            checks.toml_value("pyproject.toml", "project.version", "1.3.0"),
            checks.only_changed("pyproject.toml", "CHANGELOG.md", "README.md"),
            checks.tests_pass,
        ),
        solution=(Edit("pyproject.toml", 'version = "1.2.0"', 'version = "1.3.0"'),),
    ),
    Task(
        "version-everywhere",
        "countdown",
        "We release 2.5.0. Set the new version everywhere it is stated.",
        all_of(
            checks.json_value("package.json", "version", "2.5.0"),
            checks.json_value("package.json", "scripts.test", "node --test"),
            checks.file_matches("src/version.js", r'^export const VERSION = "2\.5\.0";$'),
            checks.only_changed("package.json", "src/version.js", "CHANGELOG.md", "README.md"),
        ),
        solution=(
            Edit("package.json", '"version": "2.4.1"', '"version": "2.5.0"'),
            Edit("src/version.js", "2.4.1", "2.5.0"),
        ),
    ),
    Task(
        "rename",
        "shop",
        "Rename the function calc to subtotal, everywhere.",
        all_of(
            checks.nowhere(r"\bcalc\b", "*.py"),
            checks.behaves(adapt=lambda text: re.sub(r"\bcalc\b", "subtotal", text)),
            checks.tests_pass,
        ),
        solution=(
            Edit("shop/cart.py", "def calc(", "def subtotal("),
            Edit("shop/checkout.py", "import calc", "import subtotal"),
            Edit("shop/checkout.py", "= calc(", "= subtotal("),
            Edit("tests/test_cart.py", "Item, calc", "Item, subtotal"),
            Edit("tests/test_cart.py", "calc(cart) == 2100", "subtotal(cart) == 2100"),
            Edit("tests/test_cart.py", "calc(cart) == 200\n", "subtotal(cart) == 200\n"),
            Edit("tests/test_cart.py", "def test_calc", "def test_subtotal"),
        ),
    ),
    Task(
        "default-width",
        "textkit",
        "Change the default line width of wrap from 80 to 100.",
        all_of(
            checks.tests_untouched,
            checks.behaves(
                "from textkit import wrap\n\n\n"
                'def test_hidden():\n    assert [len(line) for line in wrap("aaaa " * 25)] == [99, 24]\n'
                '    assert wrap("a b c", width=3) == ["a b", "c"]\n'
            ),
        ),
        solution=(Edit("src/textkit/wrap.py", "DEFAULT_WIDTH = 80", "DEFAULT_WIDTH = 100"),),
    ),
    Task(
        "readme-command",
        "tally",
        "The README mentions `tally sum`, but the command is called `tally total`. Correct the README.",
        all_of(
            checks.only_changed("README.md"),
            checks.file_matches("README.md", r"\btally sum\b", absent=True),
            checks.file_matches("README.md", r"^    tally total$"),
            checks.file_matches("README.md", r"^    tally settle$"),
        ),
        plant=(Edit("README.md", "    tally total\n", "    tally sum\n"),),
        solution=(Edit("README.md", "    tally sum\n", "    tally total\n"),),
    ),
    Task(
        "add-method",
        "shop",
        "Add a method is_empty() to Cart, and a test for it.",
        all_of(
            checks.behaves(
                "from shop.cart import Cart, Item\n\n\ndef test_hidden():\n    cart = Cart()\n"
                '    assert cart.is_empty()\n    cart.add(Item("pen", 100))\n    assert not cart.is_empty()\n'
            ),
            checks.new_test_mentions("is_empty"),
            checks.tests_pass,
        ),
        solution=(
            Edit(
                "shop/cart.py",
                "\n\ndef calc(",
                "\n    def is_empty(self):\n        return not self.items\n\n\ndef calc(",
            ),
            Edit(
                "tests/test_empty.py",
                "",
                "from shop.cart import Cart\n\n\ndef test_is_empty():\n    assert Cart().is_empty()\n",
            ),
        ),
    ),
    Task(
        "add-function",
        "textkit",
        "Add a function truncate(text, limit) to src/textkit/wrap.py. It returns the text unchanged if it has at most "
        'limit characters, otherwise its beginning followed by "...", limit characters in all. Add a test.',
        all_of(
            checks.behaves(
                "from textkit.wrap import truncate\n\n\ndef test_hidden():\n"
                '    assert truncate("abcdef", 6) == "abcdef"\n    assert truncate("abcdefg", 6) == "abc..."\n'
            ),
            checks.new_test_mentions("truncate"),
            checks.tests_pass,
        ),
        solution=(
            Edit(
                "src/textkit/wrap.py",
                "\n\ndef indent(",
                '\n\ndef truncate(text, limit):\n    return text if len(text) <= limit else text[: limit - 3] + "..."\n'
                "\n\ndef indent(",
            ),
            Edit(
                "tests/test_truncate.py",
                "",
                "from textkit.wrap import truncate\n\n\n"
                'def test_truncate():\n    assert truncate("abcdefg", 6) == "abc..."\n',
            ),
        ),
    ),
)

QUESTIONS = (
    question(
        "question-purpose",
        "tally",
        "What does this project do, and where is its entry point?",
        (r"expense", r"tally[./]cli|cli\.py"),
        "It keeps shared expenses in a JSON file. The entry point is main() in tally/cli.py.",
    ),
    question(
        "question-shipping",
        "shop",
        "From what order value on is shipping free, and where is that set?",
        (r"75[.,]00|7[.,]?500|\b75\b", r"shipping\.py"),
        "From 75.00 on, within Germany: FREE_FROM in shop/shipping.py.",
    ),
    question(
        "question-interval",
        "countdown",
        "How often does the timer tick, and in which file is that set?",
        (r"\b250\b|quarter", r"index\.js"),
        "Every 250 ms (TICK_MS in src/index.js).",
    ),
)

TASKS = (*BUGS, *CHANGES, *QUESTIONS)
