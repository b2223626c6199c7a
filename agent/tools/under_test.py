"""From a test to the code under test: which files of the repository it imports, and the functions behind a failure.

Python is parsed; in JavaScript and TypeScript relative imports are found by pattern. Everything is a guess that helps a
model to look in the right place; what cannot be resolved is left out. `root` is the repository, `paths` are its files,
relative to it.
"""

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_TEST_FOLDERS: Final = frozenset({"test", "tests", "__tests__", "spec", "specs"})
_TEST_NAME: Final = re.compile(r"(?:test_.*|.*_test|.*[.\-_]spec|.*\.test|tests?)\.\w+", re.IGNORECASE)
# A frame of pytest (`tests/test_a.py:14: AssertionError`) or of the interpreter.
_FRAME: Final = re.compile(r'^(?:(\S[^:\n]*\.py):(\d+): |\s+File "([^"\n]+\.py)", line (\d+))', re.MULTILINE)
_RELATIVE_IMPORT: Final = re.compile(r"""\b(?:from|import|require)\b\s*\(?\s*["'](\.{1,2}/[^"'\n]+)["']""")
_SCRIPT_ENDS: Final = ("", ".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", "/index.js", "/index.ts")
_MOST_HOPS: Final = 3  # of a name that one module imports from another
_LARGEST: Final = 500_000  # bytes of a file that is looked into

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Source:
    """A definition: `path` relative to the root, lines `first` to `last` from 1, and its text."""

    path: str
    first: int
    last: int
    text: str


def is_test(path: str) -> bool:
    """Whether `path`, relative to the root, is a test by its name or folder."""
    pure = PurePosixPath(path)
    return _TEST_NAME.fullmatch(pure.name) is not None or not _TEST_FOLDERS.isdisjoint(pure.parts[:-1])


def tested_files(root: Path, paths: Sequence[str], test: str) -> list[str]:
    """The files of the repository that the test imports, as paths relative to `root`; no tests among them."""
    text = _text(root / test)
    if text is None:
        return []
    if test.endswith(".py"):
        repository = _Repository(root, paths)
        found = [source.path for name in _imported(text) if (source := repository.find(*name)) is not None]
    else:
        found = list(_scripts(test, text, frozenset(paths)))
    return [path for path in dict.fromkeys(found) if not is_test(path)]


def failing_code(root: Path, paths: Sequence[str], output: str, most: int) -> list[Source]:
    """The definitions that the failures in a test run's `output` lead to, at most `most`.

    A frame in the code itself leads to the function around it, a frame in a test to what the failing statement calls.
    """
    repository = _Repository(root, paths)
    found: dict[tuple[str, int], Source] = {}
    for path, line in _frames(root, output):
        for source in repository.called_at(path, line) if is_test(path) else repository.around(path, line):
            if not is_test(source.path):
                found.setdefault((source.path, source.first), source)
    return list(found.values())[:most]


def code_called(root: Path, paths: Sequence[str], test: str, line: int) -> list[Source]:
    """What the test that begins at `line` calls, as far as it imports it from the repository's code."""
    repository = _Repository(root, paths)
    return list(dict.fromkeys(source for source in repository.called_at(test, line) if not is_test(source.path)))


def definition_at(root: Path, path: str, line: int) -> Source | None:
    """The Python function or class that begins at `line`."""
    text = _text(root / path) if path.endswith(".py") else None
    tree = None if text is None else _parse(text)
    if text is None or tree is None:
        return None
    nodes = (node for node in ast.walk(tree) if isinstance(node, _Definition) and node.lineno == line)
    return next((_source(path, text, node) for node in nodes), None)


def _frames(root: Path, output: str) -> Iterator[tuple[str, int]]:
    for match in _FRAME.finditer(output):
        path, line = (match[1], match[2]) if match[1] else (match[3], match[4])
        full = Path(os.path.normpath(root / path))
        if full.is_relative_to(root) and os.path.isfile(full):
            yield full.relative_to(root).as_posix(), int(line)


