"""PROJECT: what the model knows of the repository from its first token, frozen for an epoch."""

from dataclasses import dataclass

from context.block import Block, Layer, Role, Text
from context.repo.files import Listing
from context.repo.tree import render_tree


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What the snapshot is made of.

    `date` is the day the epoch began, as YYYY-MM-DD; `house_rules` the text of AGENTS.md, `own_rules` that of the
    person's own.
    """

    platform: str
    directory: str
    date: str
    listing: Listing
    house_rules: str | None = None
    own_rules: str | None = None


def project_block(facts: ProjectFacts, tree_budget: int) -> Block:
    """The PROJECT layer: one block. `tree_budget` in o200k_base tokens."""
    count = len(facts.listing.paths)
    kind = "not ignored by git" if facts.listing.git else "no git repository"
    if not facts.listing.complete:
        kind += ", list cut"
    lines = [
        f"Platform: {facts.platform}",
        f"Working directory: {facts.directory}",
        f"Date: {facts.date}",
    ]
    sections = ["<project>", *lines]
    if facts.own_rules and facts.own_rules.strip():
        sections += ["", "The user's own rules:", facts.own_rules.strip()]
    if facts.house_rules and facts.house_rules.strip():
        sections += ["", "House rules of this repository (AGENTS.md):", facts.house_rules.strip()]
    if count:
        sections += ["", f"Files ({count}, {kind}):", render_tree(facts.listing.paths, tree_budget)]
    else:
        sections += ["", "The directory holds no files yet."]
    sections.append("</project>")
    parts = (Text("\n".join(sections)),)
    return Block.make(Layer.PROJECT, Role.SYSTEM, parts)
