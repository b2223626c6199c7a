"""One and the same scripted task on every backend: read, edit, test, answer; then once more in a new process."""

from dataclasses import replace
from pathlib import Path

import pytest
from desk import Desk
from emulator import Edit, Emulator, ManualClock, Read, Shell, play
from scripted_local import LocalScript

from agent.tools import specs

pytest_plugins = ["local_models"]

TASK = (
    Read("price.py"),
    Edit("price.py", "    return price - tax", "    return price + tax"),
    Shell("python3 check.py"),
)
ANSWER = "Fixed price.py:2; check.py passes."
BACKENDS = ("anthropic", "responses", "chat", "local")


def model_of(backend: str, smollm2: Path) -> str:
    return {
        "anthropic": "anthropic/claude-sonnet-5-5",
        "responses": "openai/gpt-6.2-sol",
        "chat": "deepseek/deepseek-v4-pro",
        "local": f"local:{smollm2}",
    }[backend]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_task_passes_on_every_backend(
    backend: str,
    repository: Path,
    environment: dict[str, str],
    home: Path,
    smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if backend != "local":  # past OpenAI's minimum for caching
        (repository / "AGENTS.md").write_text("Keep functions small. " * 80)
    clock = ManualClock()
    with Emulator(play(TASK, answer=ANSWER), clock=clock) as server:
        base = server.env["EMULATOR_DEEPSEEK_BASE_URL"]
        (home / "config.toml").write_text(f'[endpoints.deepseek]\nbase_url = "{base}"\n')
        LocalScript(TASK, ANSWER, specs("compact")).install(monkeypatch)
        desk = Desk(repository, {**environment, "DEEPSEEK_API_KEY": "k"}, server, clock)
        model = model_of(backend, smollm2_path)
        desk.settings = replace(desk.settings, threads=1)  # two would wait for each other where others work too
        desk.run("total() is wrong, mend it", again=False, model=model)

        assert (repository / "price.py").read_text() == "def total(price, tax):\n    return price + tax\n"
        assert desk.answer() == ANSWER
        assert desk.results()[-1].startswith("passed")
        first = desk.calls()
        assert len(first) == len(TASK) + 1
        assert first[-1].usage.cache_read, "what was sent before is read from the cache"

        (repository / "price.py").write_text("def total(price, tax):\n    return price - tax\n")
        desk.run("and once more", model=model)
        assert desk.answer() == ANSWER
        again = desk.calls()[len(first) :]
        assert again[-1].usage.cache_read
        assert again[0].usage.cache_read or backend == "local", "a KV cache ends with its process"
        assert all(call.verdict is not None for call in again)
