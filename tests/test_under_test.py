"""From a test to the code under test, in repositories as people lay them out."""

from pathlib import Path

import pytest

from agent.tools import under_test
from agent.tools.under_test import code_called, definition_at, failing_code, is_test

CODE = """\
import math


class Circle:
    def area(self, radius):
        return math.pi * radius


def half(number):
    return number / 0
"""
TEST = """\
from shapes import half
from shapes.flat import Circle


def test_half():
    number = 4
    assert half(number) == 2


def test_area():
    assert Circle().area(1) == 3
"""


FILES = {
    "src/shapes/__init__.py": "from .flat import half\n",
    "src/shapes/flat.py": CODE,
    "tests/test_shapes.py": TEST,
    "web/src/format.js": "export const format = (x) => x;\n",
    "web/test/format.test.js": 'import { format } from "../src/format.js";\nimport fs from "fs";\n',
}
PATHS = tuple(FILES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "path", ["test_a.py", "a_test.go", "web/format.test.js", "lib/a.spec.ts", "tests/support.py", "src/__tests__/x.js"]
)
def test_tests_are_told_by_name_or_folder(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize("path", ["contest.py", "latest.js", "src/attest/a.py", "testing.md"])
def test_other_files_are_no_tests(path: str) -> None:
    assert not is_test(path)


def test_the_tested_files_are_found_through_src_and_reexports(root: Path) -> None:
    assert under_test.tested_files(root, PATHS, "tests/test_shapes.py") == ["src/shapes/flat.py"]


def test_relative_imports_of_scripts_are_followed_and_packages_are_not(root: Path) -> None:
    assert under_test.tested_files(root, PATHS, "web/test/format.test.js") == ["web/src/format.js"]


def test_a_failing_assertion_leads_to_the_function_that_it_calls(root: Path) -> None:
    (found,) = failing_code(root, PATHS, "E   assert 3 == 2\ntests/test_shapes.py:7: AssertionError\n", most=2)
    assert (found.path, found.first, found.last) == ("src/shapes/flat.py", 9, 10)
    assert found.text == "def half(number):\n    return number / 0"


@pytest.mark.parametrize(
    "output", ["src/shapes/flat.py:10: ZeroDivisionError\n", '  File "src/shapes/flat.py", line 10, in half\n']
)
def test_an_exception_in_the_code_leads_to_the_function_around_it(root: Path, output: str) -> None:
    (found,) = failing_code(root, PATHS, output, most=2)
    assert (found.path, found.first) == ("src/shapes/flat.py", 9)


def test_frames_outside_the_repository_lead_nowhere(root: Path) -> None:
    assert failing_code(root, PATHS, "/usr/lib/python3/ast.py:50: SyntaxError\n../other.py:1: Error\n", most=2) == []


def test_what_does_not_parse_is_passed_over(root: Path) -> None:
    (root / "src/shapes/flat.py").write_text("def half(:\n")
    assert failing_code(root, PATHS, "tests/test_shapes.py:7: AssertionError\n", most=2) == []


def test_a_test_leads_to_all_that_it_calls(root: Path) -> None:
    assert [source.text.partition("\n")[0] for source in code_called(root, PATHS, "tests/test_shapes.py", 10)] == [
        "class Circle:"
    ]


def test_a_definition_is_found_by_its_line(root: Path) -> None:
    found = definition_at(root, "src/shapes/flat.py", 4)
    assert found is not None
    assert (found.first, found.last) == (4, 6)
    assert definition_at(root, "src/shapes/flat.py", 5) is not None
    assert definition_at(root, "src/shapes/flat.py", 1) is None
