"""A config.toml as it was read: its values, and the line that each stands in."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from agent.errors import USAGE, UserError
from context.names import show_name

NAME: Final = "config.toml"
_LARGEST: Final = 100_000  # bytes
_LONGEST_VALUE: Final = 200  # lines; behind a longer one, which is parsed with each of its lines, places have none


@dataclass(frozen=True)
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
        line = self._lines.get(keys)
        return shown(self.path) if line is None else f"{shown(self.path)}:{line}"

    @cached_property
    def _lines(self) -> Mapping[tuple[str, ...], int]:
        """The line in which each value begins, from 1. TOML's parsers do not tell, so the file is parsed again in the
        smallest groups of lines that are TOML by themselves: a comment, the head of a table, or a key and its value.
        """
        found: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        lines = [f"{line}\n" for line in self.text.split("\n")]  # TOML knows no other line ends
        begin = end = 0
        while end < len(lines):
            end += 1
            group = "".join(lines[begin:end])
            try:
                values = tomllib.loads(group)
            except tomllib.TOMLDecodeError:  # in the midst of a value of several lines
                if end - begin > _LONGEST_VALUE:
                    break
                continue
            if group.lstrip().startswith("["):
                table = _first_path(values)
                found.setdefault(table, begin + 1)
            else:
                for depth in range(1, len(path := _first_path(values)) + 1):
                    found.setdefault((*table, *path[:depth]), begin + 1)
            begin = end
        return found


def _first_path(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys from the outside in, as far as there is but one."""
    path: list[str] = []
    inner: Any = values
    while isinstance(inner, dict) and len(inner) == 1:
        key, inner = next(iter(inner.items()))
        path.append(key)
    return tuple(path)


def unknown(name: str, place: str, known: Iterable[str]) -> UserError:
    """The error for a key that means nothing, with the one that may be meant."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" Settings: {', '.join(names)}."
    return UserError(f"{place} has an unknown setting {name!r}.{hint}", USAGE)


def shown(path: Path) -> str:
    return show_name(str(path))
