"""From settings to a backend: what is kept between two processes."""

import os
from pathlib import Path

import pytest

from agent.backend_choice import Downloads, find_model, load_catalog, open_backend
from agent.config import Folders, Settings
from backends.base import MemoryWireStore
from backends.llama import probe

pytest_plugins = ["local_models"]


async def test_the_trial_run_of_a_model_happens_once_and_not_in_every_process(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(tmp_path / "config", tmp_path / "data", tmp_path / "models", tmp_path / "cache")
    info = find_model(f"local:{smollm2_path}", load_catalog(folders))
    settings = Settings(context=256, threads=1)
    nothing = Downloads(lambda _: None, lambda _: None, None)
    for trial in (probe._CHILD, "raise SystemExit('a second trial')"):
        monkeypatch.setattr(probe, "_CHILD", trial)
        backend = await open_backend(info, settings, folders, os.environ, MemoryWireStore(), nothing)
        await backend.prepare()
        await backend.aclose()
