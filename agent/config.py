"""Settings: from the configuration file, then the environment (`KEEPWARM_…`), then flags; the later one wins."""

import dataclasses
import difflib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from agent.errors import USAGE, UserError
from agent.permission_rules import RuleError, parse_rule
from backends.compatible_endpoints import Endpoint, EndpointError
from backends.compatible_endpoints import load_endpoints as merged_endpoints

_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_ENDPOINTS: Final = "endpoints"
MODES: Final = ("plan", "ask", "edits", "auto")
EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": MODES,
    "effort": EFFORTS,
    "cache_ttl": ("auto", "short", "long"),
    "keepalive": ("auto", "always", "off"),
    "compact": ("auto", "off"),
    "kv_type": ("f16", "q8_0", "q4_0"),
    "lookup": ("auto", "off"),
    "repetition_guard": ("on", "off"),
    "sandbox": ("auto", "off"),
}
_OR_NONE: Final = frozenset({"kv_disk", "gpu_layers", "top_k", "seed"})  # whole numbers that may be 0
_LARGEST: Final = 2**31 - 1  # what llama.cpp and SQLite take alike
_RANGES: Final[Mapping[str, tuple[float, float]]] = {  # numbers that need not be whole
    "temperature": (0, 5),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repeat_penalty": (0.1, 10),
    "frequency_penalty": (-5, 5),
    "presence_penalty": (-5, 5),
    "dry_multiplier": (0, 100),
    "dry_base": (1, 10),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, documented here. A file key, `KEEPWARM_<NAME>` and, where there is one, `--<name>` share one name:
    `tree_budget` has no flag.
    """

    model: str | None = None
    """`anthropic/…`, `openai/…`, `ENDPOINT/…` (docs/endpoints.md), `local/…` or `local:/path.gguf`. None: by the keys
    in the environment, else local.
    """

    mode: str = "ask"
    """What may run without asking: plan (reads only), ask (confirm edits and commands), edits, auto."""

    permissions_allow: tuple[str, ...] = ()
    """Rules such as `shell(git status *)` or `edit(src/**)` for what needs no question (docs/permissions.md)."""

    permissions_ask: tuple[str, ...] = ()
    """Rules for what is asked about in every mode."""

    permissions_deny: tuple[str, ...] = ()
    """Rules for what is refused in every mode. Deny wins over ask, ask over allow."""

    sandbox: str = "auto"
    """Whether commands that nobody was asked about run in a sandbox, where the system has one: auto or off."""

    sandbox_network: bool = False
    """Whether commands in the sandbox may use the network."""

    max_turns: int | None = None
    """Most calls to the model for one command."""

    max_cost: Decimal | None = None
    """Most USD for one command."""

    context: int | None = None
    """Context window of a local model, in tokens. None: what the model was trained for, at most 16,384."""

    threads: int | None = None
    """Threads of a local model. None: one for each physical core."""

    gpu_layers: int | None = None
    """Layers of a local model that the GPU takes, where llama.cpp was built for one. None: all; 0: none."""

    exact: bool = False
    """Reuse of a local model's KV cache only where it makes no difference to the last bit: less is reused, and replies
    at temperature 0 are those of a run without reuse.
    """

    kv_type: str = "f16"
    """Type of the keys and values in a local model's KV cache: f16, q8_0 (about half the memory) or q4_0."""

    kv_memory: int | None = None
    """MB that a local model's KV cache may take. None: a quarter more than its context needs."""

    kv_disk: int = 8
    """GB of disk for the KV states of local models, so that a new process starts warm. 0: none are kept."""

    lookup: str = "auto"
    """Whether a local model's next tokens are guessed from what it has read, where that is faster: auto or off."""

    temperature: float = 0.0
    """Of a local model: 0 takes the likeliest token each time, 1 draws as the model sees it."""

    top_k: int = 40
    """A local model draws among so many of the likeliest tokens. 0: no limit."""

    top_p: float = 0.95
    """It draws among the likeliest tokens that together have this probability. 1: among all."""

    min_p: float = 0.05
    """It draws among tokens of at least this share of the likeliest one's probability. 0: among all."""

    repeat_penalty: float = 1.0
    """What a token's logit is divided by (if negative, multiplied with) when it has come already. 1: nothing."""

    frequency_penalty: float = 0.0
    """What is taken from a token's logit each time that it has come already."""

    presence_penalty: float = 0.0
    """What is taken from a token's logit once it has come."""

    penalty_window: int = 64
    """How many of a reply's last tokens these penalties look at."""

    dry_multiplier: float = 0.0
    """DRY: what is taken from the logit of a token that would repeat a phrase, times `dry_base` for each token by which
    it is longer than `dry_allowed`. 0: nothing.
    """

    dry_base: float = 1.75
    """DRY: how the penalty grows with the phrase."""

    dry_allowed: int = 2
    """DRY: so many tokens in a row may be repeated; the token that would go on with them is penalised."""

    dry_window: int = 2048
    """DRY: how many of a reply's last tokens it looks at."""

    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """DRY: texts over which no repetition reaches. In the environment as a JSON list."""

    xtc_probability: float = 0.0
    """XTC: how often the top choices are left out. 0: never."""

    xtc_threshold: float = 0.1
    """XTC: the probability that makes a token a top choice. The least likely of them stays."""

    lens: bool = False
    """Whether each reply of a local model is written to a page that shows how every token came about."""

    seed: int = 0
    """Of a local model's draws. Equal seeds give equal replies to equal prompts."""

    effort: str | None = None
    """How much a reasoning model thinks: minimal, low, medium, high, xhigh or max. None: the model's default. A change
    in the middle of a session costs the cached history.
    """

    cache_ttl: str = "auto"
    """How long cached prefixes are asked to live: short (Anthropic 5 minutes, OpenAI 30), long (1 hour, 12 hours;
    writing costs more) or auto (layer by layer, what is expected to cost less). `agent run` never asks the long one for
    the conversation: nobody comes back to the tail of a one-shot.
    """

    keepalive: str = "auto"
    """Whether the cache is kept warm while something is waited for: auto (while a ping is expected to save more than it
    costs), always (as long as the limits below allow) or off.
    """

    keepalive_minutes: int = 120
    """How long one such wait is covered."""

    keepalive_session: Decimal = Decimal(2)
    """Most USD for pings in one session."""

    keepalive_day: Decimal = Decimal(5)
    """Most USD for pings in a day, over all sessions."""

    compact: str = "auto"
    """Whether a summary may take the place of the history when the window is full or carrying it costs more: auto or
    off.
    """

    repetition_guard: str = "on"
    """Whether a reply that goes round in circles is cut and the model asked again: on or off."""

    tree_budget: int = 1500
    """Tokens that the tree of files in the PROJECT layer may take."""

    files_budget: int = 4000
    """Tokens that core files and outlines may take there. None are shown to small local models."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where files are kept.

    `config`: config.toml and models.toml. `data`: ledger.db, output/ (full tool outputs), locks/ and trials/ (which
    local models have passed their trial run). `models`: model files. `cache`: what can be made again.
    """

    config: Path
    data: Path
    models: Path
    cache: Path

    @classmethod
    def find(cls, env: Mapping[str, str]) -> "Folders":
        """`KEEPWARM_HOME` for everything when it is set, else the platform's usual places.

        `KEEPWARM_MODELS_DIR` moves the model files alone.
        """
        if home := env.get("KEEPWARM_HOME"):
            config = data = cache = Path(os.path.abspath(os.path.expanduser(home)))
        else:
            import platformdirs

            config = platformdirs.user_config_path("keepwarm", appauthor=False)
            data = platformdirs.user_data_path("keepwarm", appauthor=False)
            cache = platformdirs.user_cache_path("keepwarm", appauthor=False)
        models = env.get("KEEPWARM_MODELS_DIR")
        return cls(config, data, Path(os.path.expanduser(models)) if models else cache / "models", cache)

    @property
    def ledger(self) -> Path:
        return self.data / "ledger.db"

    @property
    def kv(self) -> Path:
        """KV states of local models."""
        return self.cache / "kv"

    def output(self, session: str) -> Path:
        return self.data / "output" / session


def load(folders: Folders, env: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings in force.

    `flags` holds those given, without Nones. Raises UserError naming the place of a bad value.
    """
    path = folders.config / "config.toml"
    told = _read(path)
    _endpoints(told.pop(_ENDPOINTS, {}), path)
    values = _checked(told, str(path))
    for field in dataclasses.fields(Settings):
        name = f"KEEPWARM_{field.name.upper()}"
        if env.get(name):
            values.update(_checked({field.name: env[name]}, name))
    values.update(_checked(flags, "the command line"))
    return Settings(**values)


def load_endpoints(folders: Folders) -> dict[str, Endpoint]:
    """The endpoints that speak Chat Completions, by name: the built-in ones with the `[endpoints.NAME]` tables of the
    configuration file over them. Raises UserError naming the place of a bad value.
    """
    path = folders.config / "config.toml"
    return _endpoints(_read(path).get(_ENDPOINTS, {}), path)


def _endpoints(tables: object, path: Path) -> dict[str, Endpoint]:
    if not isinstance(tables, dict):
        raise UserError(f"{path}: endpoints must be tables such as [endpoints.NAME].", USAGE)
    try:
        return merged_endpoints(tables, str(path))
    except EndpointError as error:
        raise UserError(str(error), USAGE) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # ValueError: bad TOML or bad UTF-8
        raise UserError(f"{path} cannot be read: {error}. Correct it or move it away.", USAGE) from error


def _checked(values: Mapping[str, object], place: str) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(Settings)]
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Settings: {', '.join(known)}."
            raise UserError(f"{place} has an unknown setting {name!r}.{hint}", USAGE)
        checked[name] = _convert(name, value, place)
    return checked


def _convert(name: str, value: object, place: str) -> object:
    def wrong(expected: str) -> UserError:
        return UserError(f"{place}: {name} must be {expected}, not {value!r}.", USAGE)

    match name:
        case "model":
            if not isinstance(value, str) or not value.strip():
                raise wrong("the name of a model")
            return value.strip()
        case "exact" | "lens" | "sandbox_network":
            if (told := str(value).lower()) not in _YES + _NO:
                raise wrong("true or false")
            return told in _YES
        case "dry_breakers":
            return _texts(value, wrong("a list of texts"))
        case "permissions_allow" | "permissions_ask" | "permissions_deny":
            rules = _texts(value, wrong("a list of rules"))
            try:
                list(map(parse_rule, rules))
            except RuleError as error:
                raise UserError(f"{place}: {name}: {error}", USAGE) from None
            return rules
        case _ if name in _RANGES:
            return _number(value, *_RANGES[name], wrong)
        case _ if name in _CHOICES:
            if value not in _CHOICES[name]:
                raise wrong(f"one of {', '.join(_CHOICES[name])}")
            return value
        case "max_cost" | "keepalive_session" | "keepalive_day":
            try:
                cost = Decimal(str(value))
            except InvalidOperation:
                raise wrong("an amount in USD") from None
            if not cost.is_finite() or cost <= 0:
                raise wrong("an amount above 0 in USD")
            return cost
        case _:
            try:
                number = int(str(value))
            except ValueError:
                raise wrong("a whole number") from None
            least = 0 if name in _OR_NONE else 1
            if isinstance(value, bool) or number < least:
                raise wrong(f"a whole number {'from 0 on' if name in _OR_NONE else 'above 0'}")
            if number > _LARGEST:
                raise wrong(f"a whole number up to {_LARGEST}")
            return number


def _number(value: object, least: float, most: float, wrong: Callable[[str], UserError]) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise wrong(f"a number from {least:g} to {most:g}") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise wrong(f"a number from {least:g} to {most:g}")
    return number


def _texts(value: object, wrong: UserError) -> tuple[str, ...]:
    if isinstance(value, str):  # from the environment
        try:
            value = json.loads(value)
        except ValueError:
            raise wrong from None
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise wrong
    return tuple(value)
