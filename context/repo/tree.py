"""The tree of a repository within a token budget: every folder a line, the largest folders folded to a count when
it is too long.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable

from context.names import show_name


def render_tree(paths: Iterable[str], budget: int) -> str:
    """A line per folder, `folder/: file file …`, at most about `budget` tokens.

    Deterministic: equal paths in any order give equal text. Folders are folded into `name/(N)` (N files below) in
    their parent's line, the one with the longest line first among those that hold no unfolded folder, until the rest
    fits; the top folder is cut last.
    """
    files: dict[str, list[str]] = defaultdict(list)  # folder → what its line lists
    children: dict[str, set[str]] = defaultdict(set)
    files[""] = []
    for path in paths:
        folder, _, name = path.removesuffix("/").rpartition("/")
        files[folder].append(_shown(name) + "/" * path.endswith("/"))  # git names another repository so
        while folder:
            parent = folder.rpartition("/")[0]
            children[parent].add(folder)
            folder = parent
    folders = sorted(set(files) | set(children))
    cost = {folder: _cost(folder, files[folder]) for folder in folders}
    total = sum(cost.values())
    open_children = {folder: len(children[folder]) for folder in folders}
    folded: dict[str, int] = {}  # folder → number of files below it

    leaves = [(-cost[folder], folder) for folder in folders if folder and not open_children[folder]]
    heapq.heapify(leaves)
    while total > budget and leaves:
        _, folder = heapq.heappop(leaves)
        own = len(files[folder]) - len(children[folder])  # folded children are listed among the files
        below = own + sum(folded[child] for child in children[folder])
        folded[folder] = below
        parent = folder.rpartition("/")[0]
        name = _folded_name(folder, below)
        files[parent].append(name)
        grown = _tokens(name) + 1
        total += grown - cost[folder]
        cost[parent] += grown
        open_children[parent] -= 1
        if parent and not open_children[parent]:
            heapq.heappush(leaves, (-cost[parent], parent))

    hidden = _below(folded, children)
    lines = [
        _line(folder, files[folder]) for folder in folders if folder not in hidden and (files[folder] or not folder)
    ]
    text = "\n".join(line for line in lines if line)
    if not leaves and total > budget:  # a single folder with more files than the budget holds
        text = _cut_lines(text, budget)
    return text


def _tokens(text: str) -> int:
    """Generous: names and paths have three to four characters a token, and a tokenizer takes its time to load."""
    return -(-len(text) // 3)


def _cost(folder: str, names: list[str]) -> int:
    """`_tokens` of the folder's line, without writing it."""
    return -(-(len(_shown(folder)) + 3 * bool(folder) + sum(map(len, names)) + max(0, len(names) - 1)) // 3)


def _below(folded: dict[str, int], children: dict[str, set[str]]) -> set[str]:
    hidden: set[str] = set()
    pending = list(folded)
    while pending:
        folder = pending.pop()
        if folder not in hidden:
            hidden.add(folder)
            pending.extend(children[folder])
    return hidden


def _line(folder: str, names: Iterable[str]) -> str:
    listed = " ".join(sorted(names))
    return f"{_shown(folder)}/: {listed}" if folder else listed


def _folded_name(folder: str, count: int) -> str:
    return f"{_shown(folder.rpartition('/')[2])}/({count})"


def _shown(name: str) -> str:
    """A name as one word: quoted when it holds blanks."""
    if name.isascii() and name.isprintable() and " " not in name:
        return name
    name = show_name(name)
    return f'"{name}"' if " " in name else name


def _cut_lines(text: str, budget: int) -> str:
    """The longest prefix of whole names of `text` within `budget`, with a count of what is left out."""
    names = text.split(" ")
    low, high = 0, len(names)
    while low < high:
        middle = (low + high + 1) // 2
        if _tokens(" ".join(names[:middle])) <= budget:
            low = middle
        else:
            high = middle - 1
    return f"{' '.join(names[:low])} … ({len(names) - low} more)"
