"""What was typed before, across sessions: this repository's first, then all others'."""

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

from agent.redact import Redactor


class InputHistory(History):
    """In the file `path`, which several agents may use at once. `repository`: where the person works.

    What cannot be read or written is no reason to stop: `problem` then tells it in a line, and this session has a history
    of its own.
    """

    def __init__(self, path: Path, repository: Path, redact: Redactor) -> None:
        super().__init__()
        self._path = path
        self._repository = repository
        self._redact = redact
        self.problem: str | None = None

    def load_history_strings(self) -> Iterable[str]:
        return ()

    def store_string(self, string: str) -> None:
        return
