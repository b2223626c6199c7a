"""PROJECT: what the model knows of the repository from its first token, frozen for an epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from context.block import Block, Layer, Role, Text
from context.names import show_name
from context.repo.files import Listing
from context.repo.tree import render_tree

_FORMS: Final = {
    "full": "",
    "outline": ", outline: its definitions and their lines; read it for the rest",
    "head": ", its beginning and its headings",
}


@dataclass(frozen=True, slots=True)
class CoreFile:
    """`why` it was chosen; `form` in which it stands; its `text` and about how many tokens that takes. `digest` of the
    bytes that it was read from.
    """

    path: str
    why: str
    form: Literal["full", "outline", "head"]
    text: str
    tokens: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Core:
    """`left_out`: (path, why) of those that ranked and did not make it, best first."""

    files: tuple[CoreFile, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What the snapshot is made of.

    `date` is the day the epoch began, as YYYY-MM-DD; `house_rules` the text of AGENTS.md, `own_rules` that of the
    person's own, `branch` what git has checked out. `rules`: by its path (links followed), the digest of each file that
    the rules were read from.
    """

    platform: str
    directory: str
    date: str
    listing: Listing
    house_rules: str | None = None
    own_rules: str | None = None
    branch: str | None = None
    core: Core = field(default_factory=Core)
    tree: str | None = None  # rendered; None: it is to be
    rules: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the snapshot; `name` is for reports."""

    name: str
    text: str


def sections(facts: ProjectFacts, tree_budget: int) -> list[Section]:
    """The snapshot in parts. `tree_budget` in o200k_base tokens."""
    surroundings = f"Platform: {facts.platform}\nWorking directory: {facts.directory}\nDate: {facts.date}"
    if facts.branch:
        surroundings += f"\nGit: {facts.branch}"
    found = [Section("surroundings", surroundings)]
    if facts.own_rules and facts.own_rules.strip():
        found.append(Section("your own rules", f"The user's own rules:\n{facts.own_rules.strip()}"))
    if facts.house_rules and facts.house_rules.strip():
        rules = f"House rules of this repository (AGENTS.md):\n{facts.house_rules.strip()}"
        found.append(Section("house rules", rules))
    found += [Section(f"{show_name(file.path)} ({file.form})", _file(file)) for file in facts.core.files]
    found.append(Section("tree of files", _tree(facts, tree_budget)))
    return found


def project_block(facts: ProjectFacts, tree_budget: int) -> Block:
    """The PROJECT layer: one block."""
    return _block(sections(facts, tree_budget))


def _block(parts: Sequence[Section]) -> Block:
    text = "\n\n".join(part.text for part in parts)
    return Block.make(Layer.PROJECT, Role.SYSTEM, (Text(f"<project>\n{text}\n</project>"),))


def _file(file: CoreFile) -> str:
    return f"File {show_name(file.path)}{_FORMS[file.form]}:\n{file.text}"


def _tree(facts: ProjectFacts, budget: int) -> str:
    listing = facts.listing
    if not listing.paths:
        return "The directory holds no files yet."
    kind = "not ignored by git" if listing.git else "no git repository"
    if not listing.complete:
        kind += ", list cut"
    tree = render_tree(listing.paths, budget) if facts.tree is None else facts.tree
    return f"Files ({len(listing.paths)}, {kind}):\n{tree}"
