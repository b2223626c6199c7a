"""A local model in full: what is known of it, what its file says about itself, and what it needs in memory here."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from agent.config import Folders
from agent.reports.console import print_rows, report_console
from backends.base import BackendError
from backends.llama.about import About, read_about
from backends.llama.models import LocalModel, megabytes
from backends.llama.native import available_memory
from backends.llama.needs import Need, needs
from backends.llama.verify import FileState, check, describe
from backends.llama.weights import Kind


@dataclass(frozen=True)
class LocalReport:
    """`about` is None for a model that is not here or no GGUF file. `available`: free memory in bytes."""

    model: LocalModel
    state: FileState
    about: About | None
    needs: tuple[Need, ...]
    available: int | None

    def to_json(self) -> dict[str, Any]:
        """Sizes in bytes, contexts in tokens; null is what nobody says."""
        about = None if self.about is None else asdict(self.about)
        spec = self.model.spec
        return {
            "model": self.model.name,
            "file": str(self.model.path),
            "state": self.state.value,
            "sha256": None if spec is None else [file.sha256 for file in spec.files],
            "licence": _licence(self.about, self.model),
            "says": None if about is None else {key: value for key, value in about.items() if key != "layers"},
            "available_memory": self.available,
            "needs": [{**asdict(need), "verdict": need.verdict.name.lower()} for need in self.needs],
        }

    def print(self) -> None:
        spec, about = self.model.spec, self.about
        rows = [("model", self.model.name), ("file", str(self.model.path))]
        if spec is not None:
            rows += [("what", spec.title), ("size", f"{spec.total_bytes:,} bytes")]
            rows += [("SHA-256", file.sha256) for file in spec.files]
        rows.append(("licence", _licence(about, self.model) or "the file does not say"))
        if about is not None:
            rows += _about_rows(about)
        elif spec is not None and spec.context is not None:
            rows.append(("context", f"{spec.context:,} tokens"))
        rows.append(("state", describe(self.model, self.state)))
        print_rows(rows)
        if self.needs:
            self._print_needs()

    def _print_needs(self) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("context", "KV type", "KV cache", "with weights", "on this machine"):
            table.add_column(name, justify="left" if name in ("KV type", "on this machine") else "right")
        for need in self.needs:
            sizes = (megabytes(need.cache), megabytes(need.total))
            table.add_row(f"{need.context:,}", need.kv_type, *sizes, need.verdict.value)
        console = report_console()
        console.print()
        console.print(table)
        if self.available is not None:
            console.print(f"{megabytes(self.available)} of memory are free.", style="dim")


def local_report(model: LocalModel, folders: Folders, *, verify: bool) -> LocalReport:
    """Look at the model's files. `verify` reads them whole. Raises ModelError for a file that cannot be read."""
    state = check(model, folders.models, full=verify and model.present)
    about = None
    if model.present and state is not FileState.NO_GGUF:
        try:
            about = read_about(model.path)
        except BackendError:
            if model.spec is None:
                raise
    available = available_memory()
    return LocalReport(model, state, about, () if about is None else needs(about, available), available)


def _licence(about: About | None, model: LocalModel) -> str | None:
    if model.spec is not None and model.spec.licence:
        return f"{model.spec.licence} ({model.spec.licence_source})"
    if about is not None and about.licence:
        return about.licence
    return None if model.spec is None else f"see {model.spec.licence_source}"


def _about_rows(about: About) -> list[tuple[str, str]]:
    kinds = {
        Kind.ATTENTION: "full attention",
        Kind.WINDOW: f"sliding window of {about.window:,} tokens in some or all layers",
        Kind.RECURRENT: "recurrent: one state stands for all tokens",
        Kind.HYBRID: "hybrid: attention in some layers, states in others",
    }
    template = "none: a base model, which cannot hold a conversation"
    if about.chat_template:
        template = f"yes; tools: {'yes' if about.tools else 'no'}; thinking: {about.thinking}"
    parts = f" in {about.parts} files" if about.parts > 1 else ""
    rows = [
        ("calls itself", about.name or "nothing"),
        ("architecture", about.architecture),
        ("parameters", f"{about.parameters:,}"),
        ("quantisation", about.quantisation or "unknown"),
        ("weights", f"{megabytes(about.bytes)}{parts}"),
        ("context", "the file does not say" if about.context is None else f"{about.context:,} tokens"),
        ("window", kinds[about.kind]),
        ("chat template", template),
        ("vocabulary", f"{_count(about.vocabulary)} tokens ({about.tokenizer or 'unknown'})"),
    ]
    if about.missing:
        rows.append(("cut off", f"{megabytes(about.missing)} of the weights are missing; fetch the file again"))
    if about.layers is None:
        rows.append(("memory", "the file does not say enough to tell"))
    return rows


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
