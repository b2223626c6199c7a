"""`agent models list` and `agent models show`."""

from rich.table import Table

from agent.backend_choice import find_model, load_catalog
from agent.config import Folders
from agent.reports.console import report_console
from backends.catalog import ModelInfo
from backends.llama.models import LocalModel, is_local, megabytes, registry, resolve
from backends.llama.verify import FileState, check, describe


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
        local.add_row(spec.full_name, mark, megabytes(spec.bytes), f"{spec.context:,}", spec.licence, shown)
    console.print(local)
    console.print("Any other GGUF file: local:/path/to/file.gguf\n", style="dim", markup=False)
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


def print_model(name: str, folders: Folders, *, verify: bool) -> None:
    """One model in full.

    `verify` reads the whole file. Raises UserError or ModelError for a name that means nothing.
    """
    if name in registry().models:  # the bare name, as `pull` takes it
        name = registry().models[name].full_name
    if is_local(name):
        _print_local(resolve(name, folders.models), folders, verify=verify)
    else:
        _print_cloud(find_model(name, load_catalog(folders)))


def _print_local(model: LocalModel, folders: Folders, *, verify: bool) -> None:
    state = check(model, folders.models, full=verify and model.present)
    rows = [("model", model.name), ("file", str(model.path))]
    if model.spec is not None:
        spec = model.spec
        rows += [
            ("what", spec.title),
            ("size", f"{spec.bytes:,} bytes"),
            ("SHA-256", spec.sha256),
            ("licence", f"{spec.licence} ({spec.licence_source})"),
            ("context", f"{spec.context:,} tokens"),
        ]
    rows.append(("state", describe(model, state)))
    _print_rows(rows)


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
    _print_rows(rows)


def _print_rows(rows: list[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    report_console().print(table)
