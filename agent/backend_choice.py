"""From a model name to a backend that can be called, downloading a local model when the person agrees."""

import asyncio
import contextlib
import importlib.util
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from agent.bill import Pricing
from agent.config import Folders, Settings, load_endpoints
from agent.errors import USAGE, UserError
from backends.base import Backend, Usage, WireStore
from backends.catalog import Catalog, CatalogError, ModelInfo, default_model
from backends.llama.models import (
    HubName,
    LocalModel,
    ModelError,
    ModelSpec,
    is_local,
    megabytes,
    note_pulled,
    registry,
    resolve,
)
from backends.prices import price

_NO_LLAMA: Final = (
    "{name} runs inside this program by llama.cpp, which is not installed. Nothing was done. "
    "Run: {install} - or set ANTHROPIC_API_KEY and use a cloud model."
)

ONLY_LOCAL: Final = (
    "The lens looks into models that run inside this program; {name} runs elsewhere. Nothing was sent. "
    "Choose one of `agent models list`: --model local/…"
)

if TYPE_CHECKING:
    from backends.llama.fetch import FetchProgress
    from backends.llama.loaded import KvOptions
    from backends.llama.sampling import Sampling


def load_catalog(folders: Folders) -> Catalog:
    """The model catalogue with the person's own models.toml over it. Raises UserError for one that makes no sense."""
    try:
        return Catalog.load(folders.config / "models.toml", load_endpoints(folders))
    except CatalogError as error:
        raise UserError(str(error), USAGE) from error


def find_model(name: str, catalog: Catalog) -> ModelInfo:
    try:
        return catalog.find(name)
    except CatalogError as error:
        if name in registry().models:
            raise UserError(f"No model {name!r}. Did you mean local/{name}?", USAGE) from error
        raise UserError(str(error), USAGE) from error


def choose_model(settings: Settings, env: Mapping[str, str]) -> str:
    """The model in force: the one that was named, else what the keys in the environment allow, else the local
    default.
    """
    return settings.model or default_model(env)


class Downloads:
    """How a download is shown and agreed to. `agree` is None when nobody can be asked: then it just happens."""

    def __init__(
        self,
        progress: "Callable[[FetchProgress], None]",
        announce: Callable[[str], None],
        agree: Callable[[str], Awaitable[bool]] | None,
    ) -> None:
        self.progress = progress
        self.announce = announce
        self.agree = agree


async def fetch_model(
    name: str, folders: Folders, env: Mapping[str, str], downloads: Downloads, *, replace_wrong: bool = False
) -> LocalModel:
    """The local model `name` with its file in place. `replace_wrong`: a file that is not the model is fetched anew.

    Raises UserError when the person declines, BackendError otherwise.
    """
    from backends.llama.models import download_question
    from backends.llama.verify import ready_path

    model = resolve(name, folders.models)
    if model.present or not (model.spec or model.from_hub):
        try:
            await asyncio.to_thread(ready_path, model, folders.models)
            return model
        except ModelError as error:
            if model.spec is None or not replace_wrong:
                raise
            downloads.announce(f"{error} It is replaced.")
    from backends.llama.fetch import fetch_all
    from backends.llama.hub import find_on_hub
    from backends.llama.sources import Source, default_sources

    hub_name = HubName.parse(name)  # of these the hub says anew what it has: it may have changed since
    spec = model.spec if hub_name is None else await find_on_hub(hub_name)
    if spec is None:
        raise ModelError(f"There is no model {name}.")
    titles = [source.title for source in default_sources(spec, folders.models, env)]
    if downloads.agree is None:
        downloads.announce(f"Downloading {spec.full_name}: {megabytes(spec.total_bytes)} from {' or '.join(titles)}.")
    elif not await downloads.agree(download_question(spec, titles)):
        raise UserError("Nothing was downloaded. Name another model with --model, or a file with local:/path.gguf.")
    if hub_name is not None:
        note_pulled(spec, folders.models)

    def sources_of(file: ModelSpec) -> tuple[Source, ...]:
        return default_sources(file, folders.models, env)

    path = await fetch_all(spec, folders.models, sources_of, progress=downloads.progress, announce=downloads.announce)
    return LocalModel(spec.full_name, path, True, spec)


