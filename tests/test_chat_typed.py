"""What a typed text is: a message, a command or a shell line, and which files it mentions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.chat.typed import Message, Shell, SlashCommand, UnknownCommand, mention, parse

NAMES = ("help", "model", "mode", "审查")
FILES = {"README.md", "src/app.py", "文件.py", "my file.txt", "property.py", "src", "Makefile", "/tmp", "a:3", "odd,"}


def paths(text: str) -> tuple[str, ...]:
    typed = parse(text, NAMES, FILES.__contains__)
    assert isinstance(typed, Message)
    return typed.paths


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("/help", SlashCommand("help", "")),
        ("/model  claude opus \n", SlashCommand("model", "claude opus")),
        ("/model two\nlines", SlashCommand("model", "two\nlines")),
        ("/审查 全部", SlashCommand("审查", "全部")),
        ("/modl x", UnknownCommand("modl", "model")),
        ("/HELP", UnknownCommand("HELP", "help")),
        ("/nothing-like-it", UnknownCommand("nothing-like-it", None)),
        ("!ls -l | wc", Shell("ls -l | wc")),
        ("! git status", Shell("git status")),
        ("!", Message("!")),
        ("/", Message("/")),
        ("/ help", Message("/ help")),
        ("/usr/bin is broken", Message("/usr/bin is broken")),
        ("/home/me/my shot.png", Message("/home/me/my shot.png")),
        ("/tmp is full", Message("/tmp is full")),
        ("// a comment", Message("// a comment")),
        ("/etc.conf", Message("/etc.conf")),
        ("/帮 me", Message("/帮 me")),
        (" /help", Message(" /help")),
        (" !ls", Message(" !ls")),
        ("say /help", Message("say /help")),
        ("\n\n  def f():\n    pass\n\n", Message("  def f():\n    pass")),
        ("", Message("")),
    ],
)
def test_kinds(text: str, typed: object) -> None:
    assert parse(text, NAMES, FILES.__contains__) == typed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("look at @README.md", ("README.md",)),
        ("@src/app.py and @README.md, then @src/app.py again", ("src/app.py", "README.md")),
        ("(see @README.md).", ("README.md",)),
        ("@README.md: why?", ("README.md",)),
        ("@src/app.py:12 and @README.md:3-9 fail", ("src/app.py", "README.md")),
        ("the link @src/app.py#L3-L9", ("src/app.py",)),
        ("@a:3 exists with its colon", ("a:3",)),
        ("@odd, has a comma", ("odd,",)),
        ("the folder @src", ("src",)),
        ('@"my file.txt" and', ("my file.txt",)),
        ("@'my file.txt'", ("my file.txt",)),
        ("@my\\ file.txt too", ("my file.txt",)),
        ("看@文件.py，好吗", ("文件.py",)),
        ("看看@README.md吧", ("README.md",)),
        ("@文件.py吧", ("文件.py",)),
        ("@src/new_one.py is to be written", ("src/new_one.py",)),
        ('@"no such file"', ("no such file",)),
        ("@property\ndef f(self): ...", ()),
        ("@property.py", ("property.py",)),
        ('@app.route("/x") @pytest.fixture @types/node @dataclass(frozen=True)', ()),
        ("write to me@example.org or me@README.md", ()),
        ("numpy@1.2 a@@README.md \\@README.md `@README.md`", ()),
        ("@ README.md @", ()),
        ("@Makefile.", ("Makefile",)),
    ],
)
def test_mentioned_files(text: str, found: tuple[str, ...]) -> None:
    assert paths(text) == found


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).filter(lambda path: path.strip())
)
def test_a_completed_mention_is_found_again(path: str) -> None:
    typed = parse(f"see {mention(path)} please", (), {path}.__contains__)
    assert isinstance(typed, Message)
    assert typed.paths == (path,)


@given(st.text())
def test_every_text_is_something_and_a_message_is_not_changed(text: str) -> None:
    typed = parse(text, NAMES)
    if isinstance(typed, Message):
        assert typed.text == text.strip("\r\n").rstrip()
