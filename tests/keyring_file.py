"""A keyring in a plain file, for tests: keyring's own configuration names it in the environment of the program."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class FileKeyring(KeyringBackend):
    """In the file that TEST_KEYRING names. A file that says "locked" is a keyring that nobody has unlocked."""

    priority = 1
    name = "a file"

    @property
    def _path(self) -> Path:
        return Path(os.environ["TEST_KEYRING"])

    def _read(self) -> dict[str, str]:
        text = self._path.read_text() if self._path.exists() else "{}"
        if text == "locked":
            raise KeyringLocked("nobody unlocked it")
        return dict(json.loads(text))

    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path.write_text(json.dumps({**self._read(), f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        kept = self._read()
        if kept.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError("not there")
        self._path.write_text(json.dumps(kept))
