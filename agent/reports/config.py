"""`agent config`: each setting, its value and where it comes from."""

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from agent.config import NAMES, VARIABLE, Folders, Loaded, load_endpoints, load_with_origins
from agent.reports.console import report_console
from context.names import show_name

_OTHER_VARIABLES: Final = frozenset({"KEEPWARM_HOME", "KEEPWARM_MODELS_DIR"})


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """`endpoints`: names of those that the person's file describes. `warnings`: one line each."""

    loaded: Loaded
    endpoints: tuple[str, ...]
    file: Path
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        settings = {}
        for name in NAMES:
            value, origin = getattr(self.loaded.settings, name), self.loaded.origins[name]
            plain = str(value) if isinstance(value, Decimal) else value
            settings[name] = {"value": plain, "from": origin.kind, "place": origin.place or None}
        project = None if self.loaded.project is None else show_name(str(self.loaded.project))
        files = {"user": show_name(str(self.file)), "project": project}
        return {"settings": settings, "endpoints": self.endpoints, "files": files, "warnings": self.warnings}


def config_report(folders: Folders, env: Mapping[str, str], directory: Path) -> ConfigReport:
    """What is in force in `directory`. Raises UserError for a file or variable that makes no sense."""
    loaded = load_with_origins(folders, env, {}, directory)
    own = tuple(endpoint.name for endpoint in load_endpoints(folders).values() if not endpoint.built_in)
    return ConfigReport(loaded, own, folders.file, tuple(_strange_variables(env)))


def print_config(report: ConfigReport) -> None:
    """A table on standard output; what else there is to say on standard error."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("setting", "value", "from"):
        table.add_column(title, overflow="fold")
    for name in NAMES:
        origin = report.loaded.origins[name]
        shown = Text(show_name(_shown(getattr(report.loaded.settings, name))))
        style = "dim" if origin.kind == "default" else ""
        table.add_row(name, shown, Text(_from(origin.kind, origin.place)), style=style)
    for endpoint in report.endpoints:
        table.add_row(f"endpoints.{endpoint}", "", Text(show_name(str(report.file))))
    report_console().print(table)
    for warning in report.warnings:
        sys.stderr.write(f"agent: {warning}\n")


def _from(kind: str, place: str) -> str:
    return f"{place} (of this repository)" if kind == "project" else place or kind


def _shown(value: object) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return str(value).lower()
        case tuple():
            return " ".join(repr(text) for text in value)
        case _:
            return str(value)


def _strange_variables(env: Mapping[str, str]) -> list[str]:
    known = {*(VARIABLE + name.upper() for name in NAMES), *_OTHER_VARIABLES}
    told = []
    for name in sorted(env):
        if name.startswith(VARIABLE) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            told.append(f"{show_name(name)} in the environment is no setting.{hint}")
    return told
