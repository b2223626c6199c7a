"""What is known of each model: limits, cache rules, price multipliers. Read from `models.toml` beside this file.

A `models.toml` of the user is merged over it, model by model and key by key. A model that neither names gets its
provider's conservative defaults, marked as assumed.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, Self

from backends.base import Capabilities, Env
from backends.compatible_endpoints import Endpoint, load_endpoints
from context.cache_rules import CacheRules

_BUILT_IN: Final = Path(__file__).with_name("models.toml")
_DATE_SUFFIX: Final = re.compile(r"[-@]\d{8}$|-latest$")  # a dated id is the same model as the undated one

DEFAULT_ANTHROPIC: Final = "anthropic/claude-sonnet-5-5"
DEFAULT_OPENAI: Final = "openai/gpt-6.2-sol"
DEFAULT_LOCAL: Final = "local/qwen2.5-coder-1.5b"


_Row = Mapping[str, Any]


class CatalogError(ValueError):
    """A model name or a `models.toml` that makes no sense. `str(error)` is one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """USD per million tokens. None: not stated. `above`: what holds for the whole request over so many input tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_long: Decimal | None = None
    above: tuple[tuple[int, "PriceTable"], ...] = ()

    def for_input(self, tokens: int) -> "PriceTable":
        """The table for a request of `tokens` input tokens, cached ones included."""
        reached = [table for start, table in self.above if tokens > start]
        return reached[-1] if reached else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One model. Token limits in the model's own tokens, times in seconds.

    `cache` to `effort_keeps_system`, and the times to live, are those of `CacheRules`. `read`, `write` and `write_long`
    are multiples of the price of a fresh input token. `price` is set where the files state one (elsewhere genai-prices
    does). `tiers`: the whole bill as a multiple of the standard one, by the provider's word for how a call was served.
    `weekend_hour`: the hour (UTC) whose prices hold all through Saturday and Sunday. `source` names the file that had
    the last word; `assumed`: no file names this model, these are its provider's defaults. `prices`: of a model on a
    compatible endpoint, as `Endpoint.prices`. `by_path`: `id` is the path of a local file.
    """

    provider: str
    id: str
    context: int
    max_output: int
    cache: Literal["markers", "automatic", "none"]
    min_cache_tokens: int
    max_markers: int
    lookback: int | None = None
    cache_step: int = 1
    effort_keeps_system: bool = False
    default_effort: str | None = None
    read: Decimal
    write: Decimal
    write_long: Decimal | None = None
    ttl_short: int | None = None
    ttl_long: int | None = None
    token_scale: float
    thinking: Literal["adaptive", "reasoning", "none"]
    price: PriceTable | None = None
    tiers: Mapping[str, Decimal] = field(default_factory=dict)
    weekend_hour: int | None = None
    prices: str | None = None
    source: str
    assumed: bool
    by_path: bool = False

    @property
    def name(self) -> str:
        """The full name, as a person types it."""
        return f"{self.provider}{':' if self.by_path else '/'}{self.id}"

    @property
    def cache_rules(self) -> CacheRules:
        return CacheRules(
            kind=self.cache,
            max_markers=self.max_markers,
            min_tokens=self.min_cache_tokens,
            lookback=self.lookback,
            ttl_short=self.ttl_short,
            ttl_long=self.ttl_long,
            step=self.cache_step,
            effort_keeps_system=self.effort_keeps_system,
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            context=self.context,
            max_output=self.max_output,
            cache=self.cache_rules,
            token_scale=self.token_scale,
            default_effort=self.default_effort,
        )


