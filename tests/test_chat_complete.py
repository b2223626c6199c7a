"""Completion of commands, their arguments and files; quick among very many files."""

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from agent.chat.complete import ChatCompleter
from agent.chat.find_paths import PathFinder

COMMANDS = {"help": "What there is", "model": "Another model", "mode": "Another mode"}
PATHS = ["README.md", "src/app.py", "src/application/views.py", "docs/an app.md", "tests/test_app.py", "src/文件.py"]
COMPLETER = ChatCompleter(lambda: COMMANDS, lambda name, _: ("plan", "ask") if name == "mode" else (), lambda: PATHS)


def completed(text: str, completer: ChatCompleter = COMPLETER) -> list[str]:
    """The whole texts that the completions make."""
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + each.start_position] + each.text for each in found]


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("/", ["/help", "/mode", "/model"]),
        ("/mo", ["/mode", "/model"]),
        ("/MO", ["/mode", "/model"]),
        ("/x", []),
        ("say /mo", []),
        ("/mode ", ["/mode plan", "/mode ask"]),
        ("/help ", []),
        ("@rea", ["@README.md"]),
        (
            "see @app",
            ["see @src/app.py", "see @src/application/views.py", "see @tests/test_app.py", 'see @"docs/an app.md"'],
        ),
        ("@文", ["@src/文件.py"]),
        ("看@文", ["看@src/文件.py"]),
        ('@"docs/an a', ['@"docs/an app.md"']),
        ("@an\\ a", ['@"docs/an app.md"']),
        ("@sapy", ["@src/app.py", "@src/application/views.py", "@tests/test_app.py"]),
        ("me@rea", []),
        ("@rea done", []),
        ("plain", []),
        ("", []),
    ],
)
def test_what_is_offered(text: str, results: list[str]) -> None:
    assert sorted(completed(text)) == sorted(results)


def test_each_command_says_what_it_does() -> None:
    first = next(iter(COMPLETER.get_completions(Document("/mode"), CompleteEvent())))
    assert first.display_meta_text == "Another mode"


def test_the_best_come_first() -> None:
    finder = PathFinder(["a/x_app.py", "app/other.py", "lib/app.py", "apple/tree/app.py", "a/p/p.txt"])
    assert finder.find("app", 10) == ["lib/app.py", "apple/tree/app.py", "a/x_app.py", "app/other.py", "a/p/p.txt"]
    assert finder.find("app", 2) == ["lib/app.py", "apple/tree/app.py"]
    assert finder.find("", 1) == ["a/p/p.txt"]


@given(st.lists(st.text("aAb/.\n", min_size=1)), st.text("aAb/.", max_size=4))
def test_every_path_with_these_characters_in_order_is_found(paths: list[str], wanted: str) -> None:
    found = PathFinder(paths).find(wanted, len(paths) + 1)

    def has(path: str) -> bool:
        left = iter(path.lower())
        return all(char in left for char in wanted.lower())

    assert sorted(found) == sorted(path for path in paths if "\n" not in path and has(path))


def test_the_list_is_looked_through_once_while_it_stays_the_same() -> None:
    asked = 0

    def paths() -> list[str]:
        nonlocal asked
        asked += 1
        return PATHS if asked < 3 else ["fresh.py"]

    completer = ChatCompleter(dict, lambda *_: (), paths)
    assert completed("@fresh", completer) == []
    assert completed("@fresh", completer) == []
    assert completed("@fresh", completer) == ["@fresh.py"]


async def test_files_are_listed_in_a_thread() -> None:
    threads: list[int] = []

    def paths() -> list[str]:
        threads.append(threading.get_ident())
        return PATHS

    completer = ChatCompleter(dict, lambda *_: (), paths)
    found = [each.text async for each in completer.get_completions_async(Document("@read"), CompleteEvent())]
    assert found == ["@README.md"]
    assert threads
    assert threads[0] != threading.get_ident()


def test_a_search_that_nobody_wants_any_more_stops() -> None:
    finder = PathFinder([f"folder/name{number}.py" for number in range(50_000)])
    asked: list[bool] = []
    assert finder.find("zz", 50, lambda: len(asked) > 1 or asked.append(True) is not None) == []
    assert len(asked) <= 2


def test_a_key_among_100_000_files_takes_under_50_ms() -> None:
    chance = random.Random(7)
    words = (
        "src",
        "lib",
        "core",
        "agent",
        "config",
        "service",
        "handler",
        "controller",
        "model",
        "view",
        "test",
        "util",
    )
    paths = [
        "/".join(chance.choice(words) for _ in range(chance.randrange(2, 8))) + f"/{chance.choice(words)}{number}.py"
        for number in range(100_000)
    ]
    finder = PathFinder(paths)
    took_s = {}
    for wanted in ("c", "ct", "ctr", "ctrl", "controller9", "src/lib", "hndlctl", "zqx", "agentconfigpy"):
        started = time.thread_time()  # not the time that other programs take
        finder.find(wanted, 50)
        took_s[wanted] = time.thread_time() - started
    assert sorted(took_s.values())[-2] < 0.05, took_s  # one may have met the garbage collector
