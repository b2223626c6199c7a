"""What a call may do, decided from the mode and the resolved paths that it touches. Pure: it asks no one itself.

| mode  | read inside | read outside | write inside | write outside | command |
|-------|-------------|--------------|--------------|---------------|---------|
| plan  | allow       | refuse       | refuse       | refuse        | refuse  |
| ask   | allow       | ask          | ask          | ask           | ask     |
| edits | allow       | ask          | allow        | ask           | ask     |
| auto  | allow       | ask          | allow        | ask           | allow   |

"Inside" is below the working directory, with symlinks and `..` followed. A command that names a path outside asks in
mode auto too. Writing into `.git` always asks, because git runs what lies there.

Rules of the person come first (agent/permission_rules.py): what they deny is refused in every mode, what they ask about
is asked, and what they allow needs no question, but in mode plan and in `.git`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agent.always import pattern_for
from agent.permission_rules import Places, Rules, Verdict, parse_rule
from agent.tools.base import Access, Effect
from agent.tools.paths import show


class Mode(StrEnum):
    PLAN = "plan"
    ASK = "ask"
    EDITS = "edits"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Ask:
    """`question` for a person, in one line. `always`: what they would allow for the session (None: only this call).

    `diff`: exactly what the call will change, as a unified diff (None: a command, or nothing that can be shown); it may
    hold control characters. `pattern`: the rule that "always" stands for, where it is one, as in `shell(git status *)`.
    """

    question: str
    always: str | None = None
    diff: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """`reason` is for the model: what is not allowed, and under which mode it would be."""

    reason: str


Decision = Allow | Ask | Refuse


@dataclass(slots=True)
class Grants:
    """What a person has allowed for the rest of the session.

    A command is granted by its exact text or by a pattern; reading and writing below a folder: the working directory,
    or the folder of a file outside it.
    """

    patterns: Rules = field(default_factory=Rules)

    _commands: set[str] = field(default_factory=set)
    _folders: set[tuple[Effect, Path]] = field(default_factory=set)

    def remember(self, access: Access, root: Path, pattern: str | None = None) -> None:
        """Allow `access` from now on, and what the question offered to allow."""
        if pattern is not None:
            self.patterns = self.patterns.allowing(parse_rule(pattern))
        if access.effect is Effect.EXECUTE:
            self._commands.add(access.command)
        else:
            self._folders.update((access.effect, _folder(path, root)) for path in access.paths)

    def cover(self, access: Access) -> bool:
        if access.effect is Effect.EXECUTE:
            return access.command in self._commands
        return all(
            any(effect is access.effect and path.is_relative_to(folder) for effect, folder in self._folders)
            for path in access.paths
        )


def decide(
    mode: Mode,
    access: Access,
    root: Path,
    *,
    interactive: bool = True,
    grants: Grants | None = None,
    readable: Iterable[Path] = (),
    rules: Rules = Rules(),  # noqa: B008 (immutable)
    home: Path | None = None,
) -> Decision:
    """Whether a call may run. Paths in `access`, `root` and `readable` are resolved.

    `interactive`: a person can be asked; without one, what would be asked is refused. `readable`: folders outside the
    root that are free to read, such as that of full outputs. `home` is what `~` stands for in `rules`.
    """
    places = Places(root, home)
    verdict = rules.verdict(access, places)
    if verdict is not None and verdict.kind == "deny":
        return Refuse(f"Refused: the user's rule {verdict.rule} denies this. Do not try it another way.")
    free = tuple(readable)
    outside = [path for path in access.paths if not _inside(path, root) and not _free(path, access.effect, free)]
    git = access.effect is Effect.WRITE and any(_in_git(path) for path in access.paths)
    if mode is Mode.PLAN and not isinstance(plan := _plan(access, outside, root), Allow):
        return plan
    if verdict is not None and verdict.kind == "ask":
        return _ruled(verdict, access) if interactive else Refuse(f"Refused: {_by_rule(verdict)}, and no one is there.")
    if mode is Mode.PLAN:
        return Allow()
    if not outside and not git and _allowed(mode, access.effect):
        return Allow()
    if not git and (verdict is not None or _granted(grants, access, places)):
        return Allow()
    why = _why(outside, git, root)
    if not interactive:
        return Refuse(_unattended(mode, access, why))
    question = f"Allow to {access.summary}?{f' ({why})' if why else ''}"
    pattern = pattern_for(access.command) if access.effect is Effect.EXECUTE and not outside else None
    return Ask(question, None if git else pattern or _always(access, root), pattern=pattern)


def _granted(grants: Grants | None, access: Access, places: Places) -> bool:
    return grants is not None and (grants.cover(access) or grants.patterns.verdict(access, places) is not None)


def _ruled(verdict: Verdict, access: Access) -> Ask:
    return Ask(f"Allow to {access.summary}? ({_by_rule(verdict)})")


def _by_rule(verdict: Verdict) -> str:
    """Why the person is asked."""
    may = "what this runs cannot be seen, so it may be caught by" if verdict.maybe else "it is asked about by"
    return f"{may} the rule {verdict.rule}"


def _allowed(mode: Mode, effect: Effect) -> bool:
    match effect:
        case Effect.READ:
            return True
        case Effect.WRITE:
            return mode in (Mode.EDITS, Mode.AUTO)
        case Effect.EXECUTE:
            return mode is Mode.AUTO


def _plan(access: Access, outside: list[Path], root: Path) -> Decision:
    if access.effect is not Effect.READ:
        return Refuse(f"Refused: mode plan only reads, so it does not {access.summary}. Put it into your plan.")
    if outside:
        return Refuse(f"Refused: mode plan reads only inside the working directory, not {show(outside[0], root)}.")
    return Allow()


def _unattended(mode: Mode, access: Access, why: str) -> str:
    refused = f"Refused: no one is there to allow it in mode {mode}"
    if why:
        return f"{refused} ({why}), and no mode allows it unasked."
    enough = Mode.EDITS if access.effect is Effect.WRITE else Mode.AUTO
    return f"{refused}; the user can start with --mode {enough}."


def _why(outside: list[Path], git: bool, root: Path) -> str:
    if outside:
        return f"{show(outside[0], root)} is outside the working directory"
    return "git's own folder" if git else ""


def _always(access: Access, root: Path) -> str:
    if access.effect is Effect.EXECUTE:
        return "this exact command"
    folders = sorted({_folder(path, root) for path in access.paths})
    places = ", ".join("the working directory" if folder == root else show(folder, root) for folder in folders)
    return f"{'reading' if access.effect is Effect.READ else 'writing'} in {places}"


def _folder(path: Path, root: Path) -> Path:
    return root if _inside(path, root) else path.parent


def _inside(path: Path, root: Path) -> bool:
    return path.is_relative_to(root)


def _free(path: Path, effect: Effect, free: tuple[Path, ...]) -> bool:
    return effect is not Effect.WRITE and any(path.is_relative_to(folder) for folder in free)


def _in_git(path: Path) -> bool:
    return any(part.casefold() == ".git" for part in path.parts)
