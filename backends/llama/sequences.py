"""What each sequence of a context holds, and which cells of the KV cache sequences share. Pure.

Sixteen token lists are compared with a prompt in less time than a tree of them takes to be kept up; the cells are
counted as they are, because two sequences can hold equal tokens in cells of their own.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(slots=True)
class Held:
    """Of one sequence: its tokens, the cell of each, how many from the start a cold run would have evaluated in the
    same batches (`cold`), how many of them can be had back from disk (`saved`), from which position on a sliding window
    finds everything (`complete_from`), and when it was last used (`used`). `snapshot`: it stays as it is, and others go
    on from it.
    """

    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    cells: "array[int]" = field(default_factory=lambda: array("i"))
    cold: int = 0
    saved: int = 0
    complete_from: int = 0
    used: int = 0
    snapshot: bool = False


Cost = Callable[[Held, int], float]
"""Seconds to rebuild a sequence's last tokens, of which there are so many."""


class Sequences:
    """At most `most` sequences in `cells` cells."""

    def __init__(self, most: int, cells: int) -> None:
        import numpy as np

        self._most = most
        self._held: dict[int, Held] = {}
        self._sharers: npt.NDArray[np.int32] = np.zeros(cells, dtype=np.int32)  # of each cell
        self._free = array("i", range(cells - 1, -1, -1))
        self._turn = 0

    def __getitem__(self, sequence: int) -> Held:
        return self._held[sequence]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._held))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def free_cells(self) -> int:
        return len(self._free)

    @property
    def free_sequence(self) -> int | None:
        return next((number for number in range(self._most) if number not in self._held), None)

    def best(self, tokens: "array[int]", usable: Callable[[int, int], int]) -> tuple[int | None, int]:
        """The sequence that has most in common with the beginning of `tokens`, and how much. `usable` says how much of
        that is of use. Of equals the one that has least besides.
        """
        found: tuple[int | None, int] = (None, 0)
        least = 0
        for number, held in self._held.items():
            length = usable(number, common_prefix(tokens, held.tokens))
            besides = len(held.tokens) - length
            if length > found[1] or (length == found[1] and length and besides < least):
                found, least = (number, length), besides
        return found

    def begin(self, sequence: int) -> Held:
        """An empty one under a number that is free."""
        assert sequence not in self._held
        held = self._held[sequence] = Held()
        self.touch(sequence)
        return held

    def touch(self, sequence: int) -> None:
        self._turn += 1
        self._held[sequence].used = self._turn

    def extend(self, sequence: int, tokens: "array[int]") -> None:
        """Cells must be free."""
        held = self._held[sequence]
        cells = self._free[len(self._free) - len(tokens) :]
        assert len(cells) == len(tokens), "no free cells"
        del self._free[len(self._free) - len(tokens) :]
        self._count(cells, 1)
        held.tokens.extend(tokens)
        held.cells.extend(cells)

    def share(self, source: int, target: int, length: int) -> None:
        """`target`, which is empty, begins with the same `length` tokens in the same cells."""
        mine, its = self._held[source], self._held[target]
        its.tokens, its.cells = mine.tokens[:length], mine.cells[:length]
        its.cold, its.saved = min(mine.cold, length), min(mine.saved, length)
        its.complete_from = min(mine.complete_from, length)
        self._count(its.cells, 1)

    def cut(self, sequence: int, length: int) -> None:
        held = self._held[sequence]
        gone = held.cells[length:]
        del held.tokens[length:], held.cells[length:]
        held.cold, held.saved = min(held.cold, length), min(held.saved, length)
        held.complete_from = min(held.complete_from, length)
        self._count(gone, -1)

    def drop(self, sequence: int) -> None:
        self.cut(sequence, 0)
        del self._held[sequence]

    def victim(self, cost: Cost, keep: int | None = None) -> int | None:
        """The sequence that costs least to rebuild for how long it has not been used; not `keep`."""
        others = [number for number in self._held if number != keep]

        def worth(number: int) -> float:
            held = self._held[number]
            return cost(held, self._own(held)) / (self._turn - held.used + 1)

        return min(others, key=worth, default=None)

    def _own(self, held: Held) -> int:
        """Cells that nobody else has."""
        import numpy as np

        return int((self._sharers[np.frombuffer(held.cells, dtype=np.int32)] == 1).sum()) if held.cells else 0

    def _count(self, cells: "array[int]", change: int) -> None:
        import numpy as np

        if not cells:
            return
        places = np.frombuffer(cells, dtype=np.int32)
        self._sharers[places] += change  # no cell stands twice in one sequence
        if change < 0:
            self._free.frombytes(places[self._sharers[places] == 0].tobytes())


def common_prefix(one: "array[int]", other: "array[int]") -> int:
    """How many leading tokens both share."""
    import numpy as np

    length = min(len(one), len(other))
    if not length:
        return 0
    differs = np.frombuffer(one, dtype=np.int32, count=length) != np.frombuffer(other, dtype=np.int32, count=length)
    first = int(differs.argmax())
    return first if differs[first] else length