class Catalog:
    """All models that the files name. Load it once; look-ups are cheap."""

    def __init__(
        self,
        defaults: Mapping[str, _Row],
        models: Mapping[str, Mapping[str, _Row]],
        endpoints: Mapping[str, Endpoint] | None = None,
    ):
        self._defaults = defaults
        self._models = models
        self._endpoints = endpoints or {}

    @classmethod
    def load(cls, user_file: Path | None = None, endpoints: Mapping[str, Endpoint] | None = None) -> Self:
        """The built-in catalogue, with `user_file` merged over it when it exists. Each of the `endpoints` (None: the
        built-in ones) is a provider.

        Raises CatalogError when that file is not readable, not TOML, or has keys or values that mean nothing.
        """
        tables = _read(_BUILT_IN, "models.toml")
        if user_file is not None and user_file.exists():
            tables = _merged(tables, _read(user_file, str(user_file)))
        defaults = tables.pop("defaults", {})
        catalog = cls(defaults, tables, load_endpoints() if endpoints is None else endpoints)
        for endpoint in catalog._endpoints.values():
            if not endpoint.built_in:
                where = f"[endpoints.{endpoint.name}]"
                _check_keys(endpoint.model, f"{where}, model")
                for family in endpoint.families:
                    _check_keys(family.model, f"{where}, family {family.match!r}, model")
                catalog.find(f"{endpoint.name}/any")
        for name in catalog.names():
            catalog.find(name)  # a mistake is reported when the file is read, not in the middle of a session
        return catalog

    def names(self) -> list[str]:
        """The full names of all models that a file names, sorted."""
        return sorted(f"{provider}/{model}" for provider, models in self._models.items() for model in models)

    def find(self, name: str) -> ModelInfo:
        """The model called `name`: `anthropic/…`, `openai/…`, `local/…`, `local:/path.gguf` or `ENDPOINT/…`.

        Raises CatalogError for a name without a known provider.
        """
        provider, model = self._split(name)
        rows = self._models.get(provider, {})
        row = rows.get(model) or rows.get(_DATE_SUFFIX.sub("", model))
        defaults = self._defaults.get(provider, {})
        endpoint = self._endpoints.get(provider)
        if endpoint is None:
            info = _model(provider, model, {**defaults, **(row or {})}, assumed=row is None)
            return replace(info, by_path=name.startswith("local:"))
        facts = endpoint.for_model(model).model
        defaults = {**self._defaults.get("compatible", {}), **facts, **defaults}
        return _model(provider, model, {**defaults, **(row or {})}, assumed=row is None, prices=endpoint.prices)

    @property
    def _providers(self) -> set[str]:
        return {*self._defaults, *self._models, *self._endpoints} - {"compatible"}

    def _split(self, name: str) -> tuple[str, str]:
        provider, separator, model = name.partition("/")
        if name.startswith("local:"):
            provider, separator, model = "local", ":", name.removeprefix("local:")
        if separator and model.strip() and provider in self._providers:
            return provider, model
        names = self.names()
        near = [known for known in names if known.endswith(f"/{name}")] or difflib.get_close_matches(name, names, n=1)
        advice = f"Did you mean {near[0]}?" if near else "`agent models list` shows all."
        raise CatalogError(f"No model {name!r}: a name is provider/model, such as {DEFAULT_ANTHROPIC}. {advice}")


def default_model(env: Env) -> str:
    """The model for someone who named none: that of the cloud key in the environment, else the local one."""
    if env.get("ANTHROPIC_API_KEY", "").strip() or env.get("ANTHROPIC_AUTH_TOKEN", "").strip():
        return DEFAULT_ANTHROPIC
    if env.get("OPENAI_API_KEY", "").strip():
        return DEFAULT_OPENAI
    return DEFAULT_LOCAL


