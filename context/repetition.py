"""Notices that a text which is being written goes round in circles, and where its good part ends.

A model that has lost its way says the same again and again: a token, a line, a paragraph, often with a counter in it.
Much honest text repeats itself as well (tables, rulers, like edits), so what counts is how often and how much: prose
that repeats itself is a loop sooner than rows of data are, and only prose is one when its numbers differ.

The tail of a text has the period p when each of its characters equals the one p characters earlier. To find the periods
of a tail without trying all of them: if the tail is three periods long, its last two periods stand there once more, one
period earlier. So for periods from n to 2n one search for the last 2n characters is enough, and what it finds is the
period, because two places so near to each other would make the tail have a shorter one (Fine and Wilf, 1965).
"""

import re
from array import array
from dataclasses import dataclass
from typing import Final

_STEP: Final = 32  # characters between two looks at the tail
_SHORT: Final = 64  # characters; periods up to here are looked for at each step, longer ones less often
_DOUBLINGS: Final = 7  # the longest period is 8,192 characters
_WINDOW: Final = 3 * (_SHORT << _DOUBLINGS) + _STEP  # what must be remembered of a text

_LEAST_REPEATS: Final = 3
_PROSE: Final = 400  # characters that repeated prose takes at least before it is a loop
_SENTENCE_REPEATS: Final = 6  # of one sentence, on one line: a chorus and lines to be written have lines of their own
_SENTENCE: Final = 150
_SENTENCE_WORDS: Final = 4
_SENTENCE_SIGNS: Final = 10  # of a script without spaces
_SENTENCE_END: Final = re.compile(r"[.!?…] |[。！？]")
_DATA: Final = 1_200  # the same of rows, rulers and code: some dozens of equal rows are honest
_RULER: Final = 500  # the same of one or two characters that are no prose
_NUMBERED_REPEATS: Final = 4  # of prose in which the numbers differ: it may be a list
_NUMBERED: Final = 1_500

_NUMBER: Final = "\0"  # stands for any number that stands free
_MARKS: Final = re.compile(r"[|{}\[\]<>=;\"\t]|,\S|    ")  # of code, tables and rows
_TIME: Final = re.compile(f"{_NUMBER}[-:/]{_NUMBER}")  # a date or a time of day: lines with one are a log
_BOX: Final = re.compile("[\u2500-\u25ff]")  # lines and blocks that pictures are drawn with
_PROSE_SHARE: Final = 0.8  # of letters and spaces in prose
_LEAST_WORDS: Final = 3  # on a line of prose with numbers; `name: 12` is no prose
_ENDS: Final = tuple(  # where to cut: best behind a line, else behind a sentence, else behind a word
    re.compile(end) for end in (r"(?<=\n)|(?<=\\n)", r"(?<=[.!?…] )|(?<=[。！？])", r"(?<= )")
)


class Repetition:
    """Watches one text (a reply's visible text, its reasoning, the arguments of one call) while it is written.

    Takes constant time a character, and remembers about 50,000 of them. What it finds does not depend on the pieces.
    """

    def __init__(self) -> None:
        self._waiting = ""  # less than a step
        self._steps = 0
        self._said: Final = _Tail()
        self._numbered: Final = _Tail()
        self._numbers: Final = _Numbers()
        self._good: int | None = None

    def feed(self, fragment: str) -> int | None:
        """Where the good part of the whole text ends, with the first of what repeats: in characters from its beginning.
        None: no loop so far.
        """
        text = self._waiting + fragment
        start = 0
        while self._good is None and start + _STEP <= len(text):
            self._take(text[start : start + _STEP])
            self._good = self._look()
            start += _STEP
        self._waiting = text[start:]
        return self._good

    def _take(self, piece: str) -> None:
        first = self._steps * _STEP
        self._steps += 1
        self._said.add(piece, range(first, first + len(piece)))
        self._numbered.add(*self._numbers.replace(piece, first))

    def _look(self) -> int | None:
        for level in range(_DOUBLINGS + 1):
            if self._steps % (1 << max(0, level - 2)):  # a period of thousands need not be looked for at each step
                continue
            if (period := _period(self._said.text, level)) is not None:
                unit = self._said.text[-period:]
                needed = max(_LEAST_REPEATS * period, _least(unit))
                if _repeats(self._said.text, period, needed):
                    return self._cut(self._said, period)
            if (period := _period(self._numbered.text, level)) is not None:
                unit = self._numbered.text[-period:]
                needed = max(_NUMBERED_REPEATS * period, _NUMBERED)
                if _is_numbered_prose(unit) and _repeats(self._numbered.text, period, needed):
                    return self._cut(self._numbered, period)
        return None

    def _cut(self, tail: "_Tail", period: int) -> int:
        """Behind the first of what repeats, at the end of a line, a sentence or a word if there is one.

        Where it begins cannot be told: what stands before it may end like it does. So the end is looked for within one
        more period.
        """
        start = len(tail.text) - _length(tail.text, period)
        first, last = tail.places[start + period], tail.places[start + 2 * period]
        before = self._said.places[0]
        for end in _ENDS:
            if found := end.search(self._said.text, first - before, last - before + 1):
                return before + found.start()
        return first


