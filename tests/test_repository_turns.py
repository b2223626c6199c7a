"""The repository changes between turns: the prefix stays as it is, and each change is told once, at the tail."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from desk import NO_DOWNLOADS, Desk
from emulator import Edit, Emulator, ManualClock, Read, Shell, play
from emulator.bodies import assert_extends
from reopen_child import ClockFrom
from scripted_local import LocalScript

from agent.backend_choice import Downloads
from agent.config import Folders, Settings
from agent.events import TurnEnd
from agent.ledger import Ledger
from agent.oneshot import run_once
from agent.opening import Surroundings, Task, open_conversation
from agent.tools import specs

pytest_plugins = ["local_models"]

BACKENDS = {
    "anthropic": "anthropic/claude-sonnet-5-5",
    "responses": "openai/gpt-6.2-sol",
    "chat": "deepseek/deepseek-v4-pro",
}


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(play([]), clock=ManualClock()) as running:
        yield running


@pytest.fixture(params=BACKENDS)
def desk(
    request: pytest.FixtureRequest, repository: Path, environment: dict[str, str], home: Path, server: Emulator
) -> Desk:
    base = server.env["EMULATOR_DEEPSEEK_BASE_URL"]
    (home / "config.toml").write_text(f'[endpoints.deepseek]\nbase_url = "{base}"\n')
    (repository / "AGENTS.md").write_text("".join(f"{rule}. Keep module {rule} small.\n" for rule in range(150)))
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, {**environment, "DEEPSEEK_API_KEY": "k"}, server, server.clock)
    desk.settings = replace(desk.settings, model=BACKENDS[request.param], compact="off")
    return desk


def git(root: Path, env: Mapping[str, str], *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, env=env, check=True, capture_output=True)


def texts(value: object) -> Iterator[str]:
    match value:
        case dict():
            yield from (text for each in value.values() for text in texts(each))
        case list():
            yield from (text for each in value for text in texts(each))
        case str():
            yield value


def noticed(server: Emulator) -> list[str]:
    """All notices in the last request, in order."""
    found = [text for text in texts(json.loads(server.requests[-1].raw)) if "<notice>\n" in text]
    return [part.partition("\n</notice>")[0] for text in found for part in text.split("<notice>\n")[1:]]


Step = tuple[Callable[[], object], list[str]]
"""Something that happens between two turns, and what the model is told of it."""

ONCE = ("+# one", "New files (1):\nnotes.txt", "+150. Be brief.", "on branch other", "test.py is gone")


def everything_changes(
    root: Path, env: Mapping[str, str], pass_midnight: Callable[[], object], midnight: datetime
) -> list[Step]:
    """Nineteen steps, for a model that has seen price.py, check.py and the house rules."""

    def write(name: str, text: str) -> Callable[[], object]:
        return lambda: (root / name).write_text(text)

    price = "def total(price, tax):\n    return price + tax\n"
    return [
        (lambda: None, []),
        (
            write("price.py", price),
            ["price.py has changed since you saw it, and not by you:\n", "+    return price + tax"],
        ),
        (lambda: None, []),
        (write("price.py", price + "# one\n"), ["+# one"]),
        (write("notes.txt", "n"), ["New files (1):\nnotes.txt"]),
        (
            lambda: (root / "notes.txt").rename(root / "renamed.txt"),
            ["New files (1):\nrenamed.txt", "gone (1):\nnotes.txt"],
        ),
        (lambda: (root / "renamed.txt").unlink(), ["Files that are gone (1):\nrenamed.txt"]),
        (
            lambda: (root / "check.py").rename(root / "test.py"),
            ["check.py is now called test.py; its content is the same."],
        ),
        (lambda: git(root, env, "checkout", "-q", "-b", "other"), ["Git is now on branch other."]),
        (
            write("AGENTS.md", (root / "AGENTS.md").read_text() + "150. Be brief.\n"),
            ["AGENTS.md has changed", "+150. Be brief."],
        ),
        (pass_midnight, [f"The date is now {midnight:%Y-%m-%d}."]),
        (lambda: (root / "test.py").unlink(), ["test.py is gone."]),
        (write("price.py", "x = 1\n" * 900), ["price.py has changed since you saw it, in 903 lines: read it again"]),
        (write("price.py", "x = 2\n" * 900), []),  # it has been told to read it again, and has not
        (lambda: (root / "price.py").write_text(price), []),
        (lambda: git(root, env, "stash", "-q"), ["AGENTS.md has changed", "-150. Be brief."]),
        (lambda: git(root, env, "checkout", "-q", "-"), ["Git is now on branch "]),
        (lambda: None, []),
        (write("last.py", "l"), ["New files (1):\nlast.py"]),
    ]


def test_twenty_turns_between_which_everything_changes(desk: Desk, server: Emulator) -> None:
    now = datetime.fromtimestamp(desk.clock.now()).astimezone()
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    desk.clock.shared.advance((midnight - now).total_seconds() - 120)
    git(desk.repository, desk.env, "add", ".")
    git(desk.repository, desk.env, "commit", "-qm", "rules")
    server.play(play([Read("price.py"), Read("check.py")]))
    desk.run("look", again=False)
    told = noticed(server)

    steps = everything_changes(desk.repository, desk.env, lambda: desk.pause(2.5), midnight)
    server.play(play([]))
    for number, (change, says) in enumerate(steps):
        change()
        desk.run(f"turn {number}")
        assert noticed(server)[: len(told)] == told, "what was told stays as it was"
        new = "\n".join(noticed(server)[len(told) :])
        told = noticed(server)
        for text in says:
            assert text in new, (number, new)
        if not says:
            assert new == "", number
    for before, after in pairwise(server.requests):
        assert_extends(before, after)
    whole = "\n".join(told)
    for once in ONCE:
        assert whole.count(once) == 1, once


def test_the_models_own_edits_are_not_told_back(desk: Desk, server: Emulator) -> None:
    edit = Edit("price.py", "    return price - tax", "    return price + tax")
    server.play(play([Read("price.py"), edit, Shell("python3 check.py")]))
    desk.run("mend it", again=False)
    before = noticed(server)
    server.play(play([]))
    desk.run("and now?")
    assert [text for text in noticed(server)[len(before) :] if "price.py" in text] == []


def test_a_persons_edit_between_read_and_edit_is_not_overwritten(desk: Desk, server: Emulator) -> None:
    """Field report 154 is its other half: an edit from outside is noticed, and told once."""
    server.play(play([Read("price.py")]))
    desk.run("look", again=False)
    (desk.repository / "price.py").write_text("def total(price, tax):\n    return price * (1 + tax)\n")
    server.play(play([Edit("price.py", "    return price - tax", "    return price + tax")]))
    desk.run("now mend it")
    assert "price * (1 + tax)" in (desk.repository / "price.py").read_text()
    assert "+    return price * (1 + tax)" in noticed(server)[-1]
    server.play(play([]))
    desk.run("and now?")
    assert "\n".join(noticed(server)).count("+    return price * (1 + tax)") == 1


def test_rules_of_a_folder_are_told_when_a_file_below_it_is_first_read(desk: Desk, server: Emulator) -> None:
    (desk.repository / "api/v1").mkdir(parents=True)
    (desk.repository / "api/AGENTS.md").write_text("Every answer is JSON.\n")
    (desk.repository / "api/v1/AGENTS.md").write_text("Nothing may change here.\n")
    for name in ("api/a.py", "api/v1/b.py", "api/v1/c.py"):
        (desk.repository / name).write_text("x = 1\n")
    server.play(play([Read("api/a.py"), Read("api/v1/b.py"), Read("api/v1/c.py")]))
    desk.run("look", again=False)
    results = desk.results()
    assert "Every answer is JSON." in results[0]
    assert "Nothing may change" not in results[0]
    assert "Nothing may change here." in results[1]
    assert "Every answer" not in results[1], "once"
    assert "AGENTS.md" not in results[2]
    assert "Every answer" not in server.requests[0].raw.decode(), "not before"
    (desk.repository / "api/AGENTS.md").write_text("Every answer is XML.\n")
    server.play(play([]))
    desk.run("go on")
    assert "+Every answer is XML." in noticed(server)[-1]


def test_the_persons_own_rules_are_part_of_the_snapshot(desk: Desk, server: Emulator, home: Path) -> None:
    (home / "AGENTS.md").write_text("Answer in French.\n")
    desk.run("look", again=False)
    assert "The user's own rules:\\nAnswer in French." in server.requests[0].raw.decode()
    (home / "AGENTS.md").write_text("Answer in German.\n")
    desk.run("go on")
    assert "+Answer in German." in noticed(server)[-1]
    assert_extends(server.requests[0], server.requests[1])


def test_a_file_that_the_person_shows_is_in_the_snapshot_or_goes_with_the_command(desk: Desk, server: Emulator) -> None:
    (desk.repository / "deep").mkdir()
    (desk.repository / "deep/secret_recipe.txt").write_text("Add salt.\n")
    desk.run("look", again=False, files=("deep/secret_recipe.txt",))
    assert "File deep/secret_recipe.txt:\\nAdd salt." in server.requests[0].raw.decode()
    desk.run("and this", files=("price.py",))
    assert "The user shows you price.py:\ndef total" in noticed(server)[-1]
    (desk.repository / "deep/secret_recipe.txt").write_text("Add pepper.\n")
    (desk.repository / "price.py").write_text("x = 1\n")
    desk.run("go on")
    assert "+Add pepper." in noticed(server)[-1]
    assert "+x = 1" in noticed(server)[-1]
    assert_extends(server.requests[1], server.requests[2])


@pytest.mark.usefixtures("measured")
async def test_on_a_local_model_the_tokens_of_what_was_sent_are_reused_though_files_change(
    repository: Path,
    environment: dict[str, str],
    smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One process, twenty turns, real weights and KV cache: each call reads again only what is new."""
    (repository / "AGENTS.md").write_text("Keep it small.\n")
    git(repository, environment, "add", ".")
    git(repository, environment, "commit", "-qm", "rules")
    LocalScript((Read("price.py"), Read("check.py")), "Seen.", specs("compact")).install(monkeypatch)
    midnight = (datetime.now().astimezone() + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    clock = ClockFrom(midnight.timestamp() - 3600)
    nothing = Downloads(lambda _: None, lambda _: None, None)
    around = Surroundings(environment, clock, lambda: 0.0, lambda _: None, nothing, None)
    settings = Settings(model=f"local:{smollm2_path}", mode="auto", threads=1, compact="off")
    folders = Folders.find(environment)
    steps = everything_changes(repository, environment, lambda: clock.pass_by(2 * 3600), midnight)
    async with open_conversation(Task("look", repository), settings, folders, around) as conversation:
        await conversation.turn("What do these files do?")
        LocalScript((), "As before.", specs("compact")).install(monkeypatch)
        for number, (change, says) in enumerate(steps):
            await asyncio.to_thread(change)
            known = conversation.session.prompt.length
            finished = await conversation.turn(f"What do these files do now, in turn {number}?")
            assert finished.end is TurnEnd.DONE, finished.message
            command = list(conversation.session.prompt)[known].text
            assert all(text in command for text in says), (number, command)
        session = conversation.session
        calls = session.ledger.calls(session.id)
    told = "\n".join(block.text for block in session.prompt if "<notice>" in block.text)
    for once in ONCE:
        assert told.count(once) == 1
    for before, call in pairwise(calls):
        assert before.usage.input_total is not None
        assert before.usage.output is not None
        assert (call.usage.cache_read or 0) >= before.usage.input_total + before.usage.output - 2


def test_in_another_directory_its_files_are_not_told_as_changes(desk: Desk, server: Emulator) -> None:
    desk.run("look", again=False)
    other = desk.repository.parent / "other"
    other.mkdir()
    (other / "elsewhere.py").write_text("x")
    with Ledger.open(desk.folders.ledger) as ledger:
        (row,) = ledger.sessions()
    around = Surroundings(desk.env, desk.clock, lambda: 0.0, desk.seen.append, NO_DOWNLOADS, None)
    task = Task("go on there", other, session=row.id)
    assert asyncio.run(run_once(task, desk.settings, desk.folders, around)) == 0
    assert f"The working directory is now {other}." in noticed(server)[-1]
    assert "elsewhere.py" not in noticed(server)[-1]
    assert_extends(server.requests[0], server.requests[1])


def test_rules_behind_a_link_are_one_file_and_rules_outside_are_never_told(
    desk: Desk, server: Emulator, tmp_path: Path
) -> None:
    rules = desk.repository / "AGENTS.md"
    rules.rename(desk.repository / "CLAUDE.md")
    rules.symlink_to("CLAUDE.md")
    server.play(play([Read("AGENTS.md"), Edit("AGENTS.md", "0. Keep module 0 small.\n", "")]))
    desk.run("mend it", again=False)
    server.play(play([]))
    desk.run("and now?")
    assert noticed(server) == [], "its own edit"
    outside = tmp_path / "key"
    outside.write_text("private 1\n")
    rules.unlink()
    rules.symlink_to(outside)
    desk.run("look", again=False)
    outside.write_text("private 2\n")
    desk.run("and now?")
    assert "private" not in server.requests[-1].raw.decode()


async def test_what_changes_before_the_first_command_is_told_with_it(desk: Desk, server: Emulator) -> None:
    """A chat takes its snapshot when it opens; the person types, and saves a file meanwhile."""
    around = Surroundings(desk.env, desk.clock, lambda: 0.0, desk.seen.append, NO_DOWNLOADS, None)
    task = Task("", desk.repository)
    async with open_conversation(task, desk.settings, desk.folders, around) as conversation:
        (desk.repository / "AGENTS.md").write_text("Be brief.\n")
        (desk.repository / "new.py").write_text("x")
        git(desk.repository, desk.env, "checkout", "-q", "-b", "other")
        await conversation.turn("look")
        told = "\n".join(noticed(server))
        assert "AGENTS.md has changed since you saw it" in told
        assert "New files (1):\nnew.py" in told
        assert "Git is now on branch other." in told
        await conversation.turn("and now?")
    assert "\n".join(noticed(server)) == told
