"""What the head of a prompt is made from, and what is told of the surroundings; both are read from the directory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.redact import Redactor
from agent.repository import keep_listing
from agent.tools import specs
from agent.versions import Versions
from context.block import Block
from context.layers.project import project_block
from context.layers.system import system_blocks
from context.names import show_name
from context.notices import Environment
from context.repo.files import branch, list_files
from context.repo.project import read_project


@dataclass(frozen=True, slots=True)
class Head:
    """SYSTEM and PROJECT as they are when called. `own_rules`: a file with the person's own. `today`: the date."""

    directory: Path
    profile: str
    tree_budget: int
    redact: Redactor
    own_rules: Path
    env: Mapping[str, str]
    today: Callable[[], str]

    def __call__(self) -> list[Block]:
        facts = read_project(self.directory, self.today(), self.env, self.own_rules)
        facts = replace(
            facts,
            listing=replace(facts.listing, paths=tuple(self.redact(path) for path in facts.listing.paths)),
            house_rules=self.redact(facts.house_rules or "") or None,
            own_rules=self.redact(facts.own_rules or "") or None,
        )
        return [*system_blocks(self.profile, specs(self.profile)), project_block(facts, self.tree_budget)]


@dataclass(frozen=True, slots=True)
class Look:
    """The surroundings as they are when it is called. `asks`: a person can be asked."""

    directory: Path
    mode: str
    asks: bool
    versions: Versions
    env: Mapping[str, str]
    today: Callable[[], str]

    def __call__(self) -> Environment:
        files = keep_listing(list_files(self.directory, self.env).paths, self.versions)
        checked_out = branch(self.directory, self.env)
        return Environment(self.today(), show_name(str(self.directory)), self.mode, self.asks, checked_out, files)
