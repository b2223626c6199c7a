"""What was typed before, across sessions: this repository's first, then all others'.

One file with a line of JSON per entry, the newest at its end. A line that cannot be read is passed over, so that a
damaged file costs what is damaged in it.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from prompt_toolkit.history import History

from agent.redact import Redactor

MOST_ENTRIES: Final = 2_000  # of all repositories
MOST_CHARACTERS: Final = 100_000  # of one entry; a longer one is known to this session alone
_SLACK: Final = 200  # entries that may come on top before the file is rewritten
_WAIT_S: Final = 0.5  # for another agent that writes


class InputHistory(History):
    """In the file `path`, which several agents may use at once. `repository`: where the person works.

    What cannot be read or written is no reason to stop: `problem` then tells it in a line, and what is typed is kept
    until the program ends.
    """

    def __init__(self, path: Path, repository: Path, redact: Redactor, most: int = MOST_ENTRIES) -> None:
        super().__init__()
        self._path = path
        self._repository = str(repository)
        self._redact = redact
        self._most = most
        self.problem: str | None = None

    async def load(self) -> AsyncGenerator[str, None]:
        """The entries, the newest first. The file is read once, in a thread."""
        if not self._loaded:
            self._loaded = True
            stored = await asyncio.to_thread(self.load_history_strings)
            self._loaded_strings = list(dict.fromkeys([*self._loaded_strings, *stored]))  # typed meanwhile: first
        for entry in list(self._loaded_strings):
            yield entry

    def append_string(self, string: str) -> None:
        """Add an entry, without secrets. Typed again, it moves to the front."""
        entry = self._redact(string)
        if not entry.strip():
            return
        self._loaded_strings = [entry, *(other for other in self._loaded_strings if other != entry)]
        self.store_string(entry)

    def load_history_strings(self) -> list[str]:
        entries = _read(self._path)[::-1]
        here = [text for repository, text in entries if repository == self._repository]
        elsewhere = [text for repository, text in entries if repository != self._repository]
        return list(dict.fromkeys([*here, *elsewhere]))

    def store_string(self, string: str) -> None:
        if len(string) > MOST_CHARACTERS:
            return
        line = json.dumps({"repository": self._repository, "text": string}).encode()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(f"{self._path}.lock", timeout=_WAIT_S):
                _append(self._path, line)
                self._trim()
        except Timeout:
            self.problem = f"The input history {self._path} is locked by another program: not everything typed is kept."
        except OSError as error:
            why = error.strerror or error
            self.problem = f"The input history {self._path} cannot be written ({why}): what you type is not kept."

    def _trim(self) -> None:
        """Forget the oldest entries when there are many too many. For the one who has the lock."""
        lines = self._path.read_bytes().splitlines()
        if len(lines) <= self._most + _SLACK:
            return
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.unlink(missing_ok=True)
        _append(fresh, b"\n".join(lines[-self._most :]))
        fresh.replace(self._path)


def _append(path: Path, line: bytes) -> None:
    """Add a line; it is for its owner alone to read. What a kill left of a line before does not damage this one."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line + b"\n")


def _read(path: Path) -> list[tuple[str, str]]:
    """Repository and text of each entry that can be read."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    entries = []
    for line in data.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        match entry:
            case {"repository": str(repository), "text": str(text)}:
                entries.append((repository, text))
    return entries
