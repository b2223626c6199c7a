"""A person's own slash commands: where they are found, what they are called, what becomes of their placeholders."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.chat.own_commands import OwnCommand, expand, own_commands
from agent.config import Folders


def commands(home: Path, directory: Path) -> dict[str, OwnCommand]:
    return own_commands(Folders.find({"KEEPWARM_HOME": str(home)}), directory)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "commands" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("Review $ARGUMENTS.", "a.py b.py", "Review a.py b.py."),
        ("From $1 to $2", '"the old one" new', "From the old one to new"),
        ("From $1 to $2", "old", "From old to "),
        ("Say $1", "don't panic", "Say don't"),
        ("Say $1 $ARGUMENTS", "$2 $ARGUMENTS", "Say $2 $2 $ARGUMENTS"),
        (r"\$1 costs $1, \$ARGUMENTS", "5", "$1 costs 5, $ARGUMENTS"),
        ("It costs $10, $0 and $ARGUMENTS_", "x", "It costs $10, $0 and $ARGUMENTS_\n\nx"),
        ("Run the tests.", " only fast ones ", "Run the tests.\n\nonly fast ones"),
        ("Run the tests.", "  ", "Run the tests."),
        ("审查 $1", "价格.py", "审查 价格.py"),
    ],
)
def test_placeholders(text: str, arguments: str, expected: str) -> None:
    assert expand(text, arguments) == expected


@given(st.text(), st.text())
def test_any_text_takes_any_arguments(text: str, arguments: str) -> None:
    expanded = expand(text, arguments)
    if "$" not in text:
        assert expanded == (f"{text}\n\n{arguments.strip()}" if arguments.strip() else text)


@given(st.text())
def test_arguments_are_never_filled_in_themselves(arguments: str) -> None:
    assert expand("<$ARGUMENTS>", arguments) == f"<{arguments.strip()}>"


def test_the_persons_own_one_wins_over_the_repositorys(home: Path, repository: Path) -> None:
    write(repository / ".keepwarm", "review.md", "Theirs")
    write(repository / ".keepwarm", "tests.md", "Run them")
    write(home, "review.md", "Mine")
    found = commands(home, repository)
    assert [(name, command.text, command.source) for name, command in found.items()] == [
        ("review", "Mine", "user"),
        ("tests", "Run them", "project"),
    ]


def test_the_repositorys_are_found_from_a_folder_in_it(home: Path, repository: Path) -> None:
    write(repository / ".keepwarm", "tests.md", "Run them")
    (repository / "src").mkdir()
    assert list(commands(home, repository / "src")) == ["tests"]


def test_front_matter_describes_and_is_not_told(home: Path, repository: Path) -> None:
    write(home, "fix.md", "---\r\ndescription: 'Fix: one issue'\r\narguments: NUMBER\r\nmodel: x\r\n---\r\nFix $1\r\n")
    fix = commands(home, repository)["fix"]
    assert (fix.description, fix.arguments, fix.expand("7")) == ("Fix: one issue", "NUMBER", "Fix 7")


def test_without_front_matter_the_first_line_describes(home: Path, repository: Path) -> None:
    write(home, "long.md", f"# Look\x1b[31m at {'x' * 90}\n---\nmore\n---\n")
    command = commands(home, repository)["long"]
    assert command.description.startswith(r"Look\x1b[31m at xxx")
    assert command.text.count("---") == 2


def test_what_cannot_be_a_command_is_told_and_left_out(home: Path, repository: Path) -> None:
    write(home, "two words.md", "x")
    write(home, "a.b.md", "x")
    write(home, "empty.md", "---\ndescription: nothing\n---\n \n")
    write(home, "huge.md", "x" * 200_000)
    write(home, "bytes.md", "").write_bytes(b"\xff\xfe")
    (home / "commands" / "folder.md").mkdir()
    write(home, "测试.md", "跑一遍测试")
    warnings: list[str] = []
    found = own_commands(Folders.find({"KEEPWARM_HOME": str(home)}), repository, warnings.append)
    assert list(found) == ["测试"]
    assert len(warnings) == 6
    assert all(str(home) in line and "is no command: it" in line for line in warnings)


def test_a_strangers_link_shows_no_file_of_this_machine(home: Path, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = repository / ".keepwarm" / "commands"
    folder.mkdir(parents=True)
    (folder / "show.md").symlink_to(tmp_path / "secret")
    warnings: list[str] = []
    assert own_commands(Folders.find({"KEEPWARM_HOME": str(home)}), repository, warnings.append) == {}
    assert "is a link" in warnings[0]
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert commands(home, repository) == {}


def test_ones_own_links_are_followed(home: Path, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.md").write_text("Mine")
    (home / "commands").mkdir()
    (home / "commands" / "mine.md").symlink_to(tmp_path / "dotfiles.md")
    assert commands(home, repository)["mine"].text == "Mine"
