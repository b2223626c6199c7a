"""Which files a newcomer to a repository reads first. Pure and deterministic.

The rank of a file is the sum of these, and files of equal rank stand in the order of their names:

| what | points |
|---|---|
| pinned by the person | 1,000 |
| README of the root, of a folder | 100, 20 |
| manifest (pyproject.toml, package.json, Cargo.toml, …) of the root, of a folder | 90, 20 |
| named in the house rules | 80 |
| entry point (main, cli, app, index, lib, __main__, …) | 60 |
| other files mention what it defines | 5 for each of them, at most 50 |
| recent commits changed it | 2 for each, at most 30 |
| nothing of that, but the source of the whole repository fits the budget | 1, in whatever folder |
| each folder that it lies in | -5 |
| tests, examples, documentation, generated and foreign code | -60 |
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_README: Final = re.compile(r"readme(\.(md|rst|txt|adoc))?$", re.IGNORECASE)
_MANIFESTS: Final = frozenset(
    """
    pyproject.toml setup.cfg setup.py package.json cargo.toml go.mod pom.xml build.gradle
    build.gradle.kts gemfile composer.json cmakelists.txt makefile justfile deno.json mix.exs
    """.split()  # noqa: SIM905
)
_ENTRY: Final = frozenset(
    """
    main cli app index lib mod __main__ server program manage wsgi asgi
    """.split()  # noqa: SIM905
)
_ASIDE: Final = frozenset(
    """
    test tests testing spec specs __tests__ testdata fixtures example examples sample samples demo demos
    doc docs benchmark benchmarks vendor vendored third_party thirdparty node_modules dist build out
    generated gen migrations locale site-packages
    """.split()  # noqa: SIM905
)
_ASIDE_NAME: Final = re.compile(r"(^test_|_test\.|\.test\.|\.spec\.|\.min\.|_pb2\.|\.generated\.|conftest\.py$)")


@dataclass(frozen=True, slots=True)
class Ranked:
    """`why`: what gave it most of its points."""

    path: str
    points: int
    why: str


def rank(
    paths: Iterable[str],
    is_source: Callable[[str], bool],
    *,
    pinned: Collection[str] = (),
    named: Collection[str] = (),
    mentioned: Mapping[str, int] | None = None,
    recent: Mapping[str, int] | None = None,
    small: bool = False,
) -> list[Ranked]:
    """The files worth reading, best first. `is_source`: whether an outline can be made of a file.

    `named`: in the house rules; `mentioned`: by how many files; `recent`: in how many of the last commits; `small`: all
    source of the repository fits the budget.
    """
    mentioned, recent = mentioned or {}, recent or {}
    found = []
    for path in paths:
        folders = path.lower().split("/")[:-1]
        reasons = dict(_reasons(path, is_source(path), pinned, named, mentioned, recent))
        if not reasons and small and is_source(path):
            reasons = {"the repository is small": 1 + 5 * len(folders)}
        if not reasons:
            continue
        aside = not _ASIDE.isdisjoint(folders) or bool(_ASIDE_NAME.search(path.rpartition("/")[2].lower()))
        points = sum(reasons.values()) - 5 * len(folders) - 60 * aside
        if points > 0:
            found.append(Ranked(path, points, max(reasons, key=lambda why: reasons[why])))
    return sorted(found, key=lambda file: (-file.points, file.path))


def is_telling(path: str) -> bool:
    """Whether its name alone may give a file points."""
    lower = path[path.rfind("/") + 1 :].lower()
    return lower in _MANIFESTS or lower.partition(".")[0] in _ENTRY or lower.startswith("readme")


def _reasons(
    path: str,
    source: bool,
    pinned: Collection[str],
    named: Collection[str],
    mentioned: Mapping[str, int],
    recent: Mapping[str, int],
) -> Iterable[tuple[str, int]]:
    folder, _, name = path.rpartition("/")
    lower = name.lower()
    if path in pinned:
        yield "pinned", 1_000
    if _README.match(lower):
        yield "README", 20 if folder else 100
    if lower in _MANIFESTS:
        yield "manifest", 20 if folder else 90
    if path in named:
        yield "named in the house rules", 80
    if not source:
        return
    if lower.partition(".")[0] in _ENTRY:
        yield "entry point", 60
    if count := mentioned.get(path):
        yield f"{count} files mention it", min(50, 5 * count)
    if count := recent.get(path):
        yield f"in {count} recent commits", min(30, 2 * count)


def named_in(rules: str, paths: Iterable[str]) -> set[str]:
    """Those of `paths` that a text names, by their whole path or by a name that only one of them has."""
    if not rules.strip():
        return set()
    words = set(re.findall(r"[\w./+-]+", rules))
    words |= {word.rstrip(".").removeprefix("./") for word in words}
    names = {word.rpartition("/")[2] for word in words}
    by_name: dict[str, list[str]] = {}
    for path in paths:
        if (name := path[path.rfind("/") + 1 :]) in names:
            by_name.setdefault(name, []).append(path)
    return {
        path
        for name, having in by_name.items()
        for path in having
        if path in words or (name in words and len(having) == 1 and "." in name)
    }


def mentions(defines: Mapping[str, Collection[str]], mentioned: Mapping[str, Collection[str]]) -> dict[str, int]:
    """For each file, how many others use a name that it alone defines."""
    owners: dict[str, str | None] = {}
    for path, names in defines.items():
        for name in names:
            owners[name] = None if name in owners else path
    counts: dict[str, int] = {}
    for path, names in mentioned.items():
        for owner in {owners.get(name) for name in names} - {None, path}:
            assert owner is not None
            counts[owner] = counts.get(owner, 0) + 1
    return counts
