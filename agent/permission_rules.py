"""Rules of the person about what may be done: `shell(git status *)`, `edit(src/**)`, `read(~/.ssh/**)`. Pure.

Written for people in docs/permissions.md. Deny wins over ask, and ask over allow. What is not understood beyond doubt
is never allowed by a rule; what may be a denied command, as far as can be seen, is asked about.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import pathspec

from agent.tools.base import Access, Effect
from context.shell_commands import UNKNOWN, Script, Words, read_script
from context.shell_inner import hints, inner, name_of, without_options
from context.shell_pattern import Fit, Pattern
from context.shell_words import HOLE

_RULE: Final = re.compile(r"^\s*(shell|read|edit)\s*(?:\((.*)\))?\s*$", re.DOTALL)
_EFFECTS: Final = {"shell": Effect.EXECUTE, "read": Effect.READ, "edit": Effect.WRITE}
# They change what later words mean, so that no rule can say what a command does once they have run.
_REDEFINES: Final = frozenset(
    [
        "alias",
        "unalias",
        "hash",
        "enable",
        "source",
        ".",
        "trap",
        "set",
        "shopt",
        "bind",
        "complete",
        "export",
        "declare",
        "typeset",
        "local",
        "readonly",
        "let",
        "read",
        "mapfile",
        "readarray",
        "getopts",
        "unset",
        "eval",
        "exec",
        "builtin",
        "command",
    ]
)

PROJECT_ADDS: Final = frozenset({"permissions_ask", "permissions_deny"})
"""Settings that the configuration file of a project adds to those of the person. What it says of `permissions_allow`,
`sandbox`, `sandbox_network` and `mode` counts for nothing: who sends a repository must not allow anything in it.
"""


class RuleError(ValueError):
    """A rule that cannot be read. `str(error)` is one line for the person."""


@dataclass(frozen=True)
class Rule:
    """`pattern` is None for everything of its kind. Made by `parse_rule`."""

    text: str
    effect: Effect
    pattern: str | None

    @cached_property
    def _command(self) -> Pattern:
        return Pattern(self.pattern or "*")

    def fits(self, words: Words) -> Fit:
        """How a single command fits, word by word as it is written."""
        return self._command.fit(words)

    def catches(self, words: Words) -> Fit:
        """How a single command fits, also under another name for its program and with options before its subcommand."""
        best = Fit.NO
        variants = [(words, True), *((other.words, other.certain) for other in without_options(words))]
        for variant, certain in variants:
            for name in {variant[0], variant[0].rpartition("/")[2], name_of(variant)}:
                fit = self.fits((name, *variant[1:]))
                best = max(best, fit if certain else min(fit, Fit.MAYBE))
        return best

    def covers(self, path: Path, places: "Places", *, strictly: bool) -> bool:
        """Whether a file is meant. `strictly`: for an allowance, where links in the pattern are not followed."""
        if self.pattern is None:
            return True
        return any(
            base is not None and path.is_relative_to(base) and spec.match_file(str(path.relative_to(base)))
            for base, spec in _specs(self.pattern, places, strictly)
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Resolved: where relative patterns begin, and where `~` is (None: unknown)."""

    root: Path
    home: Path | None


