"""What the head of a prompt is made from, and what is told of the surroundings; both are read from the directory."""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import Folders, Settings
from agent.redact import Redactor
from agent.repository import keep_listing
from agent.tools import specs
from agent.versions import Versions
from context.block import Block
from context.canonical import digest
from context.layers.project import Core, ProjectFacts, project_block
from context.layers.system import system_blocks
from context.names import show_name
from context.notices import Environment
from context.repo.deleted import DeletedFiles
from context.repo.files import branch, head_commit, list_files, recent_changes
from context.repo.project import HOUSE_RULES, read_project
from context.repo.tree import render_tree
from context.repo.watch import Watch

if TYPE_CHECKING:
    from agent.outline_cache import OutlineCache


@dataclass(slots=True)
class Head:
    """SYSTEM and PROJECT as they are when called. `own_rules`: a file with the person's own. `pinned`: paths that the
    snapshot shows before others. `cache`: the file of outlines that have been made. `today`: the date.
    `whole`: by path (links followed), the digest of each file that the last snapshot shows in full.
    """

    directory: Path
    profile: str
    tree_budget: int
    files_budget: int
    redact: Redactor
    own_rules: Path
    pinned: tuple[str, ...]
    cache: Path
    env: Mapping[str, str]
    today: Callable[[], str]
    whole: dict[Path, str] = field(default_factory=dict)

    def __call__(self) -> list[Block]:
        return [*system_blocks(self.profile, specs(self.profile)), project_block(self.facts(), self.tree_budget)]

    def facts(self) -> ProjectFacts:
        """What the snapshot is made of, without secrets."""
        from agent.outline_cache import OutlineCache
        from agent.outliner import Outliner

        with closing(Outliner()) as outliner, OutlineCache(self.cache, outliner) as cache:
            deleted = DeletedFiles(cache.remembered, time.time)
            facts = read_project(self.directory, self.today(), self.env, self.own_rules, deleted)
            paths = facts.listing.paths
            listed = digest(os.fsencode("\0".join(paths)))
            core = self._core(facts, listed, cache) if self.files_budget else Core()
            tree = cache.remembered(f"tree {self.tree_budget} {listed}", lambda: render_tree(paths, self.tree_budget))
        self.whole.clear()
        self.whole.update(facts.rules)
        self.whole.update({self.directory / file.path: file.digest for file in core.files if file.form == "full"})
        shown = [replace(file, text=self.redact(file.text), path=self.redact(file.path)) for file in core.files]
        return replace(
            facts,
            house_rules=self.redact(facts.house_rules or "") or None,
            own_rules=self.redact(facts.own_rules or "") or None,
            core=replace(core, files=tuple(shown)),
            tree=self.redact(tree),
        )

    def _recent(self, cache: "OutlineCache") -> Mapping[str, int]:
        commit = head_commit(self.directory, self.env)
        if commit is None:
            return {}
        key = f"recent {commit} {self.directory}"  # a commit stays what it is
        recent: dict[str, int] = json.loads(
            cache.remembered(key, lambda: json.dumps(recent_changes(self.directory, self.env)))
        )
        return recent

    def _core(self, facts: ProjectFacts, listed: str, cache: "OutlineCache") -> Core:
        from context.repo.core import core_files  # the parser of outlines, which small models do without

        return core_files(
            self.directory,
            facts.listing.paths,
            listed,
            self.files_budget,
            cache,
            rules=facts.house_rules or "",
            pinned=self.pinned,
            recent=self._recent(cache),
        )


def make_head(
    directory: Path,
    profile: str,
    settings: Settings,
    folders: Folders,
    redact: Redactor,
    pinned: tuple[str, ...],
    env: Mapping[str, str],
    today: Callable[[], str],
) -> Head:
    """For models of `profile`: small ones are shown the tree and the rules, but no files."""
    return Head(
        directory,
        profile,
        settings.tree_budget,
        0 if profile == "compact" else settings.files_budget,
        redact,
        folders.config / HOUSE_RULES,
        pinned,
        folders.cache / "outlines.db",
        env,
        today,
    )


@dataclass(slots=True)
class _Last:
    """Remembers what was made last."""

    key: str = ""
    made: str = ""

    def __call__(self, key: str, make: Callable[[], str]) -> str:
        if key != self.key:
            self.key, self.made = key, make()
        return self.made


@dataclass(slots=True)
class Look:
    """The surroundings as they are when it is called. `asks`: a person can be asked. `watch`: what tells whether the
    files need to be looked at again; None: they are, each time.
    """

    directory: Path
    mode: str
    asks: bool
    versions: Versions
    env: Mapping[str, str]
    today: Callable[[], str]
    watch: Watch | None = None
    _last: Environment | None = None
    _deleted: DeletedFiles = field(default_factory=lambda: DeletedFiles(_Last(), time.time))

    def __call__(self) -> Environment:
        if self._last is not None and self.watch is not None and self.watch.quiet():
            self._last = replace(self._last, date=self.today())
            return self._last
        if self.watch is not None:
            self.watch.take()  # before the files are looked at: what changes meanwhile is looked at the next time
        files = keep_listing(list_files(self.directory, self.env, self._deleted).paths, self.versions)
        checked_out = branch(self.directory, self.env)
        self._last = Environment(self.today(), show_name(str(self.directory)), self.mode, self.asks, checked_out, files)
        return self._last
