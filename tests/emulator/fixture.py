"""Pytest fixtures. A conftest imports them by name: `from emulator.fixture import anthropic_server, emulator`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .anthropic_api import AnthropicApi
from .server import Emulator


@pytest.fixture
def anthropic_server(tmp_path: Path) -> Iterator[Emulator]:
    """A running server that speaks Anthropic's API only, without a script yet; its log is `anthropic.jsonl`."""
    with Emulator(log=tmp_path / "anthropic.jsonl", apis=[AnthropicApi]) as server:
        yield server


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """A running server that speaks all APIs, without a script yet; its log is `emulator.jsonl` in `tmp_path`."""
    with Emulator(log=tmp_path / "emulator.jsonl") as server:
        yield server
