"""Screens as text files under tests/snapshots/. RENEW_SNAPSHOTS=1 writes them anew; look at the difference then."""

import os
from pathlib import Path

_FOLDER = Path(__file__).parent / "snapshots"


def check_snapshot(name: str, screen: str) -> None:
    """`screen` is what the file `name`.txt holds."""
    file = _FOLDER / f"{name}.txt"
    if os.environ.get("RENEW_SNAPSHOTS"):
        file.write_text(screen, encoding="utf-8", newline="")
    assert screen == file.read_text(encoding="utf-8"), f"{file} differs. RENEW_SNAPSHOTS=1 writes it anew."
