"""Outlines of source files: what stands in them per language, and that no bytes do harm."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context.repo.outline import language_of, outline

ROOT = Path(__file__).parent.parent

SNIPPETS = {
    "a.py": (
        "import os\nLIMIT = 3\nlower = 4\n\n@wraps\nclass Basket(Base):\n"
        "    def add(self, item: str, count=1) -> None:\n"
        "        def inner():\n            pass\n        return os.getcwd()\n\nasync def main():\n    await total()\n",
        ["LIMIT = 3", "class Basket(Base)", "def add(self, item: str, count=1) -> None", "async def main()"],
        ("LIMIT", "Basket", "main"),
        {"os", "Base", "total"},
    ),
    "a.js": (
        "export default class Cart { add(item) { return sum(item); } }\nexport function total(a, b) { return a + b; }\n"
        "const twice = (x) => x * 2;\n",
        ["class Cart", "add(item)", "function total(a, b)", "twice = (x)"],
        ("Cart", "total", "twice"),
        {"sum"},
    ),
    "a.tsx": (
        "export interface Props { name: string }\nexport const View = (props: Props) => <b>{show(props.name)}</b>;\n"
        "type Id = string;\nenum Kind { A, B }\n",
        ["interface Props", "View = (props: Props)", "type Id = string", "enum Kind"],
        ("Props", "View", "Id", "Kind"),
        {"show"},
    ),
    "a.go": (
        "package shop\n\ntype Cart struct { n int }\n\nfunc (c *Cart) Add(item string) error { return check(item) }\n"
        "func Total(a, b int) int { return a + b }\n",
        ["type Cart struct", "func (c *Cart) Add(item string) error", "func Total(a, b int) int"],
        ("Cart", "Total"),
        {"check"},
    ),
    "a.rs": (
        "pub struct Cart { n: u32 }\nimpl Cart {\n    pub fn add(&mut self, item: &str) -> bool { check(item) }\n}\n"
        "pub fn total(a: u32) -> u32 { a }\npub trait Shop { fn open(&self); }\n",
        ["pub struct Cart", "impl Cart", "pub fn add(&mut self, item: &str) -> bool", "pub fn total(a: u32) -> u32"],
        ("Cart", "total", "Shop"),
        {"check"},
    ),
    "A.java": (
        "package shop;\npublic class Cart extends Base {\n  private int n;\n"
        "  public int add(String item) { return check(item); }\n}\n",
        ["public class Cart extends Base", "public int add(String item)"],
        ("Cart",),
        {"check", "Base"},
    ),
    "a.c": (
        "#define LIMIT 3\nstruct cart { int n; };\nint total(int a, int b)\n{\n  return check(a);\n}\n",
        ["struct cart", "int total(int a, int b)"],
        ("cart", "total"),
        {"check"},
    ),
    "a.hpp": (
        "namespace shop {\nclass Cart {\n public:\n  int add(int item);\n};\n"
        "int total(int a) { return check(a); }\n}\n",
        ["class Cart", "int add(int item)", "int total(int a)"],
        ("Cart", "total"),
        {"check"},
    ),
    "a.rb": (
        "module Shop\n  class Cart < Base\n    def add(item)\n      check(item)\n    end\n  end\nend\n",
        ["module Shop", "class Cart < Base", "def add(item)"],
        (),
        {"Base"},
    ),
    "A.cs": (
        "namespace Shop {\n  public class Cart : Base {\n"
        "    public int Add(string item) { return Check(item); }\n  }\n}\n",
        ["public class Cart : Base", "public int Add(string item)"],
        ("Cart",),
        {"Check"},
    ),
    "a.php": (
        "<?php\nclass Cart extends Base {\n  public function add(string $item): int { return check($item); }\n}\n"
        "function total($a) { return $a; }\n",
        ["class Cart extends Base", "public function add(string $item): int", "function total($a)"],
        ("Cart", "total"),
        {"check"},
    ),
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_definitions_stand_with_their_lines_and_without_their_bodies(name: str) -> None:
    source, signatures, defines, mentions = SNIPPETS[name]
    found = outline(name, source.encode())
    assert found is not None
    for signature in signatures:
        line = next(line for line in found.text.split("\n") if signature in line)
        number = int(line.partition(":")[0])
        assert signature.split("(")[0].split()[-1].strip("{*") in "\n".join(source.split("\n")[number - 1 : number + 1])
    assert "return" not in found.text
    assert set(defines) <= set(found.defines)
    assert mentions <= found.mentions
    assert outline(name, b"\xef\xbb\xbf" + source.replace("\n", "\r\n").encode()) == found, "line ends do not show"


@pytest.mark.parametrize("name", ["a.txt", "README", "a.lock", ".py.swp", "a"])
def test_what_has_no_grammar_has_no_outline(name: str) -> None:
    assert language_of(name) is None
    assert outline(name, b"def f(): pass\n") is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100,
        b"x=1;" * 220_000,
        b"(" * 100_000,
        b"if x:\n" + b"".join(b" " * n + b"if x:\n" for n in range(1, 700)),
        b"[" * 10_000 + b"]" * 10_000,
        b"\xff\xfe" + "def f(): pass\n".encode("utf-16-le"),
        b"def f(:\n" * 5_000,
    ],
)
@pytest.mark.parametrize("name", ["a.py", "a.js", "a.cpp"])
def test_odd_sources_end_in_time(name: str, data: bytes) -> None:
    found = outline(name, data)
    assert found is None or len(found.text) < 2_000_000


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(SNIPPETS)),
    data=st.binary(max_size=400) | st.text(alphabet="(){}[]<>:;=,.\n\"'/*#@ abcdef", max_size=400).map(str.encode),
)
def test_no_bytes_do_harm(name: str, data: bytes) -> None:
    assert outline(name, data) == outline(name, data)


_TAKEN = """
import resource, sys
from context.repo.outline import outline
data = b"\\n".join([b"&/*" * 300] * 66)
assert outline("a.tsx", b"const a = 1\\n") is not None
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert outline("a.tsx", data) is None
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_what_is_no_code_is_given_up_before_it_takes_much_memory() -> None:
    """60 kB of it took 465 MB, 256 kB of it more than a minute."""
    told = subprocess.run([sys.executable, "-c", _TAKEN], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert int(told) < 250_000, "kB"
