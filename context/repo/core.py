"""The core files of a repository, in full or as outlines, within a budget: the part of the PROJECT layer that is read.

Deterministic: equal content, listing and commits give equal text, with or without the cache.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from context.canonical import digest
from context.layers.project import Core, CoreFile
from context.repo.outline import Outline, language_of
from context.repo.rank import Ranked, is_telling, mentions, named_in, rank

_MOST_PARSED: Final = 500  # source files; in larger repositories nobody is asked who mentions whom
_LARGEST: Final = 256 << 10  # bytes of a file that is looked into
_FULL: Final = 6  # a source file stands in full when it takes at most this part of the budget
_ANY: Final = 3  # nothing takes a larger part of it
_BYTES_A_TOKEN: Final = 3
_LEAST: Final = 40  # tokens; with less left nothing more is tried
_MOST_HEADINGS: Final = 30
_HEADING: Final = re.compile(r"#{1,4} \S")


class Outlines(Protocol):
    """Makes outlines, and has those that have been made before, by content: that saves work, and changes nothing."""

    def digest(self, path: Path, signature: Sequence[int]) -> str | None:
        """The digest that the file at `path` had in this state."""
        ...

    def note(self, path: Path, signature: Sequence[int], digest: str) -> None: ...

    def find(self, digest: str) -> tuple[bool, Outline | None]:
        """Whether it is known, and the outline (None: there is none to be made)."""
        ...

    def keep(self, digest: str, outline: Outline | None) -> None: ...

    def make(self, name: str, data: bytes) -> Outline | None:
        """Of the bytes of the file `name`, anew (`context.repo.outline`)."""
        ...

    def remembered(self, key: str, make: Callable[[], str]) -> str:
        """What `make` gives for `key`, which says all that it depends on."""
        ...


def core_files(
    root: Path,
    paths: Sequence[str],
    listed: str,
    budget: int,
    cache: Outlines,
    *,
    rules: str = "",
    pinned: Collection[str] = (),
    recent: Mapping[str, int] | None = None,
) -> Core:
    """Those of `paths` (relative to `root`) that fit `budget` tokens, best first (`context.repo.rank`).

    `listed`: a digest of `paths`. `rules`: the text of the house rules. `recent`: in how many of the last commits each
    file was changed. What cannot be read is left out.
    """
    if budget < _LEAST:
        return Core()
    sources, telling = json.loads(cache.remembered(f"candidates {listed}", lambda: _candidates(paths)))
    mentioned: dict[str, int] = {}
    if sources is not None:
        made = {path: found for path in sources if (found := _outline(root, path, cache)) is not None}
        mentioned = mentions(
            {path: each.defines for path, each in made.items()}, {path: each.mentions for path, each in made.items()}
        )
    named, recent = named_in(rules, paths), recent or {}
    small = sources is not None and _bytes(root, sources) <= _BYTES_A_TOKEN * budget
    given = {*pinned, *named, *mentioned, *recent, *(sources if small else ())}
    candidates = {*telling, *(given.intersection(paths) if given else ())}
    ranked = rank(
        candidates,
        lambda path: language_of(path) is not None,
        pinned=pinned,
        named=named,
        mentioned=mentioned,
        recent=recent,
        small=small,
    )
    return _chosen(root, ranked, budget, cache)


def _bytes(root: Path, paths: Sequence[str]) -> int:
    """What these files take in all; of those that are there."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += os.lstat(root / path).st_size
    return total


def _candidates(paths: Sequence[str]) -> str:
    """As JSON: the source files, null where they are too many, and those whose name alone tells something."""
    sources = [path for path in paths if language_of(path) is not None]
    telling = [path for path in paths if is_telling(path)]
    return json.dumps([sources if len(sources) <= _MOST_PARSED else None, telling])


def _chosen(root: Path, ranked: Sequence[Ranked], budget: int, cache: Outlines) -> Core:
    files: list[CoreFile] = []
    left_out: list[tuple[str, str]] = []
    left = budget
    for file in ranked:
        if left < _LEAST:
            left_out.append((file.path, "no room"))
            continue
        made = _core_file(root, file, budget, left, cache)
        if isinstance(made, CoreFile):
            files.append(made)
            left -= made.tokens
        else:
            left_out.append((file.path, made))
    return Core(tuple(files), tuple(left_out))


def _core_file(root: Path, file: Ranked, budget: int, left: int, cache: Outlines) -> CoreFile | str:
    """The file as it is to stand, or why it does not."""
    data = _read(root, file.path)
    if data is None:
        return "not readable"
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").strip("\n")
    if "\0" in text or not text.strip():
        return "no text"
    source = language_of(file.path.rpartition("/")[2]) is not None
    part = _ANY if not source or file.why == "pinned" else _FULL
    if (whole := _tokens(file.path, text)) <= min(budget // part, left):
        return CoreFile(file.path, file.why, "full", text, whole, digest(data))
    if not source:
        short = _head(text, min(budget // _FULL, left) * 3)
        return CoreFile(file.path, file.why, "head", short, _tokens(file.path, short))
    found = _outline(root, file.path, cache)
    if found is None or not found.text:
        return "too large, and without an outline"
    if (size := _tokens(file.path, found.text)) <= min(budget // _ANY, left):
        return CoreFile(file.path, file.why, "outline", found.text, size)
    return "too large" if size > budget // _ANY else "no room"


def _head(text: str, most: int) -> str:
    """Whole lines from the beginning, about `most` characters of them, and the headings of the rest."""
    lines, room, whole = text.split("\n"), most, 0
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        whole += 1
    headings = [line for line in lines[whole:] if _HEADING.match(line)][:_MOST_HEADINGS]
    return "\n".join([*lines[:whole], f"[cut: {whole} of {len(lines)} lines]", *headings])


def _outline(root: Path, path: str, cache: Outlines) -> Outline | None:
    whole = root / path
    try:
        state = os.lstat(whole)
    except OSError:
        return None
    if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
        return None
    signature = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    name = path.rpartition("/")[2]
    key = cache.digest(whole, signature)
    if key is not None:
        known, found = cache.find(key)
        if known:
            return found
    data = _read(root, path)
    if data is None:
        return None
    key = digest((language_of(name) or "").encode(), data)
    cache.note(whole, signature, key)
    known, found = cache.find(key)
    if not known:
        found = cache.make(name, data)
        cache.keep(key, found)
    return found


def _read(root: Path, path: str) -> bytes | None:
    """The bytes of a regular file below `root`; links are not followed, devices and pipes not opened."""
    whole = root / path
    try:
        state = os.lstat(whole)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            return None
        with open(whole, "rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return None


def _tokens(path: str, text: str) -> int:
    """Generous, as for the tree: a tokenizer takes its time to load."""
    return -(-(len(path) + 20 + len(text.encode(errors="replace"))) // _BYTES_A_TOKEN)
