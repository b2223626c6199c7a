"""Changing one value in the person's config.toml and leaving everything else of it alone, comments included."""

import os
import tomllib
from collections.abc import MutableMapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from agent.config import ENDPOINTS, NAMES, Folders, check_text, checked
from agent.config_file import shown, unknown
from agent.errors import USAGE, UserError
from agent.tools.base import ToolError
from agent.tools.textfile import replace

_PLACE = "the command line"


def set_value(folders: Folders, key: str, text: str) -> str:
    """Set `key`, a setting or `endpoints.NAME.KEY`, to what `text` says. Returns the value as the file now holds it.

    Raises UserError, with the file as it was, for what makes no sense.
    """
    keys = _keys(key)
    value = _own_kind(text) if keys[0] == ENDPOINTS else _stored(checked(keys[0], text, _PLACE))

    def change(inner: MutableMapping[str, Any]) -> None:
        inner[keys[-1]] = value

    _edit(folders.file, keys, change)
    return str(tomlkit.item(value).as_string())


def unset_value(folders: Folders, key: str) -> bool:
    """Take `key` out of the file; whether it was in there. Raises as `set_value` does."""
    keys, held = _keys(key), False

    def change(inner: MutableMapping[str, Any]) -> None:
        nonlocal held
        held = inner.pop(keys[-1], None) is not None

    _edit(folders.file, keys, change)
    return held


def _keys(key: str) -> list[str]:
    """The parts of a dotted key, as TOML reads it. Raises UserError for one that is neither setting nor endpoint's."""
    parts: list[str] = []
    try:
        inner: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        inner = {}
    while isinstance(inner, dict) and len(inner) == 1:
        parts += inner
        inner = inner[parts[-1]]
    if inner != 0 or (parts[0] != ENDPOINTS and (len(parts) > 1 or parts[0] not in NAMES)):
        raise unknown(key, _PLACE, NAMES)
    if parts[0] == ENDPOINTS and len(parts) < 3:
        raise UserError(f"{_PLACE}: {key} is a table. Name a key in it, such as endpoints.NAME.base_url.", USAGE)
    return parts


def _edit(path: Path, keys: list[str], change: Any) -> None:
    target = Path(os.path.realpath(path))  # a link to a file of one's dotfiles stays a link
    try:
        before = os.stat(target)
        text = target.read_bytes().decode("utf-8")
    except FileNotFoundError:
        before, text = None, ""
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{shown(path)} cannot be read: {error}. Nothing was changed.", USAGE) from error
    try:
        document = tomlkit.parse(text)
        inner: Any = document
        for name in keys[:-1]:
            if name not in inner:
                inner[name] = tomlkit.table(is_super_table=name == ENDPOINTS)
            inner = inner[name]
        change(inner)
    except ParseError as error:
        raise UserError(f"{shown(path)} cannot be read: {error}. Nothing was changed.", USAGE) from error
    except (TOMLKitError, TypeError) as error:
        raise UserError(
            f"{shown(path)}: {'.'.join(keys)} cannot be set: {error}. Nothing was changed.", USAGE
        ) from error
    after = tomlkit.dumps(document)
    if "\r\n" in text:  # what was added ends its lines as the rest does
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    check_text(path, after)
    if after == text:
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, shown(path), after.encode(), before)
    except (ToolError, OSError) as error:
        raise UserError(str(error)) from error


def _stored(value: object) -> Any:
    """A setting as TOML holds it."""
    if isinstance(value, Decimal):
        return tomlkit.value(f"{value:f}")
    if value is None:  # a limit that is lifted
        return "off"
    return list(value) if isinstance(value, tuple) else value


def _own_kind(text: str) -> Any:
    """What an endpoint's key is set to: a TOML value, or the text as it is."""
    try:
        return tomlkit.value(text)
    except TOMLKitError:
        return text
