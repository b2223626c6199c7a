"""Endpoints that speak OpenAI's Chat Completions, and how each differs: data from `endpoints.toml`, no decisions.

A person's own `[endpoints.NAME]` tables are merged over the built-in ones, key by key.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

_BUILT_IN: Final = Path(__file__).with_name("endpoints.toml")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
# A name by which the value is known for a secret, and kept out of prompts and logs (agent/redact.py).
_KEY_VARIABLE: Final = re.compile(r"(?=\w*((?:^|_)KEY(?:_|$)|APIKEY|TOKEN|SECRET))[A-Za-z_]\w*", re.IGNORECASE)
_RESERVED: Final = frozenset({"anthropic", "openai", "local", "defaults", "compatible"})

ANY_READ_FIELD: Final = (
    "usage.prompt_tokens_details.cached_tokens",
    "usage.prompt_cache_hit_tokens",
    "usage.cached_tokens",
    "usage.cache_read_input_tokens",
    "timings.cache_n",
)
ANY_WRITE_FIELD: Final = (
    "usage.prompt_tokens_details.cache_write_tokens",
    "usage.prompt_tokens_details.cache_creation_input_tokens",
    "usage.prompt_tokens_details.cache_creation_tokens",
    "usage.cache_creation_input_tokens",
)


class EndpointError(ValueError):
    """A table of endpoints that makes no sense. `str(error)` is one line for a person."""


@dataclass(frozen=True, slots=True)
class Family:
    """What holds for the models whose id matches `match` (a shell pattern): other quirks, and facts on the models."""

    match: str
    quirks: Mapping[str, Any]
    model: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One server and its quirks.

    `key_env`: the environment variable of the key; None: no key is sent. `start`: the command that starts a server on
    this machine. `prices`: "free", "unknown", or the provider's name in genai-prices. `reports`: "yes", or when it
    reports cached tokens.

    Of requests. `parts`: texts go as lists of parts, not as strings. `cache_control`: whether parts may carry markers,
    and with which times to live. `affinity_header`, `affinity_field`: where a value goes that is the same for a whole
    epoch, so that its requests reach the server that has the prefix. `max_tokens`, `effort`: the fields' names (dotted:
    nested). `include_usage`: whether to ask for the usage. `call_id_length`: letters and digits that a call's id must
    have. `reasoning`: the field in which a reply's reasoning goes back (None: it does not); `reasoning_required`: a
    message with calls must have it, even if empty. `template`: what the server's chat template is told
    (`chat_template_kwargs`).

    Of replies. `read_fields`, `miss_field`, `write_fields`: dotted paths in the last chunks; the first that is there
    counts. `reasoning_outside`: tokens of reasoning are not in completion_tokens.
    """

    name: str
    base_url: str
    key_env: str | None = None
    start: str | None = None
    prices: str = "unknown"
    reports: str = "yes"
    parts: bool = False
    cache_control: Literal["no", "short", "long"] = "no"
    affinity_header: str | None = None
    affinity_field: str | None = None
    max_tokens: str = "max_tokens"
    effort: str = "reasoning_effort"
    include_usage: bool = True
    call_id_length: int | None = None
    reasoning: str | None = None
    reasoning_required: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)
    read_fields: tuple[str, ...] = ("usage.prompt_tokens_details.cached_tokens",)
    miss_field: str | None = None
    write_fields: tuple[str, ...] = ()
    reasoning_outside: bool = False
    built_in: bool = True
    families: tuple[Family, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether tokens cost nothing there."""
        return self.prices == "free"

    def for_model(self, model_id: str) -> "Endpoint":
        """This endpoint as it treats one model: `model` holds what is assumed of it, as a row of models.toml."""
        found = self
        for family in self.families:
            if fnmatchcase(model_id, family.match):
                found = replace(found, **family.quirks, model={**found.model, **family.model})
        return found


def load_endpoints(own: Mapping[str, Any] | None = None, place: str = "") -> dict[str, Endpoint]:
    """All endpoints by name, those of `own` (the `endpoints` table of `place`) merged over the built-in ones.

    Raises EndpointError, which names the place, for whatever makes no sense.
    """
    endpoints = dict(_built_in())
    for name, row in (own or {}).items():
        where = f"{place}, [endpoints.{name}]"
        if not _NAME.fullmatch(name):
            raise EndpointError(f"{where}: a name is made of small letters, digits, '.', '_' and '-'.")
        if name in _RESERVED:
            raise EndpointError(f"{where}: the name {name!r} is taken. Choose another one.")
        endpoints[name] = _own(name, row, endpoints.get(name), where)
    return endpoints


@cache
def _built_in() -> Mapping[str, Endpoint]:
    rows = tomllib.loads(_BUILT_IN.read_text("utf-8"), parse_float=Decimal)
    return {name: Endpoint(name=name, **_checked(row, f"endpoints.toml, [{name}]")) for name, row in rows.items()}


def _own(name: str, row: object, base: Endpoint | None, where: str) -> Endpoint:
    if not isinstance(row, dict):
        raise EndpointError(f"{where} must be a table.")
    values = _checked(row, where)
    if base is not None:
        return replace(base, **{**values, "model": {**base.model, **values.get("model", {})}, "built_in": False})
    if "base_url" not in values:
        close = difflib.get_close_matches(name, _built_in(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise EndpointError(f"{where}: base_url is missing.{hint}")
    # Nothing is known of this server, so whatever any server reports is looked for.
    values = {"read_fields": ANY_READ_FIELD, "write_fields": ANY_WRITE_FIELD, **values}
    values["model"] = {"cache": "automatic", "min_cache_tokens": 1, "cache_step": 128, **values.get("model", {})}
    return Endpoint(name=name, **values, built_in=False)


_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("base_url", "start", "prices", "reports", "max_tokens", "effort", "cache_control"), "text"),
    **dict.fromkeys(("key_env", "affinity_header", "affinity_field", "reasoning", "miss_field"), "text or empty"),
    **dict.fromkeys(("parts", "include_usage", "reasoning_required", "reasoning_outside"), "truth"),
    **dict.fromkeys(("read_fields", "write_fields"), "names"),
    "call_id_length": "number",
    "model": "table",
    "template": "table",
    "families": "tables",
}
_WANTED: Final = {
    "truth": "true or false",
    "number": "a whole number of at least 0",
    "names": "a list of names",
    "table": "a table",
    "tables": "a list of tables",
}
_NOT_OF_FAMILIES: Final = frozenset({"base_url", "key_env", "start", "prices", "families", "model"})
assert {*_KINDS} == {item.name for item in fields(Endpoint)} - {"name", "built_in"}


def _checked(row: Mapping[str, Any], where: str, known: frozenset[str] = frozenset(_KINDS)) -> dict[str, Any]:
    """The values of a table in the types of `Endpoint`; an empty text turns a quirk off."""
    checked = {}
    for key, value in row.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}."
            raise EndpointError(f"{where}: unknown key {key!r}; {hint}")
        checked[key] = _value(key, value, where)
    return checked


def _value(key: str, value: object, where: str) -> object:
    match _KINDS[key], value:
        case ("text" | "text or empty", str()) if key == "base_url" and not _is_url(value):
            raise EndpointError(f"{where}: base_url must be a web address such as https://host/v1, not {value!r}.")
        case "text or empty", str() if (
            key == "key_env" and value.strip() and not _KEY_VARIABLE.fullmatch(value.strip())
        ):
            raise EndpointError(  # without the value: it may be the key itself
                f"{where}: key_env must name an environment variable with KEY, TOKEN or SECRET in its name, such as "
                "MY_API_KEY. Keys themselves do not belong into files."
            )
        case "text", str() if key == "cache_control" and value not in ("no", "short", "long"):
            raise EndpointError(f"{where}: cache_control must be 'no', 'short' or 'long', not {value!r}.")
        case "text", str() if value.strip():
            return value.strip()
        case "text or empty", str():
            return value.strip() or None
        case "truth", bool():
            return value
        case "number", int() if not isinstance(value, bool) and value >= 0:
            return value or None
        case "names", list() if all(isinstance(name, str) and name for name in value):
            return tuple(value)
        case "table", dict():
            return {name: _exact(fact) for name, fact in value.items()}
        case "tables", list() if all(isinstance(row, dict) for row in value):
            return tuple(_family(row, where) for row in value)
        case kind, _:
            wanted = _WANTED.get(kind, "a text")
            raise EndpointError(f"{where}: {key} must be {wanted}, not {value!r}.")


def _exact(value: object) -> object:
    """Fractions as they were typed."""
    return Decimal(str(value)) if isinstance(value, float) else value


def _family(row: Mapping[str, Any], where: str) -> Family:
    match = row.get("match")
    if not isinstance(match, str) or not match:
        raise EndpointError(f'{where}: one of its families has no match, such as "anthropic/*".')
    here = f"{where}, family {match!r}"
    quirks = {key: value for key, value in row.items() if key not in ("match", "model")}
    model = row.get("model", {})
    if not isinstance(model, dict):
        raise EndpointError(f"{here}: model must be a table.")
    facts = {name: _exact(fact) for name, fact in model.items()}
    return Family(match, _checked(quirks, here, frozenset(_KINDS) - _NOT_OF_FAMILIES), facts)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and not any(char.isspace() for char in text)
