"""A config.toml as it was read: its values, and the line that each stands in."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import USAGE, UserError
from context.names import show_name

NAME: Final = "config.toml"
_LARGEST: Final = 1_000_000  # bytes


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """`values` is empty where there is no file."""

    path: Path
    text: str
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Raises UserError, which names the line, for a file that is no TOML."""
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
            if len(content) > _LARGEST:
                raise UserError(f"{shown(path)} is longer than {_LARGEST:,} bytes. Shorten it or move it away.", USAGE)
            return cls.parse(path, content.decode("utf-8"))
        except FileNotFoundError:
            return cls(path, "", {})
        except NotADirectoryError:
            return cls(path, "", {})
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{shown(path)} cannot be read: {error}. Correct it or move it away.", USAGE) from error

    @classmethod
    def parse(cls, path: Path, text: str) -> "ConfigFile":
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:  # it names line and column
            raise UserError(f"{shown(path)} cannot be read: {error}. Correct it or move it away.", USAGE) from error

    def place(self, *keys: str) -> str:
        """Where a value stands, as `path:line`."""
        line = self._line(keys)
        return shown(self.path) if line is None else f"{shown(self.path)}:{line}"

    def _line(self, keys: Iterable[str]) -> int | None:
        """The line in which the value begins, from 1. TOML's parsers do not tell, so ever more lines are parsed until
        the value is there; it begins behind the last lines that could be parsed without it.
        """
        wanted, lines = tuple(keys), self.text.splitlines(keepends=True)
        begin = 1
        for count in range(1, len(lines) + 1):
            try:
                values = tomllib.loads("".join(lines[:count]))
            except tomllib.TOMLDecodeError:  # in the midst of a value of several lines
                continue
            if _holds(values, wanted):
                return begin
            begin = count + 1
        return None


def _holds(values: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    inner: Any = values
    for key in keys:
        if not isinstance(inner, dict) or key not in inner:
            return False
        inner = inner[key]
    return True


def unknown(name: str, place: str, known: Iterable[str]) -> UserError:
    """The error for a key that means nothing, with the one that may be meant."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" Settings: {', '.join(names)}."
    return UserError(f"{place} has an unknown setting {name!r}.{hint}", USAGE)


def shown(path: Path) -> str:
    return show_name(str(path))