async def open_backend(
    info: ModelInfo,
    settings: Settings,
    folders: Folders,
    env: Mapping[str, str],
    wires: WireStore,
    downloads: Downloads,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Backend:
    """A backend for the model. The SDK or the model file loads on `prepare` or at the first call. `now` is for what a
    provider dates.
    """
    if is_local(info.name):
        from backends.llama.native import INSTALL

        if importlib.util.find_spec("llama_cpp") is None:  # asked before a gigabyte is downloaded for nothing
            raise UserError(_NO_LLAMA.format(name=info.name, install=INSTALL))
        processors = os.cpu_count() or 1
        if settings.threads is not None and settings.threads > processors:  # more only wait for each other
            raise UserError(f"This machine has {processors} processors; threads must be from 1 to {processors}.", USAGE)
        model = await fetch_model(info.name, folders, env, downloads)
        from agent.lens_pages import LensPages
        from backends.llama.backend import LlamaBackend

        loop = asyncio.get_running_loop()

        def warn(line: str) -> None:
            """From another thread."""
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(downloads.announce, line)

        pages = LensPages(info.name, sampling_of(settings), folders.data / "lens", now, warn)
        return LlamaBackend(
            model.path,
            name=info.name,
            wires=wires,
            context=settings.context,
            threads=settings.threads,
            gpu_layers=settings.gpu_layers,
            sampling=sampling_of(settings),
            state=folders.data / "trials",
            cache=_kv_options(settings, folders),
            lens=pages.write if settings.lens else None,
            warn=warn,
        )
    if settings.lens:
        raise UserError(ONLY_LOCAL.format(name=info.name), USAGE)
    if info.provider == "anthropic":
        from backends.anthropic import AnthropicBackend

        return AnthropicBackend(info, env=env, wires=wires, now=now)
    if info.provider == "openai":
        from backends.openai import OpenAIBackend

        return OpenAIBackend(info, env=env, wires=wires, now=now)
    if (compatible := load_endpoints(folders).get(info.provider)) is not None:
        from backends.compatible import CompatibleBackend

        return CompatibleBackend(info, compatible.for_model(info.id), env=env, wires=wires, now=now)
    raise UserError(f"{info.name}: this release runs anthropic/…, local and compatible models.", USAGE)


def sampling_of(settings: Settings) -> "Sampling":
    """How a local model's tokens are drawn."""
    from backends.llama.sampling import Sampling

    return Sampling(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        repeat=settings.repeat_penalty,
        frequency=settings.frequency_penalty,
        presence=settings.presence_penalty,
        repeat_window=settings.penalty_window,
        dry_multiplier=settings.dry_multiplier,
        dry_base=settings.dry_base,
        dry_allowed=settings.dry_allowed,
        dry_window=settings.dry_window,
        dry_breakers=settings.dry_breakers,
        xtc_probability=settings.xtc_probability,
        xtc_threshold=settings.xtc_threshold,
        seed=settings.seed,
    )


def _kv_options(settings: Settings, folders: Folders) -> "KvOptions":
    from backends.llama.loaded import KvOptions

    return KvOptions(
        memory=None if settings.kv_memory is None else settings.kv_memory * 1_000_000,
        folder=folders.kv,
        quota=settings.kv_disk * 1_000_000_000,
        kv_type=settings.kv_type,
        exact=settings.exact,
        lookup=settings.lookup != "off",
    )


def pricing(info: ModelInfo) -> Pricing:
    """The prices of one model."""

    def of(usage: Usage, at: datetime) -> tuple[Decimal | None, str | None]:
        found = price(info, usage, at)
        return found.usd, f"{found.source}, {found.date}"

    return of
