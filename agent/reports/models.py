"""`agent models list` and `agent models show`."""

import os

from rich.table import Table
from rich.text import Text

from agent.backend_choice import find_model, load_catalog
from agent.cli_parts import print_json
from agent.config import Folders
from agent.errors import USAGE, UserError
from agent.reports.console import print_rows, report_console
from agent.reports.local_model import local_report
from backends.catalog import ModelInfo
from backends.llama.models import (
    BY_PATH,
    REGISTERED,
    HubName,
    is_local,
    megabytes,
    pulled_models,
    registry,
    resolve,
)
from backends.llama.verify import FileState, check
from context.names import show_name


def print_models(folders: Folders) -> None:
    """Local models with their state, then the cloud models of the catalogue."""
    console = report_console()
    local = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("local model", "", "size", "context", "licence", "state"):
        local.add_column(name)
    known = registry()
    for spec in known.models.values():
        model = resolve(spec.full_name, folders.models)
        mark = "default" if spec.name == known.default else ""
        state = check(model, folders.models)
        shown = "not downloaded" if state is FileState.MISSING else state.value
        context = "" if spec.context is None else f"{spec.context:,}"
        local.add_row(spec.full_name, mark, megabytes(spec.bytes), context, spec.licence, shown)
    for model in pulled_models(folders.models):
        if model.spec is not None:
            shown = check(model, folders.models).value if model.present else "not complete"
            name, licence = show_name(model.name), model.spec.licence or "agent models show"
            local.add_row(Text(name), "pulled", megabytes(model.spec.total_bytes), "", licence, shown)
    console.print(local)
    hint = (
        "Any GGUF model of the Hugging Face hub: agent models pull ORG/NAME:QUANT. Any file: local:/path/to/file.gguf\n"
    )
    console.print(hint, style="dim", markup=False)
    cloud = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("cloud model", "context", "most output", "cached from", "a cache read costs"):
        cloud.add_column(name)
    catalog = load_catalog(folders)
    for name in catalog.names():
        if not is_local(name):
            info = catalog.find(name)
            cloud.add_row(
                *(name, f"{info.context:,}", f"{info.max_output:,}", f"{info.min_cache_tokens:,} tokens"),
                f"{info.read.normalize():f} × input",
            )
    console.print(cloud)


def print_model(name: str, folders: Folders, *, verify: bool, as_json: bool = False) -> None:
    """One model in full.

    `name`: a model's name, or the path of a GGUF file. `verify` reads the whole file. Raises UserError or
    ModelError for a name that means nothing.
    """
    if name in registry().models:  # the bare name, as `pull` takes it
        name = registry().models[name].full_name
    elif not is_local(name):
        if name.endswith(".gguf") or os.path.isfile(name):
            name = BY_PATH + name
        elif HubName.parse(name) and resolve(REGISTERED + name, folders.models).spec is not None:
            name = REGISTERED + name
    if not is_local(name):
        info = find_model(name, load_catalog(folders))
        if as_json:
            raise UserError(f"{info.name} is no local model; --json is for those.", USAGE)
        _print_cloud(info)
        return
    report = local_report(resolve(name, folders.models), folders, verify=verify)
    if as_json:
        print_json(report.to_json())
    else:
        report.print()


def _print_cloud(info: ModelInfo) -> None:
    def seconds(value: int | None) -> str:
        return "none" if value is None else f"{value:,} s"

    write_long = "" if info.write_long is None else f", {info.write_long.normalize():f} × for the long time to live"
    rows = [
        ("model", info.name),
        ("context", f"{info.context:,} tokens"),
        ("most output", f"{info.max_output:,} tokens"),
        ("cached from", f"{info.min_cache_tokens:,} tokens"),
        ("cache read", f"{info.read.normalize():f} × the input price"),
        ("cache write", f"{info.write.normalize():f} ×{write_long}"),
        ("time to live", f"{seconds(info.ttl_short)}, long {seconds(info.ttl_long)}"),
        ("facts from", info.source + (" (assumed: no file names this model)" if info.assumed else "")),
    ]
    print_rows(rows)