def parse_rule(text: str) -> Rule:
    """Raises RuleError."""
    match = _RULE.match(text)
    if match is None:
        hint = " `edit(…)` is about `write` too." if text.strip().startswith("write") else ""
        raise RuleError(
            f"{text!r} is no rule; rules look like shell(git status *), edit(src/**) or read(~/.ssh/**).{hint}"
        )
    kind, pattern = match.groups()
    if pattern is not None and not pattern.strip():
        raise RuleError(f"{text!r} has an empty pattern; {kind} alone means everything.")
    if kind != "shell" and pattern is not None and pattern.startswith(("!", "#")):
        raise RuleError(f"{text!r}: a pattern of paths cannot begin with {pattern[0]!r}.")
    return Rule(
        text.strip(), _EFFECTS[kind], None if pattern is None or pattern.strip() in ("*", "**") else pattern.strip()
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of a call. `rule` as the person wrote it; `maybe`: it cannot be seen whether it applies."""

    kind: str  # deny, ask or allow
    rule: str
    maybe: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()) -> "Rules":
        """Raises RuleError."""
        return cls(*(tuple(map(parse_rule, texts)) for texts in (allow, ask, deny)))

    def allowing(self, *rules: Rule) -> "Rules":
        return replace(self, allow=(*self.allow, *rules))

    def verdict(self, access: Access, places: Places) -> Verdict | None:
        """The strongest rule that applies. What may be denied is asked about."""
        if not (self.allow or self.ask or self.deny):
            return None
        script = read_script(access.command) if access.effect is Effect.EXECUTE else None
        doubt: Verdict | None = None
        for kind, rules in (("deny", self.deny), ("ask", self.ask)):
            for rule in rules:
                fit = _caught(rule, access, script, places)
                if fit is Fit.YES and kind == "deny":
                    return Verdict("deny", rule.text)
                if fit is not Fit.NO and doubt is None:
                    doubt = Verdict("ask", rule.text, maybe=fit is Fit.MAYBE)
        if doubt is not None:
            return doubt
        named = _allowed(self.allow, access, script, places)
        return None if named is None else Verdict("allow", named)


def _caught(rule: Rule, access: Access, script: Script | None, places: Places) -> Fit:
    if script is None:
        return Fit.YES if rule.effect is access.effect and _names(rule, access.paths, places) else Fit.NO
    if rule.effect is not Effect.EXECUTE:
        named = [*access.paths[1:], *_paths(script, places)]
        return Fit.YES if _names(rule, named, places) else Fit.NO
    if rule.pattern is None:
        return Fit.YES
    best = Fit.NO
    for words in script.commands:
        best = max(best, rule.catches(words))
        for command in inner(words):
            fit = rule.catches(command.words)
            best = max(best, fit if command.certain else min(fit, Fit.MAYBE))
        for hint in hints(words):
            best = max(best, min(rule.catches(hint), Fit.MAYBE))
        if best is Fit.YES:
            break
    return best


def _names(rule: Rule, paths: Iterable[Path], places: Places) -> bool:
    return any(rule.covers(path, places, strictly=False) for path in paths)


def _allowed(rules: Sequence[Rule], access: Access, script: Script | None, places: Places) -> str | None:
    """The rule that allows the call; where several are needed, the first of them."""
    if script is None:
        return _all_covered(rules, access.effect, access.paths, places)
    mine = [rule for rule in rules if rule.effect is Effect.EXECUTE]
    if not mine or not script.plain:
        return None
    outside = access.paths[1:]
    if outside and _all_covered(rules, Effect.READ, outside, places) is None:
        return None
    names = list[str]()
    for words in script.plain:
        for command in (words, *(found.words for found in inner(words))):
            rule = next((rule for rule in mine if _allows(rule, command)), None)
            if rule is None:
                return None
            names.append(rule.text)
    return names[0]


def _allows(rule: Rule, words: Words) -> bool:
    if words == UNKNOWN or any(HOLE in word for word in words) or name_of(words) in _REDEFINES:
        return False
    if name_of(words) == "printf" and any(word.startswith("-v") for word in words[1:]):
        return False
    return rule.fits(words) is Fit.YES


def _all_covered(rules: Sequence[Rule], effect: Effect, paths: Sequence[Path], places: Places) -> str | None:
    mine = [rule for rule in rules if rule.effect is effect]
    named = [next((rule.text for rule in mine if rule.covers(path, places, strictly=True)), None) for path in paths]
    return named[0] if named and None not in named else None


def _paths(script: Script, places: Places) -> Iterable[Path]:
    """What the words of the commands name, if they are paths."""
    for words in script.commands:
        for word in words:
            if not word or HOLE in word or len(word) > 4_096:
                continue
            if word.startswith("~/") and places.home is not None:
                word = str(places.home) + word[1:]
            yield Path(_resolved(places.root / word))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


def _specs(pattern: str, places: Places, strictly: bool) -> Iterable[tuple[Path | None, pathspec.GitIgnoreSpec]]:
    """Pairs of a folder and a pattern below it, in the syntax of .gitignore."""
    if pattern == "~" or pattern.startswith("~/"):
        base, rest = places.home, pattern[1:] or "/"
    elif pattern.startswith("/"):
        base, rest = Path("/"), pattern
    else:
        base, rest = places.root, pattern
    yield base, _spec(rest)
    if strictly or base is None:
        return
    parts = rest.strip("/").split("/")
    fixed = list(itertools.takewhile(lambda part: not set("*?[") & set(part), parts))
    if fixed and "/" in rest.rstrip("/"):  # a link in the pattern leads where the resolved path is
        tail = "/".join(parts[len(fixed) :])
        folder = _resolved(base.joinpath(*fixed))
        yield (folder, _spec(f"/{tail}")) if tail else (folder.parent, _spec(f"/{folder.name}"))


def _spec(pattern: str) -> pathspec.GitIgnoreSpec:
    return pathspec.GitIgnoreSpec.from_lines([pattern])
