"""Which rule "always" stands for: a pattern that is wide enough to be of use and names what it lets through. Pure."""

import re
from typing import Final

from context.shell_commands import read_script
from context.shell_words import HOLE

_SUBCOMMAND: Final = re.compile(r"^[a-z][a-z0-9:-]*$")
# What they do depends on their subcommand, which the pattern names.
_WITH_SUBCOMMAND: Final = frozenset(
    ["git", "gh", "npm", "pnpm", "yarn", "cargo", "go", "pip", "poetry", "docker", "kubectl", "make", "just", "ruff"]
)
_RUN_OTHERS: Final = frozenset(["run", "exec", "x", "dlx", "config", "alias", "bisect", "submodule", "filter-branch"])
_ONLY_READ: Final = frozenset(
    ["ls", "cat", "head", "tail", "wc", "grep", "rg", "file", "stat", "du", "df", "tree", "diff", "cut", "uniq", "nl"]
)


def pattern_for(command: str) -> str | None:
    """The rule to offer for `command`, as in `shell(git status *)`; None where only the exact text is safe to offer."""
    plain = read_script(command).plain
    if plain is None or len(plain) != 1 or any(HOLE in word for word in plain[0]):
        return None
    name, *rest = plain[0]
    if name in _ONLY_READ:
        return f"shell({name} *)"
    if name in _WITH_SUBCOMMAND and rest and _SUBCOMMAND.match(rest[0]) and rest[0] not in _RUN_OTHERS:
        return f"shell({name} {rest[0]} *)"
    return None
