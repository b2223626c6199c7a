"""What was typed before: across sessions and agents, without secrets, whatever happened to the file."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from filelock import FileLock

from agent.chat.history import InputHistory
from agent.redact import Redactor

HERE, ELSEWHERE = Path("/repo/here"), Path("/repo/elsewhere")
MANY = """
import sys
from pathlib import Path
from agent.chat.history import InputHistory
from agent.redact import Redactor
history = InputHistory(Path(sys.argv[1]), Path("/repo"), Redactor({}), most=100)
for number in range(150):
    history.append_string(f"{sys.argv[2]} {number}")
assert history.problem is None, history.problem
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.jsonl"


def history(file: Path, repository: Path = HERE, env: dict[str, str] | None = None, most: int = 100) -> InputHistory:
    return InputHistory(file, repository, Redactor(env or {}), most)


def entries(of: InputHistory) -> list[str]:
    async def load() -> list[str]:
        return [entry async for entry in of.load()]

    return asyncio.run(load())


def test_this_repository_comes_first_and_the_newest_first(file: Path) -> None:
    first = history(file)
    for text in ("one", "two"):
        first.append_string(text)
    history(file, ELSEWHERE).append_string("far")
    assert entries(history(file)) == ["two", "one", "far"]
    assert entries(history(file, ELSEWHERE)) == ["far", "two", "one"]


def test_typed_again_is_one_entry_at_the_front(file: Path) -> None:
    typing = history(file)
    for text in ("one", "two", "one", "  ", ""):
        typing.append_string(text)
    assert entries(typing) == entries(history(file)) == ["one", "two"]


def test_lines_and_a_long_paste_come_back_as_they_were(file: Path) -> None:
    text = "多行\n\n\ttab\r \u2028 \x85 \"quoted\" 'and' \\n\n" + "x你" * 2_500
    history(file).append_string(text)
    assert entries(history(file)) == [text]
    assert file.stat().st_mode & 0o777 == 0o600


def test_secrets_are_not_kept(file: Path) -> None:
    typing = history(file, env={"THE_API_KEY": "sk-12345678"})
    typing.append_string("use sk-12345678 here")
    assert "sk-12345678" not in file.read_text()
    assert entries(typing) == entries(history(file)) == ["use [secret THE_API_KEY] here"]


def test_a_damaged_file_costs_what_is_damaged(file: Path) -> None:
    history(file).append_string("before")
    with file.open("ab") as opened:
        opened.write(b'\xff\xfe\x00 rubbish\n[1, 2]\n{"text": 3}\nnull\n{"repository": "/repo/here", "text": "torn')
    typing = history(file)
    typing.append_string("after")
    assert typing.problem is None
    assert entries(history(file)) == ["after", "before"]


def test_the_oldest_are_forgotten(file: Path) -> None:
    typing = history(file, most=10)
    for number in range(500):
        typing.append_string(str(number))
    kept = entries(history(file))
    assert kept[:10] == [str(number) for number in range(499, 489, -1)]
    assert len(kept) <= 10 + 200


def test_an_entry_beyond_measure_is_kept_for_this_session(file: Path) -> None:
    typing = history(file)
    typing.append_string("x" * 100_001)
    assert len(entries(typing)) == 1
    assert entries(history(file)) == []


def test_several_agents_lose_nothing(file: Path) -> None:
    agents = [
        subprocess.Popen([sys.executable, "-c", MANY, str(file), name], cwd=ROOT, stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    for agent in agents:
        assert agent.communicate(timeout=60)[1] == b""
    texts = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    for name in ("a", "b"):
        own = [int(text.split()[1]) for text in texts if text.startswith(name)]
        assert own == sorted(own)
        assert own[-1] == 149
    assert 100 <= len(texts) <= 300


def test_what_cannot_be_written_is_told_and_known_to_this_session(file: Path) -> None:
    file.parent.parent.mkdir(exist_ok=True)
    file.parent.write_text("a file where the folder should be")
    typing = history(file)
    typing.append_string("one")
    assert typing.problem is not None
    assert "cannot be written" in typing.problem
    assert entries(typing) == ["one"]


def test_a_file_that_another_program_holds_stops_nobody(file: Path) -> None:
    history(file).append_string("before")
    with FileLock(f"{file}.lock"):
        typing = history(file)
        typing.append_string("one")
    assert typing.problem is not None
    assert "locked" in typing.problem
    assert entries(typing) == ["one", "before"]
