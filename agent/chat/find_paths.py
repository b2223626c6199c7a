"""Finding a file by a part of its name among very many. Pure, and quick enough to run with each key.

The names lie in one text, the shortest paths first, so that a plain text search finds the best ones and may stop early.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_CHUNK: Final = 4_096  # names looked at between two questions whether to stop


class _Lines:
    """Names without line ends, searched as one text."""

    def __init__(self, names: Sequence[str]) -> None:
        self._text: Final = "\n" + "\n".join(names) + "\n"
        self._starts: Final = list(itertools.accumulate((len(name) + 1 for name in names), initial=1))

    def beginning_with(self, part: str) -> Iterator[int]:
        return self._numbers(f"\n{part}", 1)

    def with_in_it(self, part: str) -> Iterator[int]:
        return self._numbers(part, 0)

    def _numbers(self, part: str, ahead: int) -> Iterator[int]:
        place = self._text.find(part)
        while place >= 0:
            number = bisect.bisect_right(self._starts, place + ahead) - 1
            yield number
            place = self._text.find(part, self._starts[number + 1] - 1)


class PathFinder:
    """Of `paths`, relative, with `/`."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths: Final = sorted((path for path in paths if "\n" not in path), key=len)
        self._folded: Final = [path.lower() for path in self._paths]
        self._whole: Final = _Lines(self._folded)
        self._last_parts: Final = _Lines([path.rstrip("/").rpartition("/")[2] for path in self._folded])

    def find(self, wanted: str, most: int, stop: Callable[[], bool] = lambda: False) -> list[str]:
        """At most `most` paths, the best first: whose last part begins with `wanted`, then with it in the last part,
        then anywhere, then with its characters in this order. Upper and lower case are the same.

        `stop` is asked now and then; when it says so, what was found by then is returned.
        """
        part = wanted.lower().replace("\n", "")
        if not part:
            return self._paths[:most]
        ranked = itertools.chain(
            self._last_parts.beginning_with(part),
            self._last_parts.with_in_it(part),
            self._whole.with_in_it(part),
            self._in_order(part, stop),
        )
        found: dict[int, None] = {}
        for number in ranked:
            found.setdefault(number)
            if len(found) >= most:
                break
        return [self._paths[number] for number in found]

    def _in_order(self, part: str, stop: Callable[[], bool]) -> Iterator[int]:
        """Possessive, so that a name that does not match costs one look at each of its characters."""
        match = re.compile("".join(f"[^{re.escape(char)}]*+{re.escape(char)}" for char in part), re.DOTALL).match
        for start in range(0, len(self._folded), _CHUNK):
            if stop():
                return
            names = self._folded[start : start + _CHUNK]
            yield from [number for number, name in enumerate(names, start) if match(name)]
