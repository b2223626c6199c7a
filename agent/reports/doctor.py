"""`agent doctor`: what works on this machine, what does not, and why. It sends nothing anywhere (`probe` does)."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from rich.table import Table
from rich.text import Text

from agent.backend_choice import choose_model, find_model, load_catalog
from agent.config import Folders, load, load_endpoints
from agent.errors import FAILED, UserError
from agent.reports.console import report_console
from backends.base import BackendError
from backends.compatible_endpoints import Endpoint
from backends.llama.models import is_local, registry, resolve
from backends.llama.native import INSTALL
from backends.llama.verify import FileState, check, describe

MARKS: Final = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "bad": "[red]bad[/red]"}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `state`: ok, note (works, but know this), or bad (something that you may want does not work)."""

    name: str
    state: Literal["ok", "note", "bad"]
    detail: str


def checks(env: Mapping[str, str]) -> Iterator[Check]:
    """All findings, the one on the model last: it is bad when `agent run` could not run as things are."""
    folders = Folders.find(env)
    yield Check("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield _settings(folders, env)
    yield _ledger(folders)
    yield _program("git", "the tree of files is walked instead", env)
    yield _program("bash", "commands run in sh", env)
    yield _ripgrep(env)
    yield _anthropic(env)
    yield _openai(env)
    yield from _endpoints(folders, env)
    yield _llama()
    yield _local_model(folders)
    yield _model(folders, env)


def _settings(folders: Folders, env: Mapping[str, str]) -> Check:
    path = folders.config / "config.toml"
    try:
        load(folders, env, {}, Path.cwd())
        load_catalog(folders)
    except UserError as error:
        return Check("settings", "bad", str(error))
    return Check("settings", "ok", str(path) if path.exists() else f"none (would be {path})")


def _ledger(folders: Folders) -> Check:
    from agent.ledger import Ledger

    try:
        with Ledger.open(folders.ledger) as ledger:
            return Check("ledger", "ok", f"{folders.ledger}, {len(ledger.sessions())} sessions")
    except UserError as error:
        return Check("ledger", "bad", str(error))


def _program(name: str, without: str, env: Mapping[str, str]) -> Check:
    found = shutil.which(name, path=env.get("PATH"))
    return Check(name, "ok", found) if found else Check(name, "note", f"not found; {without}")


def _ripgrep(env: Mapping[str, str]) -> Check:
    from agent.tools.base import ToolError
    from agent.tools.ripgrep import find_ripgrep

    try:
        return Check("ripgrep", "ok", find_ripgrep(env.get("PATH", "")))
    except ToolError as error:
        return Check("ripgrep", "bad", str(error))


def _anthropic(env: Mapping[str, str]) -> Check:
    where = env.get("ANTHROPIC_BASE_URL") or "Anthropic's own API"
    if env.get("ANTHROPIC_API_KEY", "").strip() or env.get("ANTHROPIC_AUTH_TOKEN", "").strip():
        return Check("Anthropic", "ok", f"a key is set (not tried here); requests go to {where}")
    return Check("Anthropic", "note", "no key: set ANTHROPIC_API_KEY to use anthropic/… models")


def _openai(env: Mapping[str, str]) -> Check:
    where = env.get("OPENAI_BASE_URL") or "OpenAI's own API"
    if env.get("OPENAI_API_KEY", "").strip():
        return Check("OpenAI", "ok", f"a key is set (not tried here); requests go to {where}")
    return Check("OpenAI", "note", "no key: set OPENAI_API_KEY to use openai/… models")


def _endpoints(folders: Folders, env: Mapping[str, str]) -> Iterator[Check]:
    """Endpoints that are configured or have a key, one by one; the others in one line."""
    try:
        endpoints = load_endpoints(folders)
    except UserError:
        return  # told by the settings
    others = []
    for endpoint in endpoints.values():
        has_key = endpoint.key_env is not None and bool(env.get(endpoint.key_env, "").strip())
        if has_key or not endpoint.built_in:
            yield _endpoint(endpoint, has_key=has_key)
        else:
            others.append(endpoint.name)
    advice = "; see docs/endpoints.md, and `agent doctor --endpoint NAME` tries one"
    yield Check("endpoints", "ok", f"also known: {', '.join(others)}{advice}")


def _endpoint(endpoint: Endpoint, *, has_key: bool) -> Check:
    parts = urlsplit(endpoint.base_url)
    where = f"requests go to {parts.hostname}{f':{parts.port}' if parts.port else ''}"
    if endpoint.key_env is None:
        return Check(endpoint.name, "ok", f"no key is sent; {where}")
    if has_key:
        return Check(endpoint.name, "ok", f"a key is set in {endpoint.key_env} (not tried here); {where}")
    return Check(endpoint.name, "note", f"no key: set {endpoint.key_env} to use {endpoint.name}/… models")


def _llama() -> Check:
    if importlib.util.find_spec("llama_cpp") is None:
        return Check("llama.cpp", "note", f"not installed; local models need it: {INSTALL}")
    from backends.llama.native import library

    try:
        library()
    except BackendError as error:
        return Check("llama.cpp", "bad", str(error))
    version = importlib.metadata.version("llama-cpp-python")
    return Check("llama.cpp", "ok", f"llama-cpp-python {version}, {os.cpu_count()} processors")


def _local_model(folders: Folders) -> Check:
    spec = registry().models[registry().default]
    model = resolve(spec.full_name, folders.models)
    state = check(model, folders.models)
    if state is FileState.MISSING:
        return Check("local model", "note", f"{spec.full_name} is not downloaded yet; `agent models pull {spec.name}`")
    good = state in (FileState.VERIFIED, FileState.UNVERIFIED)
    return Check("local model", "ok" if good else "bad", describe(model, state))


def _model(folders: Folders, env: Mapping[str, str]) -> Check:
    try:
        info = find_model(choose_model(load(folders, env, {}, Path.cwd()), env), load_catalog(folders))
    except UserError as error:
        return Check("model", "bad", str(error))
    if is_local(info.name) and importlib.util.find_spec("llama_cpp") is None:
        return Check("model", "bad", f"`agent run` would use {info.name}, which needs llama.cpp: {INSTALL}")
    endpoint = load_endpoints(folders).get(info.provider)
    if endpoint is not None and endpoint.key_env and not env.get(endpoint.key_env, "").strip():
        return Check("model", "bad", f"`agent run` would use {info.name}, which needs a key: set {endpoint.key_env}")
    return Check("model", "ok", f"`agent run` here uses {info.name}")


def print_checks(env: Mapping[str, str]) -> int:
    """Print all findings; exit code 1 when `agent run` could not run as things are."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    found = list(checks(env))
    for item in found:
        table.add_row(MARKS[item.state], item.name, Text(item.detail))
    report_console().print(table)
    return FAILED if found[-1].state == "bad" or any(c.name == "ledger" and c.state == "bad" for c in found) else 0
