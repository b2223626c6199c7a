"""Pytest fixtures. A conftest imports them by name: `from loopback.fixture import anthropic_server`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import ScriptedServer


@pytest.fixture
def anthropic_server(tmp_path: Path) -> Iterator[ScriptedServer]:
    """A running server without a script yet; its log is `anthropic.jsonl` in `tmp_path`."""
    with ScriptedServer(log=tmp_path / "anthropic.jsonl") as server:
        yield server