def _scripts(test: str, text: str, paths: frozenset[str]) -> Iterator[str]:
    for match in _RELATIVE_IMPORT.finditer(text):
        base = os.path.normpath(os.path.join(os.path.dirname(test), match[1]))
        yield from [base + end for end in _SCRIPT_ENDS if base + end in paths][:1]


class _Repository:
    """Python modules and definitions of one repository, by the paths of its files."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root = root
        self._paths = [path for path in paths if path.endswith(".py")]

    def find(self, module: str, name: str | None, hops: int = _MOST_HOPS) -> Source | None:
        """The definition of `name` in `module`, or the module itself where there is no such definition."""
        if name is not None and (path := self._file(f"{module}.{name}")) is not None:
            return Source(path, 1, 1, "")
        path = self._file(module)
        text = None if path is None else _text(self._root / path)
        if path is None or text is None:
            return None
        tree = _parse(text)
        for node in [] if tree is None or name is None else tree.body:
            if isinstance(node, _Definition) and node.name == name:
                return _source(path, text, node)
            if hops and isinstance(node, ast.ImportFrom) and any(name in (a.asname, a.name) for a in node.names):
                original = next(a.name for a in node.names if name in (a.asname, a.name))
                return self.find(_absolute(node, module, path), original, hops - 1)
        return Source(path, 1, 1, "")

    def called_at(self, path: str, line: int) -> Iterator[Source]:
        """What the statement at `line` of a test calls, as far as the test imports it."""
        text = _text(self._root / path)
        tree = None if text is None else _parse(text)
        if text is None or tree is None:
            return
        known = {alias: (module, name) for module, name, alias in _aliases(tree)}
        statement = _statement_at(tree, line)
        for node in [] if statement is None else ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Name(id=called) if called in known:
                    target = known[called]
                case ast.Attribute(value=ast.Name(id=owner), attr=called) if owner in known:
                    module, name = known[owner]
                    target = (module if name is None else f"{module}.{name}", called)
                case _:
                    continue
            source = self.find(*target)
            if source is not None and source.text:
                yield source

    def around(self, path: str, line: int) -> Iterator[Source]:
        """The innermost function at `line`."""
        text = _text(self._root / path)
        tree = None if text is None else _parse(text)
        if text is None or tree is None:
            return
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        holding = [node for node in nodes if node.lineno <= line <= (node.end_lineno or node.lineno)]
        if holding:
            yield _source(path, text, max(holding, key=lambda node: node.lineno))

    def _file(self, module: str) -> str | None:
        """The file of a module: the one with the shortest path, because a package may lie in `src/` or the like."""
        base = module.replace(".", "/")
        ends = (f"{base}.py", f"{base}/__init__.py")
        fitting = [path for path in self._paths if path in ends or path.endswith(tuple("/" + end for end in ends))]
        return min(fitting, key=lambda path: (path.count("/"), path), default=None)


def _imported(text: str) -> list[tuple[str, str | None]]:
    tree = _parse(text)
    return [] if tree is None else [(module, name) for module, name, _ in _aliases(tree)]


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str | None, str]]:
    """Module, name in it (None for the module itself), and the name that it goes by here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name, alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None, alias.asname or alias.name) for alias in node.names)


def _absolute(node: ast.ImportFrom, module: str, path: str) -> str:
    """The module that an import names, with leading dots resolved from `module` in the file `path`."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    up = node.level - 1 if path.endswith("/__init__.py") else node.level
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


def _statement_at(tree: ast.Module, line: int) -> ast.stmt | None:
    """The smallest statement that covers `line`."""
    covering = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(covering, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)


def _source(path: str, text: str, node: _Definition) -> Source:
    last = node.end_lineno or node.lineno
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return Source(path, first, last, "\n".join(text.split("\n")[first - 1 : last]))


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
