"""A chat on a stepped clock, on each API whose cache has a clock: `pytest_plugins = ["waiting_fixtures"]`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator import Emulator, ManualClock, Reply
from waiting import MODELS, Waiting


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(lambda request: Reply.of("Fine."), clock=ManualClock()) as running:
        yield running


@pytest.fixture(params=MODELS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def waiting(repository: Path, environment: dict[str, str], home: Path, server: Emulator, api: str) -> Waiting:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    return Waiting(repository, environment, server, MODELS[api])
