"""Real model files for tests. Use it with `pytest_plugins = ["local_models"]` at the top of a test module.

Files are looked for in the folder KEEPWARM_TEST_MODELS, else where Keepwarm itself keeps them, and fetched there once.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import platformdirs
import pytest
import pytest_asyncio
from llama_support import local_backend, note_trial

from backends.llama.backend import LlamaBackend
from backends.llama.fetch import fetch
from backends.llama.models import resolve
from backends.llama.sources import default_sources
from backends.llama.tuning import Tuning
from backends.llama.verify import ready_path


def models_folder() -> Path:
    """Where the model files of tests are."""
    override = os.environ.get("KEEPWARM_TEST_MODELS") or os.environ.get("KEEPWARM_MODELS_DIR")
    return Path(override) if override else platformdirs.user_cache_path("keepwarm", appauthor=False) / "models"


def local_model_path(name: str) -> Path:
    """The verified file of `local/<name>`, fetched if it is not on this machine. Raises ModelError."""
    folder = models_folder()
    model = resolve(name, folder)
    if not model.present and model.spec is not None:
        asyncio.run(fetch(model.spec, folder, default_sources(model.spec, folder, os.environ)))
    return ready_path(model, folder)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2 135M Instruct: 98 MB, small enough to be run in tests."""
    return local_model_path("local/smollm2-135m")


@pytest.fixture
def measured(smollm2_path: Path, home: Path) -> None:
    """Programs that run in `home` find SmolLM2 measured on this machine, which saves them the trial run."""
    note_trial(smollm2_path, home / "trials", Tuning(2, 2))


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Notes on trial runs."""
    return tmp_path_factory.mktemp("trials")


@pytest_asyncio.fixture
async def backend(smollm2_path: Path, trials: Path) -> AsyncIterator[LlamaBackend]:
    """SmolLM2, cold."""
    backend = local_backend(smollm2_path, trials)
    yield backend
    await backend.aclose()