def _read(path: Path, source: str) -> dict[str, Any]:
    """The tables of a file, each row stamped with where it is from."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except OSError as error:
        raise CatalogError(f"{source} cannot be read: {error.strerror}. No model was looked up.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{source} is not valid TOML: {error}") from error
    for provider, models in tables.items():
        if not isinstance(models, dict) or not all(isinstance(row, dict) for row in models.values()):
            raise CatalogError(f"{source}: {provider!r} must hold tables such as [anthropic.claude-x].")
        for model, row in models.items():
            _check_keys(row, f"{source}, [{provider}.{model}]")
            row["source"] = f"{source} (defaults)" if provider == "defaults" else source
    return tables


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` on top: tables key by key, anything else replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


_KEYS: Final = {field.name for field in fields(ModelInfo)} - {
    "provider",
    "id",
    "assumed",
    "source",
    "prices",
    "by_path",
}


def _check_keys(row: Mapping[str, Any], where: str) -> None:
    for key in row:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            advice = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(_KEYS))}."
            raise CatalogError(f"{where}: unknown key {key!r}; {advice}")


def _model(provider: str, model: str, row: Mapping[str, Any], *, assumed: bool, prices: str | None = None) -> ModelInfo:
    where = f"{row.get('source', 'models.toml')}, [{provider}.{model}]"
    try:
        return ModelInfo(
            provider=provider,
            id=model,
            context=_whole(row, "context", least=1),
            max_output=_whole(row, "max_output", least=1),
            cache=_cache_kind(row),
            min_cache_tokens=_whole(row, "min_cache_tokens"),
            max_markers=_whole(row, "max_markers"),
            lookback=_whole(row, "lookback", least=1) if "lookback" in row else None,
            cache_step=_whole(row, "cache_step", least=1) if "cache_step" in row else 1,
            effort_keeps_system=_truth(row, "effort_keeps_system"),
            default_effort=_word(row, "default_effort"),
            read=_decimal(row, "read"),
            write=_decimal(row, "write"),
            write_long=_decimal(row, "write_long") if "write_long" in row else None,
            ttl_short=_whole(row, "ttl_short", least=1) if "ttl_short" in row else None,
            ttl_long=_whole(row, "ttl_long", least=1) if "ttl_long" in row else None,
            token_scale=float(_decimal(row, "token_scale")),
            thinking=_thinking(row),
            price=_price(row["price"]) if "price" in row else None,
            tiers=_tiers(row.get("tiers", {})),
            weekend_hour=_whole(row, "weekend_hour") % 24 if "weekend_hour" in row else None,
            prices=prices,
            source=str(row.get("source", "models.toml")),
            assumed=assumed,
        )
    except KeyError as error:
        raise CatalogError(f"{where}: {error.args[0]} is missing.") from error
    except (TypeError, ValueError) as error:
        raise CatalogError(f"{where}: {error}") from error


def _whole(row: Mapping[str, Any], key: str, least: int = 0) -> int:
    value = row[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{key} must be a whole number of at least {least}, not {value!r}.")
    return value


def _decimal(row: Mapping[str, Any], key: str) -> Decimal:
    value = row[key]
    if not isinstance(value, int | Decimal) or isinstance(value, bool) or not Decimal(value).is_finite() or value < 0:
        raise ValueError(f"{key} must be a number of at least 0, not {value!r}.")
    return Decimal(value)


def _word(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} must be a word, not {value!r}.")
    return value


def _truth(row: Mapping[str, Any], key: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, not {value!r}.")
    return value


def _cache_kind(row: Mapping[str, Any]) -> Literal["markers", "automatic", "none"]:
    match row.get("cache", "markers"):
        case "markers" | "automatic" | "none" as kind:
            return kind  # type: ignore[no-any-return]
        case other:
            raise ValueError(f"cache must be 'markers', 'automatic' or 'none', not {other!r}.")


def _thinking(row: Mapping[str, Any]) -> Literal["adaptive", "reasoning", "none"]:
    match row["thinking"]:
        case "adaptive" | "reasoning" | "none" as kind:
            return kind  # type: ignore[no-any-return]
        case other:
            raise ValueError(f"thinking must be 'adaptive', 'reasoning' or 'none', not {other!r}.")


def _tiers(row: Any) -> Mapping[str, Decimal]:
    if not isinstance(row, dict):
        raise ValueError("tiers must be a table.")
    return {name: _decimal(row, name) for name in row}


_PRICE_KEYS: Final = ("input", "output", "cache_read", "cache_write", "cache_write_long")


def _price(row: Any, allowed: tuple[str, ...] = (*_PRICE_KEYS, "above")) -> PriceTable:
    if not isinstance(row, dict):
        raise ValueError("price must be a table.")
    unknown = [key for key in row if key not in allowed]
    if unknown:
        raise ValueError(f"price has an unknown key {unknown[0]!r}; known: {', '.join(allowed)}.")
    tiers = [(_whole(tier, "tokens"), _price(tier, (*_PRICE_KEYS, "tokens"))) for tier in row.get("above", [])]
    return PriceTable(
        input=_decimal(row, "input"),
        output=_decimal(row, "output"),
        cache_read=_decimal(row, "cache_read") if "cache_read" in row else None,
        cache_write=_decimal(row, "cache_write") if "cache_write" in row else None,
        cache_write_long=_decimal(row, "cache_write_long") if "cache_write_long" in row else None,
        above=tuple(sorted(tiers, key=lambda tier: tier[0])),
    )
