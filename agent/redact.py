"""Secrets of the environment, taken out of text before anyone sees it (rule R10).

What counts as a secret is the value of an environment variable whose name says so (`…_API_KEY`, `…TOKEN…`,
`…SECRET…`, `…PASSWORD…`), and a password within an address, of at least 8 characters: shorter values occur in text by
chance.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

_SHORTEST: Final = 8  # characters
_SHORTEST_LINE: Final = 16  # characters of one line of a value that has several, such as a private key
_SECRET_NAME: Final = re.compile(
    r"(^|_)(KEY|KEYS|PAT|CREDS|AUTH|BEARER|COOKIE|JWT)(_|$)|(^|_|SSH)PASS(_|$)|_PWD$"
    r"|APIKEY|TOKEN|SECRET|PRIVATE|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL",
    re.IGNORECASE,
)
_NAMES_A_PLACE: Final = re.compile(r"_(FILE|PATH|DIR|SOCK)$", re.IGNORECASE)


class Redactor:
    """Replaces each secret in `env` by `[secret NAME]`, the longest where several fit."""

    def __init__(self, env: Mapping[str, str]) -> None:
        names: dict[str, str] = {}
        for name in sorted(env):
            for value in _values(env[name] if _is_secret(name) else _password_in(env[name])):
                names.setdefault(value, name)
        self._names: Final = names
        self._values: Final = sorted(names, key=lambda value: (-len(value), value))
        self._pattern: Final = re.compile("|".join(map(re.escape, self._values))) if names else None

    def __call__(self, text: str) -> str:
        """`text` without secrets."""
        return self._pattern.sub(self._placeholder, text) if self._pattern else text

    def placeholder_in(self, text: str) -> str | None:
        """The first `[secret NAME]` in `text` that stands for one of these secrets."""
        placeholders = (f"[secret {name}]" for name in sorted(set(self._names.values())))
        return next((placeholder for placeholder in placeholders if placeholder in text), None)

    def stream(self, sink: Callable[[str], None]) -> "RedactingStream":
        return RedactingStream(self, sink)

    def split(self, text: str) -> tuple[str, str]:
        """`text` in two: what is settled, redacted, and an end that may yet become a secret when more text follows."""
        if self._pattern is None:
            return text, ""
        pieces, done = [], 0
        held = self._held(text, 0)
        for match in self._pattern.finditer(text):
            if match.start() >= held:
                break
            pieces += [text[done : match.start()], self._placeholder(match)]
            done = match.end()
            if done > held:
                held = self._held(text, done)
        return "".join([*pieces, text[done:held]]), text[held:]

    def _held(self, text: str, start: int) -> int:
        """The first place, from `start` on, from which `text` is a proper beginning of a secret; its length if none."""
        longest = len(self._values[0]) - 1
        for place in range(max(start, len(text) - longest), len(text)):
            rest = text[place:]
            if any(value.startswith(rest) and value != rest for value in self._values):
                return place
        return len(text)

    def _placeholder(self, match: re.Match[str]) -> str:
        return f"[secret {self._names[match[0]]}]"


def secret_names(env: Mapping[str, str]) -> list[str]:
    """The variables whose names say that they hold a secret."""
    return [name for name in env if _is_secret(name)]


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _NAMES_A_PLACE.search(name)


class RedactingStream:
    """Redacts text that arrives in pieces, also where a secret is cut between two of them."""

    def __init__(self, redactor: Redactor, sink: Callable[[str], None]) -> None:
        self._redactor = redactor
        self._sink = sink
        self._rest = ""

    def feed(self, text: str) -> None:
        settled, self._rest = self._redactor.split(self._rest + text)
        if settled:
            self._sink(settled)

    def close(self) -> None:
        """Pass on what was held back."""
        if self._rest:
            self._sink(self._redactor(self._rest))
        self._rest = ""


def _password_in(value: str) -> str:
    """The password of an address such as `postgres://user:password@host/`; empty where there is none."""
    if "://" not in value or "@" not in value:
        return ""
    try:
        return urlsplit(value).password or ""
    except ValueError:
        return ""


def _values(value: str) -> list[str]:
    """The texts that give `value` away: itself, and for several lines each long one."""
    whole = value.strip()
    lines = [line.strip() for line in whole.splitlines()] if "\n" in whole else []
    body = [line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----")]
    return [text for text in (whole, *body) if len(text) >= _SHORTEST]