@dataclass(slots=True)
class _Tail:
    """The last characters of a text, and where each of them stands in the whole."""

    text: str
    places: "array[int]"

    def __init__(self) -> None:
        self.text, self.places = "", array("q")

    def add(self, text: str, places: "range | array[int]") -> None:
        self.text += text
        self.places.extend(places)
        if len(self.text) > 2 * _WINDOW:  # seldom, so that forgetting costs next to nothing
            self.text = self.text[-_WINDOW:]
            del self.places[:-_WINDOW]


class _Numbers:
    """Puts a sign in place of each number that is no part of a name. Escapes, as in the JSON of a call, become line
    ends.
    """

    def __init__(self) -> None:
        self._in_name = self._in_number = self._escaped = False

    def replace(self, piece: str, first: int) -> "tuple[str, array[int]]":
        """The piece, which begins at `first`, with the place of each character."""
        out: list[str] = []
        places = array("q")
        for place, written in enumerate(piece, first):
            char = written
            if self._escaped:
                self._escaped, char = False, "\n"
            elif char == "\\":
                self._escaped = True
                continue
            if char.isnumeric() and not self._in_name:
                if self._in_number:
                    continue
                self._in_number, char = True, _NUMBER
            elif not char.isnumeric():
                self._in_number = False
                self._in_name = char.isascii() and (char.isalpha() or char == "_")
            out.append(char)
            places.append(place)
        return "".join(out), places


def _period(text: str, level: int) -> int | None:
    """The smallest period that the end of `text` has, of those that `level` looks for; None: it has none of them."""
    longest = _SHORT << level
    shorter = longest // 2 if level else 0
    known = 2 * (shorter or _SHORT)
    size = len(text)
    at = text.find(text[-known:], max(0, size - known - longest), max(0, size - shorter - 1))
    if at < 0 or size <= known:
        return None
    unit = text[known + at - size :]
    return (unit + unit).find(unit, 1)  # the unit may be several of a shorter one


def _repeats(text: str, period: int, length: int) -> bool:
    """Whether the last `length` characters of `text` have the period."""
    size = len(text)
    return size >= length and text[size - length : size - period] == text[size - length + period :]


def _length(text: str, period: int) -> int:
    """How many characters at the end of `text` have the period."""
    low, high = period, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if _repeats(text, period, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _least(unit: str) -> int:
    """Characters that repetitions of `unit` take at least before they are a loop."""
    if _is_prose(unit):
        sentence = _SENTENCE_REPEATS * len(unit)
        return min(_PROSE, max(_SENTENCE, sentence)) if _is_sentence(unit) else _PROSE
    return _RULER if len(unit) <= 2 else _DATA


def _is_prose(unit: str) -> bool:
    """Whether `unit` is what a person would read aloud: words, also of other scripts and emoji."""
    if not unit.strip() or _MARKS.search(unit) or _BOX.search(unit):
        return False
    spoken = sum(char.isalpha() or char in " \0" or not char.isascii() for char in unit)
    return spoken >= _PROSE_SHARE * len(unit) and any(char.isalpha() or not char.isascii() for char in unit)


def _is_sentence(unit: str) -> bool:
    """Whether `unit`, which is prose, is one or more whole sentences on one line, wherever in them it begins."""
    if "\n" in unit or "\\" in unit or (end := _SENTENCE_END.search(unit + unit)) is None:
        return False
    said = (unit + unit)[end.end() : end.end() + len(unit)]
    words = sum(any(char.isalpha() for char in word) for word in said.split())
    signs = sum(char.isalpha() and not char.isascii() for char in said)
    return words >= _SENTENCE_WORDS or signs >= _SENTENCE_SIGNS


def _is_numbered_prose(unit: str) -> bool:
    """Whether `unit` is prose with a number in it, and has words enough on a line for a sentence: `name: 12` is none.

    Scripts without spaces have them in their characters.
    """
    if _NUMBER not in unit or _TIME.search(unit) or not _is_prose(unit):
        return False
    if any(char.isalpha() and not char.isascii() for char in unit):
        return True
    return any(
        sum(any(char.isalpha() for char in word) for word in line.split()) >= _LEAST_WORDS
        for line in (unit + unit).split("\n")  # twice, because a unit may begin in the middle of a line
    )
