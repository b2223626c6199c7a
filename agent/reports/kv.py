"""`agent cache ls`: KV states of local models on disk."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from agent.reports.console import report_console
from backends.llama.kv_store import Kept
from backends.llama.models import megabytes
from context.names import show_name


def to_json(found: Sequence[Kept]) -> list[dict[str, Any]]:
    return [
        {
            "folder": show_name(str(one.folder)),
            **one.about,
            "bytes": one.bytes,
            "files": one.files,
            "longest_tokens": one.longest,
            "used": None if one.used is None else datetime.fromtimestamp(one.used, UTC).isoformat(timespec="seconds"),
        }
        for one in found
    ]


def print_kept(found: Sequence[Kept], root: Path, quota_gb: int) -> None:
    console = report_console()
    table = Table(box=None, pad_edge=False)
    for name in ("model", "keys and values"):
        table.add_column(name)
    for name in ("size", "states", "longest", "last used"):
        table.add_column(name, justify="right")
    for one in found:
        used = "never" if one.used is None else datetime.fromtimestamp(one.used).astimezone().strftime("%Y-%m-%d %H:%M")
        about = (one.about.get("model", "unknown"), one.about.get("keys and values", "unknown"))
        table.add_row(*about, megabytes(one.bytes), f"{one.files:,}", f"{one.longest:,} tokens", used)
    if found:
        console.print(table)
    total = sum(one.bytes for one in found)
    console.print(f"{megabytes(total)} of {quota_gb} GB in {show_name(str(root))}", style="dim", soft_wrap=True)
