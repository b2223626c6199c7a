"""Putting files back, one atomic step a file. What somebody else has changed meanwhile is left and told.

Each step looks at the disk before it acts, so that a restore which was cut short is finished by doing it again.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.worktree.entries import SETTLED_NS, TEMPORARY, Entry, Folders, look_at
from agent.worktree.store import Step

CHANGED = "it was changed since"
TOO_LARGE = "its content was not kept (too large, or not readable)"
IGNORED = "git ignores it"
OLDER = "it was there before"


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that was not put back, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where contents come from. `listed` gives the paths that are not ignored; `since_ns`: when the tree that is
    restored was seen, by the system's clock.
    """

    content: Callable[[str], bytes | None]
    listed: Callable[[], set[str]]
    since_ns: int


class Restorer:
    """Does the steps of one restore. `token` marks files on the way to their place."""

    def __init__(self, root: Path, source: Source, token: str, steps: Sequence[Step]) -> None:
        self._root = root
        self._source = source
        self._steps = steps
        self._temporary = {step.path: f"{TEMPORARY}{token}-{number}" for number, step in enumerate(steps)}
        self._kept: dict[str, str] = {}

    def run(self) -> list[Kept]:
        """Do the steps; those that were done before are left. Raises OSError only where the root itself is gone."""
        os.lstat(self._root)
        self._clean()
        steps = self._steps
        rules = [step for step in steps if step.path.rpartition("/")[2] == ".gitignore"]
        rest = [step for step in steps if step not in rules]
        deepest = sorted(rest, key=lambda step: (-step.path.count("/"), _is_folder(step.was)))
        self._all(rules, self._put)  # first: they say which files are none of ours
        allowed = self._listed(rules) if any(_goes(step) for step in rest) else None
        for step in deepest:
            if _goes(step):
                self._try(step, lambda step: self._remove(step, allowed))
        shallow = sorted(rest, key=lambda step: (step.path.count("/"), not _is_folder(step.want)))
        self._all([step for step in shallow if step.want is not None], self._put)
        self._all([step for step in reversed(shallow) if _is_folder(step.want)], self._set_mode)
        self._all([step for step in rules if step.want is None], lambda step: self._remove(step, None))
        return [Kept(path, why) for path, why in sorted(self._kept.items())]

    def _clean(self) -> None:
        """Remove what a kill has left on the way to its place."""
        folders = Folders(self._root)
        for path, name in self._temporary.items():
            if folders.holds(path):
                (self._root / path).with_name(name).unlink(missing_ok=True)

    def _all(self, steps: Sequence[Step], do: Callable[[Step], None]) -> None:
        for step in steps:
            self._try(step, do)

    def _try(self, step: Step, do: Callable[[Step], None]) -> None:
        if step.path in self._kept:
            return
        try:
            do(step)
        except OSError as error:
            self._kept[step.path] = error.strerror or str(error)

    def _listed(self, rules: Sequence[Step]) -> set[str] | None:
        """The paths that may be removed, None: all. Only where rules were put back can they say something else."""
        return self._source.listed() if rules else None

    def _remove(self, step: Step, allowed: set[str] | None) -> None:
        path, found = self._root / step.path, look_at(self._root, step.path)
        if found is None or found == step.want:
            return
        if found.kind == "folder":
            if _is_folder(step.want) or not _is_folder(step.was):
                return
            try:
                os.rmdir(path)
            except OSError:  # it holds what is left alone
                if step.want is not None:
                    raise
            return
        if found.kind == "left":
            self._kept[step.path] = TOO_LARGE
        elif found != step.was:
            self._kept[step.path] = CHANGED
        elif step.want is None and allowed is not None and step.path not in allowed:
            self._kept[step.path] = IGNORED
        elif step.want is None and os.lstat(path).st_ctime_ns < self._source.since_ns - SETTLED_NS:
            self._kept[step.path] = OLDER
        else:
            path.unlink()

    def _put(self, step: Step) -> None:
        path, want = self._root / step.path, step.want
        found = look_at(self._root, step.path)
        if want is None or found == want:
            return
        if want.kind == "folder":
            if found is None:
                os.makedirs(path, exist_ok=True)
            elif found.kind != "folder":
                self._kept[step.path] = CHANGED
            elif want.mode & 0o300 == 0o300:  # files are going to be put into it
                os.chmod(path, want.mode)
            return
        if found is not None and found != step.was:
            self._kept[step.path] = CHANGED
            return
        if want.kind == "left" or (found is not None and found.kind == "left"):
            self._kept[step.path] = TOO_LARGE
            return
        if found is not None and (found.kind, found.digest) == (want.kind, want.digest):
            os.chmod(path, want.mode)
            return
        data = self._source.content(want.digest)
        if data is None:
            self._kept[step.path] = TOO_LARGE
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not Folders(self._root).holds(step.path):
            self._kept[step.path] = "a link stands in the place of its folder"
            return
        self._write(path, want, data, found, self._temporary[step.path])

    def _write(self, path: Path, want: Entry, data: bytes, found: Entry | None, name: str) -> None:
        temporary = path.with_name(name)
        try:
            if want.kind == "link":
                os.symlink(os.fsdecode(data), temporary)
            else:
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if found is not None and found.kind == "file":  # extended attributes
                    shutil.copystat(path, temporary)
                    os.utime(temporary)
                os.chmod(temporary, want.mode)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _set_mode(self, step: Step) -> None:
        found = look_at(self._root, step.path)
        if step.want is not None and found is not None and found.kind == "folder" and found.mode != step.want.mode:
            os.chmod(self._root / step.path, step.want.mode)


def _goes(step: Step) -> bool:
    """Whether what is there has to go before anything else can come."""
    return step.was is not None and (step.want is None or step.want.kind != step.was.kind)


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "folder"
