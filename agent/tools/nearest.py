"""The place in a file that is most like a text that does not occur in it. Deterministic, and bounded in its work."""

import re
from collections import Counter, deque
from difflib import SequenceMatcher
from typing import Final

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_LARGEST: Final = 1_000_000  # characters of text that are searched at all
_CANDIDATES: Final = 3
_COMPARED: Final = 800  # characters of each candidate that difflib sees
_LEAST_LIKENESS: Final = 0.5


def nearest(text: str, wanted: str) -> tuple[int, int] | None:
    """First and last line (from 1) of the window of `text` that is most like `wanted`; None if nothing is.

    A window has as many lines as `wanted`. Those that share most words with it are compared by difflib.
    """
    lines, wanted_lines = text.split("\n"), wanted.strip("\n").split("\n")
    height = min(len(wanted_lines), len(lines))
    if len(text) > _LARGEST or len(wanted) > _LARGEST or not wanted.strip():
        return None
    shared = _shared_words(lines, Counter(_WORD.findall(wanted)), height)
    best = sorted(range(len(shared)), key=lambda start: (-shared[start], start))[:_CANDIDATES]
    goal = "\n".join(line.strip() for line in wanted_lines)[:_COMPARED]

    def likeness(start: int) -> float:
        window = "\n".join(line.strip() for line in lines[start : start + height])[:_COMPARED]
        return SequenceMatcher(None, window, goal, autojunk=False).ratio()

    ratio, start = max((likeness(start), -start) for start in best)
    return None if ratio < _LEAST_LIKENESS else (1 - start, height - start)


def _shared_words(lines: list[str], wanted: Counter[str], height: int) -> list[int]:
    """For each window of `height` lines, how many words of `wanted` it holds."""
    found: Counter[str] = Counter()
    window: deque[list[str]] = deque()
    total, totals = 0, []
    for line in lines:
        words = [word for word in _WORD.findall(line) if word in wanted]
        window.append(words)
        for word in words:
            found[word] += 1
            total += found[word] <= wanted[word]
        if len(window) > height:
            for word in window.popleft():
                total -= found[word] <= wanted[word]
                found[word] -= 1
        if len(window) == height:
            totals.append(total)
    return totals
