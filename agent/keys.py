"""Keys of endpoints in the system's keyring, for those who do not want them in the environment.

A key in the environment goes before one in the keyring. Which endpoints have one in the keyring is noted in `keys.json`
of the data folder (names only): who keeps none there never waits for a keyring, nor is asked to unlock it. Keys from
the keyring reach backends and the redactor; commands that the model runs do not get them.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from agent.config import Folders, load_endpoints
from agent.config_file import shown
from agent.errors import FAILED, USAGE, UserError

SERVICE: Final = "keepwarm"
_NOT_INSTALLED: Final = (
    "There is no keyring here: pip install 'keepwarm[keyring]'. Or set the key in the environment: {}."
)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key that is there. `source`: the variable that it is in, or the name of the keyring."""

    endpoint: str
    source: str
    in_keyring: bool
    hidden: bool
    """It lies in the keyring, and one in the environment goes before it."""


def key_variables(folders: Folders) -> dict[str, tuple[str, ...]]:
    """The variables in which each endpoint's key can be, by endpoint; the first is where a stored key goes."""
    own = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}
    others = {row.name: (row.key_env,) for row in load_endpoints(folders).values() if row.key_env}
    return {**own, **others}


def stored_keys(folders: Folders, env: Mapping[str, str], warn: Callable[[str], None]) -> dict[str, str]:
    """The keys that only the keyring has, by the variable that they stand for. `warn` is told when it cannot be read:
    that stops nobody who needs none of them.
    """
    noted = _noted(folders)
    if not noted:
        return {}
    variables = key_variables(folders)
    found: dict[str, str] = {}
    try:
        for endpoint in noted:
            names = variables.get(endpoint, ())
            if names and _variable_set(names, env) is None and (key := _get(endpoint, names[0])):
                found[names[0]] = key
    except UserError as error:
        warn(str(error))
    return found


def key_to_store(folders: Folders, endpoint: str) -> str:
    """The variable that a key of `endpoint` stands for. Raises UserError where none can be stored, before it is asked
    for.
    """
    variable = _variable(folders, endpoint)
    _get(endpoint, variable)
    return variable


def store_key(folders: Folders, endpoint: str, key: str) -> str:
    """Keep `key` in the keyring. Returns the keyring's name. Raises UserError: nothing was stored then."""
    variable = _variable(folders, endpoint)
    key = key.strip()
    if not key:
        raise UserError("There was no key. Nothing was stored.", USAGE)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError("That holds a space or a character that no key has. Nothing was stored. Copy it again.", USAGE)
    _installed(variable)
    import keyring

    with _told(variable):
        keyring.set_password(SERVICE, endpoint, key)
        kept = keyring.get_password(SERVICE, endpoint) == key
    if not kept:  # the null keyring, say
        raise UserError(f"The keyring ({_name()}) did not keep it. Set {variable} in the environment instead.")
    _note(folders, sorted({*_noted(folders), endpoint}))
    return _name()


def remove_key(folders: Folders, endpoint: str) -> bool:
    """Take the key of `endpoint` out of the keyring; whether there was one. Raises UserError."""
    noted = _noted(folders)
    variable = key_variables(folders).get(endpoint, ("",))[0] if endpoint in noted else _variable(folders, endpoint)
    there = _get(endpoint, variable) is not None
    if there:
        import keyring

        with _told(variable):
            keyring.delete_password(SERVICE, endpoint)
    if endpoint in noted:
        _note(folders, [name for name in noted if name != endpoint])
    return there


def list_keys(folders: Folders, env: Mapping[str, str], warn: Callable[[str], None]) -> list[KeyRow]:
    """The keys there are, never their values. `warn` is told when the keyring cannot be read."""
    rows: list[KeyRow] = []
    noted, readable = _noted(folders), True
    for endpoint, names in key_variables(folders).items():
        here, there = _variable_set(names, env), False
        if endpoint in noted and readable:
            try:
                there = _get(endpoint, names[0]) is not None
            except UserError as error:
                readable = False
                warn(str(error))
        if here:
            rows.append(KeyRow(endpoint, here, in_keyring=False, hidden=there))
        elif there:
            rows.append(KeyRow(endpoint, _name(), in_keyring=True, hidden=False))
    return rows


def _variable_set(names: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    return next((name for name in names if env.get(name, "").strip()), None)


def _variable(folders: Folders, endpoint: str) -> str:
    variables = key_variables(folders)
    if endpoint in variables:
        return variables[endpoint][0]
    if endpoint in load_endpoints(folders) or endpoint == "local":
        raise UserError(f"{endpoint} takes no key. Nothing was done.", USAGE)
    import difflib

    close = difflib.get_close_matches(endpoint, variables, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(variables)}."
    raise UserError(f"There is no endpoint {endpoint!r}. Nothing was done. {hint}", USAGE)


def _installed(variable: str) -> None:
    """Raises UserError where the library is not installed. `variable`: where the key can be set instead."""
    try:
        import keyring  # noqa: F401
    except ImportError as error:
        raise UserError(_NOT_INSTALLED.format(variable or "see docs/endpoints.md"), FAILED) from error


def _get(endpoint: str, variable: str) -> str | None:
    _installed(variable)
    import keyring

    with _told(variable):
        return keyring.get_password(SERVICE, endpoint)


def _name() -> str:
    import keyring

    return str(keyring.get_keyring().name)


@contextmanager
def _told(variable: str) -> Iterator[None]:
    """Errors of the keyring as one line."""
    from keyring.errors import InitError, KeyringError, KeyringLocked, NoKeyringError

    try:
        yield
    except NoKeyringError as error:
        raise UserError(
            f"This machine has no keyring that works. Set {variable} in the environment instead."
        ) from error
    except (KeyringLocked, InitError) as error:
        raise UserError(f"The keyring is locked. Unlock it, or set {variable} in the environment.") from error
    except (KeyringError, OSError, RuntimeError) as error:
        raise UserError(
            f"The keyring ({_name()}) failed: {str(error) or type(error).__name__}. "
            f"Set {variable} in the environment instead."
        ) from error


def _noted(folders: Folders) -> list[str]:
    try:
        names = json.loads((folders.data / "keys.json").read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _note(folders: Folders, names: list[str]) -> None:
    path = folders.data / "keys.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".keys-{os.getpid()}")
    try:
        temporary.write_text(json.dumps(names), "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{shown(path)} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
