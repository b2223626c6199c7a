"""Settings: the person's file, the repository's, the environment (`KEEPWARM_…`), then flags; the later one wins."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agent.config_file import NAME, ConfigFile, unknown
from agent.config_values import EFFORTS, MODES, convert
from agent.errors import USAGE, UserError
from agent.project_config import ADDS, may_set, project_counts, project_file

if TYPE_CHECKING:
    from backends.compatible_endpoints import Endpoint

__all__ = ["EFFORTS", "MODES", "Folders", "Loaded", "Origin", "Settings", "load", "load_endpoints", "load_with_origins"]

ENDPOINTS: Final = "endpoints"
VARIABLE: Final = "KEEPWARM_"


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

    max_cost_session: Decimal | None = None
    """Most USD for one session, its pings and summaries included. `off` in a file, variable or flag: no limit."""

    max_cost_day: Decimal | None = None
    """Most USD for a day (from midnight to midnight where you are), over all sessions."""

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

    `config`: config.toml, models.toml and commands/ (the person's own). `data`: ledger.db, output/ (full tool outputs),
    locks/ and trials/ (which local models have passed their trial run). `models`: model files. `cache`: what can be
    made again.
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
    def file(self) -> Path:
        """The person's settings."""
        return self.config / NAME

    @property
    def ledger(self) -> Path:
        return self.data / "ledger.db"

    @property
    def kv(self) -> Path:
        """KV states of local models."""
        return self.cache / "kv"

    def output(self, session: str) -> Path:
        return self.data / "output" / session


Kind = Literal["default", "user", "project", "environment", "flag"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from. `place`: file and line, the variable's name, "the command line"; "" for a default."""

    kind: Kind
    place: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, with the origin of each. `project`: the repository's file, if it has one."""

    settings: Settings
    origins: Mapping[str, Origin]
    project: Path | None


NAMES: Final = tuple(field.name for field in dataclasses.fields(Settings))


def load(
    folders: Folders, env: Mapping[str, str], flags: Mapping[str, object], directory: Path | None = None
) -> Settings:
    """The settings in force for whoever works in `directory` (None: no repository's file counts).

    `flags` holds those given, without Nones. Raises UserError naming the place of a bad value.
    """
    return load_with_origins(folders, env, flags, directory).settings


def load_with_origins(
    folders: Folders, env: Mapping[str, str], flags: Mapping[str, object], directory: Path | None = None
) -> Loaded:
    """As `load`, and where each value comes from."""
    user = ConfigFile.read(folders.file)
    _endpoints(user)
    values: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Settings)}
    origins = dict.fromkeys(NAMES, Origin("default"))

    def take(name: str, value: object, kind: Kind, place: str) -> None:
        values[name] = checked(name, value, place)
        origins[name] = Origin(kind, place)

    for name, value in user.values.items():
        if name != ENDPOINTS:
            take(name, value, "user", user.place(name))
    project = None if directory is None else project_file(directory, folders)
    if project is not None:
        for name, value in project.values.items():
            place = project.place(name)
            may_set(name, place, NAMES, folders.file)
            if name in ADDS:
                mine = values[name]
                take(name, value, "project", place)
                values[name] = (*mine, *values[name])
            elif project_counts(name, checked(name, value, place), values[name]):
                take(name, value, "project", place)
    for name in NAMES:
        variable = VARIABLE + name.upper()
        if env.get(variable):
            take(name, env[variable], "environment", variable)
    for name, value in flags.items():
        take(name, value, "flag", "the command line")
    return Loaded(Settings(**values), origins, None if project is None else project.path)


def checked(name: str, value: object, place: str) -> object:
    """The value of a setting in its own type. Raises UserError naming `place`, with a suggestion for a slip."""
    if name not in NAMES:
        raise unknown(name, place, NAMES)
    return convert(name, value, place)


def check_text(path: Path, text: str) -> None:
    """Raises UserError when `text` would not do as the person's file."""
    file = ConfigFile.parse(path, text)
    _endpoints(file)
    for name, value in file.values.items():
        if name != ENDPOINTS:
            checked(name, value, file.place(name))


def load_endpoints(folders: Folders) -> "dict[str, Endpoint]":
    """The endpoints that speak Chat Completions, by name: the built-in ones with the `[endpoints.NAME]` tables of the
    configuration file over them. Raises UserError naming the place of a bad value.
    """
    return _endpoints(ConfigFile.read(folders.file))


def _endpoints(file: ConfigFile) -> "dict[str, Endpoint]":
    from backends.compatible_endpoints import EndpointError
    from backends.compatible_endpoints import load_endpoints as merged_endpoints

    tables = file.values.get(ENDPOINTS, {})
    if not isinstance(tables, dict):
        raise UserError(f"{file.place(ENDPOINTS)}: endpoints must be tables such as [endpoints.NAME].", USAGE)
    try:
        return merged_endpoints(tables, str(file.path))
    except EndpointError as error:
        for name, table in tables.items():  # again, one by one: which of them is it, and where does it stand?
            try:
                merged_endpoints({name: table}, file.place(ENDPOINTS, name))
            except EndpointError as found:
                raise UserError(str(found), USAGE) from found
        raise UserError(str(error), USAGE) from error
