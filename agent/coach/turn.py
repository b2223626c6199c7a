"""What has happened since the command, as far as the coach looks at it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.tools.under_test import is_test

_POLITE: Final = re.compile(
    r"^(?:(?:please|kindly|hi|hello|hey|ok|okay|now|then|(?:can|could|would|will) you|i (?:want|need) you to)\b"
    r"[\s,!]*)+",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"(?:what|where|which|who|when|why|how|does|do|is|are|can|explain|describe|list|show|tell|read|summari[sz]e|find|"
    r"look|review|count|compare|check)\b",
    re.IGNORECASE,
)
# What has to become otherwise, as an order or as a statement of what is wrong.
_ORDER: Final = (
    r"(?:add|adjust|allow|apply|bump|change|clean|convert|correct|create|delete|drop|edit|enable|extend|extract|fix|"
    r"format|handle|implement|improve|increase|insert|introduce|let|lower|make|merge|migrate|modify|move|patch|port|put|"
    r"raise|reduce|refactor|remove|rename|repair|replace|rewrite|set|simplify|solve|sort|split|support|swap|tidy|turn|"
    r"update|upgrade|use|write)"
)
_CHANGE: Final = re.compile(
    rf"\b(?:{_ORDER}|wrong|broken|bug|crash\w*|fail\w*|must|should|instead|no longer|is now|are now)\b", re.IGNORECASE
)
_AND_CHANGE: Final = re.compile(rf"(?:\b(?:and|then)|[.;])\s+(?:then\s+|please\s+)?{_ORDER}\b", re.IGNORECASE)
_FAILS: Final = re.compile(r"\bfail(?:s|ed|ing|ure|ures)?\b", re.IGNORECASE)
_TESTED: Final = re.compile(r"\bassert|\bexpect\s*\(|\b(?:test|it)\s*\(|\bdef\s+test|\bfunc\s+Test|#\[test\]")
_CODE: Final = (".py", ".js", ".mjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".c", ".cc", ".cpp", ".java", ".rb")


@dataclass(slots=True)
class Turn:
    """`files`: time and size of each file at the start; None for a repository that is too large to look."""

    command: str = ""
    files: Mapping[str, tuple[int, int]] | None = None
    looked: bool = False  # a file or a match was seen, or a command ran
    changed: bool = False
    added_test: bool = False
    ran_tests: bool = False
    untested: bool = False  # code was changed after the last test run
    failed: str | None = None  # why the last edit or test run failed
    refused: set[str] = field(default_factory=set)  # arguments of the calls that were
    objections: int = 0
    asked: set[str] = field(default_factory=set)  # questions that were asked already

    @property
    def is_question(self) -> bool:
        """Whether the command asks for an answer, not for a change. A doubtful one does: a change that nobody wanted is
        worse than one that must be asked for again.
        """
        said = self.command.strip()
        plain = _POLITE.sub("", said)
        if _CHANGE.search(plain) is None:
            return True
        if _ASKS.match(plain):
            return _AND_CHANGE.search(plain) is None
        return said.endswith("?") and plain == said

    @property
    def is_about_failure(self) -> bool:
        """Whether the command says that something fails."""
        return _FAILS.search(self.command) is not None

    def first(self, question: str) -> bool:
        """Whether `question` has not been asked in this turn; it has been from now on."""
        if question in self.asked:
            return False
        self.asked.add(question)
        return True

    def changed_file(self, path: str, old: str, new: str) -> None:
        """In the file `path`, `new` stands for `old` by now."""
        self.changed = True
        self.added_test |= is_test(path) and len(_TESTED.findall(new)) > len(_TESTED.findall(old))
        self.failed = None
        self.untested = self.untested or Path(path).suffix in _CODE

    def tested(self, *, passed: bool) -> None:
        self.ran_tests = True
        self.untested = False
        self.failed = None if passed else "the tests fail."
