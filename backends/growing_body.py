"""A request body that grows with its prompt: JSON arrays kept as joined bytes, cache markers spliced in when it is
taken.

Each block is rendered once in its life, kept in the WireStore, and replayed from there byte for byte (rule R2).
Markers are never part of what is kept. Taking the next body therefore costs O(new blocks) and one copy of the bytes.
What the arrays are called, and how a block looks in them, is each API's own.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backends.base import WireStore
from context.block import Block
from context.breakpoints import Marker
from context.cache_rules import Ttl
from context.prompt import Prompt

MAX_MARKERS: Final = 4


class DamagedWireError(ValueError):
    """A stored wire form is not what the renderer makes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements to append to the array number `section`. `mark`: the offset in `data` at which a marker can stand."""

    section: int
    data: bytes
    mark: int | None


@dataclass(frozen=True, slots=True, order=True)
class _Spot:
    """Where a marker goes: at `offset` of the array `section`."""

    section: int
    offset: int


@dataclass(slots=True)
class GrowingBody:
    """The arrays of the next request to one model. Another conversation only costs a rebuild.

    `sections`: how many arrays there are, in the order in which the provider hashes the prefix. `render` makes a
    block's wire form; `parse` takes one apart again and raises DamagedWireError. `marker`: the bytes of a marker by
    time to live.
    """

    wires: WireStore
    dialect: str
    sections: int
    render: Callable[[Block], bytes]
    parse: Callable[[bytes], Sequence[Piece]]
    marker: Mapping[Ttl, bytes]
    _prompt: Prompt = field(default_factory=Prompt.empty)
    _arrays: list[bytearray] = field(default_factory=list)  # elements, joined
    _spots: list[_Spot | None] = field(default_factory=list)  # by block: where a marker behind it goes

    def __post_init__(self) -> None:
        self._arrays = [bytearray() for _ in range(self.sections)]

    def extend_to(self, prompt: Prompt) -> None:
        """Make this the body of `prompt`. Raises DamagedWireError, and whatever the WireStore raises."""
        if not prompt.extends(self._prompt):
            self._prompt, self._spots = Prompt.empty(), []
            for array in self._arrays:
                array.clear()
        new = [self.parse(self._wire(block)) for block in prompt.since(self._prompt.length)]
        for pieces in new:  # nothing can fail from here on, so a failure above leaves the body as it was
            self._append(pieces)
        self._prompt = prompt

    def marked(self, markers: Iterable[Marker]) -> list[list[bytes | bytearray]]:
        """Each array's elements with `markers` in place, in pieces to be joined; an empty array has no pieces.

        Markers are made legal: one per place, and nothing long behind something short. Raises ValueError for a marker
        behind the end of the prompt, or more markers than an API takes.
        """
        placed = self._placed(markers)
        return [list(self._spliced(section, placed)) if array else [] for section, array in enumerate(self._arrays)]

    def _wire(self, block: Block) -> bytes:
        wire = self.wires.get(block.digest, self.dialect)
        if wire is None:
            wire = self.render(block)
            self.wires.put(block.digest, self.dialect, wire)
        return wire

    def _append(self, pieces: Sequence[Piece]) -> None:
        spot = self._spots[-1] if self._spots else None
        for piece in pieces:
            array = self._arrays[piece.section]
            if array:
                array += b","
            if piece.mark is not None:
                spot = _Spot(piece.section, len(array) + piece.mark)
            array += piece.data
        self._spots.append(spot)

    def _placed(self, markers: Iterable[Marker]) -> list[tuple[_Spot, Ttl]]:
        """Markers by place, in the order of the wire."""
        found: dict[_Spot, Ttl] = {}
        for marker in markers:
            if not 0 < marker.blocks <= len(self._spots):
                raise ValueError(f"a marker behind block {marker.blocks} of {len(self._spots)}")
            spot = self._spots[marker.blocks - 1]
            if spot is not None and found.get(spot) != "long":
                found[spot] = marker.ttl
        if len(found) > MAX_MARKERS:
            raise ValueError(f"{len(found)} cache markers, of at most {MAX_MARKERS}")
        last_long = max((spot for spot, ttl in found.items() if ttl == "long"), default=None)
        return [(spot, "long" if last_long is not None and spot <= last_long else "short") for spot in sorted(found)]

    def _spliced(self, section: int, placed: Iterable[tuple[_Spot, Ttl]]) -> Iterator[bytes | bytearray]:
        array, start = self._arrays[section], 0
        for spot, ttl in placed:
            if spot.section == section:
                yield array[start : spot.offset]
                yield self.marker[ttl]
                start = spot.offset
        yield array[start:]


def arrays_of(text: str) -> dict[str, list[tuple[int, int, Any]]]:
    """The arrays of a JSON object written without spaces: start, end and value of each element, in characters.

    Raises ValueError, IndexError or RecursionError for anything else.
    """
    decode = json.JSONDecoder().raw_decode
    arrays: dict[str, list[tuple[int, int, Any]]] = {}
    at = 1
    while text[at] != "}":
        key, at = decode(text, at)
        at += 1  # the colon
        if text[at] != "[":
            _, at = decode(text, at)
        else:
            spans = arrays[key] = []
            at += 1
            while text[at] != "]":
                value, end = decode(text, at)
                spans.append((at, end, value))
                at = end + (text[end] == ",")
            at += 1
        at += text[at] == ","
    return arrays
