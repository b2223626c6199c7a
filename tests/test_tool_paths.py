"""Paths of models: resolved through every link, found again by what was shown, printable."""

import os
import unicodedata

import pytest
from tool_support import call, make_context, needs_permission_bits

from agent.tools.base import ToolError
from agent.tools.paths import resolve, show
from context.names import show_name


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def test_relative_paths_start_at_the_root_and_dots_are_followed(context):
    assert resolve("src/../a.py", context) == context.root / "a.py"
    assert resolve("../other", context) == context.root.parent / "other"
    assert resolve("/etc/hosts", context).is_absolute()
    assert resolve("~/x", context) == context.root.parent / "x"


def test_symlinks_are_followed_before_dots(context, tmp_path):
    outside = tmp_path.resolve() / "outside" / "deep"
    outside.mkdir(parents=True)
    (context.root / "link").symlink_to(outside)
    assert resolve("link/secret", context) == outside / "secret"
    assert resolve("link/../x", context) == outside.parent / "x"


def test_a_link_to_a_file_that_does_not_exist_is_followed_too(context, tmp_path):
    (context.root / "out").symlink_to(tmp_path.resolve() / "nowhere")
    assert resolve("out", context) == tmp_path.resolve() / "nowhere"


def test_a_loop_of_links_is_one_clear_line(context):
    (context.root / "a").symlink_to("b")
    (context.root / "b").symlink_to("a")
    with pytest.raises(ToolError, match=r"loop|symbolic link"):
        resolve("a/x", context)


@pytest.mark.parametrize("given", ["", "  ", "a\0b", "\ud83d"])
def test_what_cannot_be_a_path_is_refused(context, given):
    with pytest.raises(ToolError):
        resolve(given, context)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", {}),
        ("write", {"content": "x"}),
        ("edit", {"old": "a", "new": "b"}),
        ("edit", {"old": "", "new": "b"}),
        ("search", {"pattern": "x"}),
        ("find", {"pattern": "x"}),
    ],
)
@pytest.mark.parametrize("path", ["x" * 5_000 + "/y", "x" * 300, "new/" + "x" * 300 + "/y"])
async def test_a_name_longer_than_any_file_system_allows(context, name, arguments, path):
    with pytest.raises(ToolError, match=r"too long|no such file"):
        await call(name, context, path=path, **arguments)
    assert list(context.root.iterdir()) == []


@needs_permission_bits
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("write", {"content": "x"}), ("edit", {"old": "a", "new": "b"}), ("edit", {"old": "", "new": "b"})],
)
async def test_a_folder_that_may_not_be_entered(context, name, arguments):
    (context.root / "locked").mkdir(mode=0)
    with pytest.raises(ToolError, match="permission denied"):
        await call(name, context, path="locked/sub/a", **arguments)


@pytest.mark.parametrize(
    "name", ["日本語.txt", "a b.txt", "-rf", "emoji 🎉.md", "quo'te\".txt", "back\\slash", "tab\tname"]
)
async def test_odd_names_are_found_as_given(context, name):
    (context.root / name).write_text("content\n")
    assert resolve(name, context) == context.root / name
    assert (await call("read", context, path=name)).text == "content\n"


@pytest.mark.parametrize(
    ("raw", "shown", "also"),
    [
        (b"caf\xe9.txt", "caf\\xe9.txt", ["café.txt", "caf\ufffd.txt", "caf\udce9.txt"]),
        (b"new\nline.txt", "new\\nline.txt", ["new\nline.txt"]),
        (b"red\x1b[31m.txt", "red\\x1b[31m.txt", []),
        ("gnp\u202eexe.txt".encode(), "gnp\\u202eexe.txt", []),
    ],
    ids=["latin-1", "newline", "escape", "direction"],
)
async def test_names_are_shown_safely_and_found_by_what_was_shown(context, raw, shown, also):
    path = context.root / os.fsdecode(raw)
    path.write_text("content\n")
    assert show(path, context.root) == shown
    shown.encode()  # no surrogates
    assert (await call("find", context, pattern="*")).text == shown
    for given in [shown, *also]:
        assert resolve(given, context) == path


def test_composed_and_decomposed_spellings_name_the_same_file(context):
    (context.root / unicodedata.normalize("NFD", "é.txt")).write_text("")
    assert resolve("é.txt", context).exists()


def test_two_files_that_are_shown_alike_are_not_guessed_between(context):
    for raw in (b"a\xe9", b"a\xe8"):
        (context.root / os.fsdecode(raw)).write_text("")
    assert not resolve("a\ufffd", context).exists()


def test_show_is_relative_inside_and_absolute_outside(context):
    assert show(context.root / "src" / "a.py", context.root) == "src/a.py"
    assert show(context.root, context.root) == "."
    assert show_name("/etc/hosts") == "/etc/hosts"


async def test_a_wrong_path_gets_the_likely_one(context):
    (context.root / "src").mkdir()
    (context.root / "src" / "price.py").write_text("x\n")
    for wrong in ("price.py", "/src/price.py", "src/prices.py", "lib/price.py"):
        with pytest.raises(ToolError, match=r"no such file\. Did you mean src/price\.py\?"):
            await call("read", context, path=wrong)
