"""`write`: new files, and whole ones only if the model knows what it replaces."""

import os

import pytest
from tool_support import call, make_context

from agent.tools.base import OutputLimits, ToolError


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


async def refused(context, **arguments):
    with pytest.raises(ToolError) as refusal:
        await call("write", context, **arguments)
    return str(refusal.value)


async def test_a_new_file_with_its_folders(context):
    output = await call("write", context, path="src/deep/a.py", content="x = 1\ny = 2\n")
    assert output.text == "src/deep/a.py: created, 2 lines"
    assert (context.root / "src/deep/a.py").read_text() == "x = 1\ny = 2\n"


async def test_a_new_file_has_the_mode_that_the_umask_gives(context):
    before = os.umask(0o027)
    try:
        await call("write", context, path="a", content="x")
    finally:
        os.umask(before)
    assert (context.root / "a").stat().st_mode & 0o777 == 0o640


async def test_a_file_that_was_read_is_replaced(context):
    path = context.root / "a.txt"
    path.write_text("old\n")
    path.chmod(0o700)
    await call("read", context, path="a.txt")
    output = await call("write", context, path="a.txt", content="new\nlines\n")
    assert output.text == "a.txt: replaced, 2 lines"
    assert path.read_text() == "new\nlines\n"
    assert path.stat().st_mode & 0o777 == 0o700


async def test_what_it_wrote_itself_the_model_may_replace_and_edit(context):
    await call("write", context, path="a.txt", content="one\n")
    await call("write", context, path="a.txt", content="two\n")
    await call("edit", context, path="a.txt", old="two", new="three")
    await call("write", context, path="a.txt", content="four\n")
    assert (context.root / "a.txt").read_text() == "four\n"


class TestUnseenContentIsKept:
    async def test_never_read(self, context):
        (context.root / "a.txt").write_text("precious\n")
        assert "you have not read it" in await refused(context, path="a.txt", content="x")
        assert (context.root / "a.txt").read_text() == "precious\n"

    async def test_changed_since_it_was_read(self, context):
        (context.root / "a.txt").write_text("one\n")
        await call("read", context, path="a.txt")
        (context.root / "a.txt").write_text("precious\n")
        assert "changed on disk since you read it" in await refused(context, path="a.txt", content="x")

    async def test_read_only_in_part(self, context):
        (context.root / "a.txt").write_text("1\n2\n3\n4\n")
        await call("read", context, path="a.txt", limit=2)
        assert "only a part of a.txt" in await refused(context, path="a.txt", content="x")
        await call("edit", context, path="a.txt", old="1", new="one")
        assert "only a part of a.txt" in await refused(context, path="a.txt", content="x")
        await call("read", context, path="a.txt")
        await call("write", context, path="a.txt", content="x")

    async def test_edited_without_ever_being_read(self, context):
        (context.root / "a.txt").write_text("1\nprecious\n")
        await call("edit", context, path="a.txt", old="1", new="2")
        assert "only a part of a.txt" in await refused(context, path="a.txt", content="x")

    async def test_seen_with_a_line_cut(self, context):
        (context.root / "a.txt").write_text("x" * 3_000 + "\n")
        await call("read", context, path="a.txt")
        assert "only a part of a.txt" in await refused(context, path="a.txt", content="x")

    async def test_an_empty_file_holds_nothing_to_keep(self, context):
        (context.root / "a.txt").touch()
        await call("write", context, path="a.txt", content="x")

    async def test_the_same_content_is_no_change(self, context):
        path = context.root / "a.txt"
        path.write_text("same\n")
        before = path.stat()
        assert (await call("write", context, path="a.txt", content="same\n")).text == "a.txt: has this content already"
        assert path.stat().st_ino == before.st_ino


class TestFormIsKept:
    @pytest.mark.parametrize(
        ("before", "content", "after"),
        [
            (b"a\r\nb\r\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\n"),
            (b"a\r\nb\nc\r\n", "a\nB\nc\n", b"a\r\nB\nc\r\n"),
            (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
            ("\ufeffa\r\n".encode("utf-16-le"), "ü\n", "\ufeffü\r\n".encode("utf-16-le")),
            (b"\xe9\n", "è\n", b"\xe8\n"),
            (b"a\n", "b\r\n", b"b\n"),
        ],
        ids=["crlf", "mixed", "mark", "utf-16", "cp1252", "lf"],
    )
    async def test_line_ends_mark_and_encoding(self, context, before, content, after):
        path = context.root / "a.txt"
        path.write_bytes(before)
        await call("read", context, path="a.txt")
        await call("write", context, path="a.txt", content=content)
        assert path.read_bytes() == after

    async def test_a_character_that_the_encoding_lacks(self, context):
        (context.root / "a.txt").write_bytes(b"\xe9\n")
        await call("read", context, path="a.txt")
        assert "cp1252, which cannot hold" in await refused(context, path="a.txt", content="中")

    async def test_a_new_file_keeps_the_line_ends_that_the_model_wrote(self, context):
        await call("write", context, path="a.bat", content="a\r\nb\r\n")
        assert (context.root / "a.bat").read_bytes() == b"a\r\nb\r\n"

    async def test_a_symlink_stays(self, context):
        (context.root / "link").symlink_to("target")
        await call("write", context, path="link", content="x")
        assert (context.root / "link").is_symlink()
        assert (context.root / "target").read_text() == "x"


async def test_code_that_does_not_parse_is_written_and_said(context):
    output = await call("write", context, path="a.py", content="def f(:\n")
    assert output.text.startswith("a.py: created, 1 line\nIt does not parse: line 1: ")
    assert output.summary == "a.py: created, 1 line"


async def test_a_folder_or_a_file_in_the_way(context):
    (context.root / "folder").mkdir()
    (context.root / "file").write_text("x")
    assert "is a directory" in await refused(context, path="folder", content="x")
    assert "not a directory" in await refused(context, path="file/a", content="x")


async def test_half_a_surrogate_pair_is_refused_and_no_folder_is_left(context):
    assert "cannot hold" in await refused(context, path="new/a.txt", content="\ud83d")
    assert os.listdir(context.root) == []


async def test_a_full_disk_leaves_nothing_behind(context, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "no space left on device. Nothing was changed." in await refused(context, path="new/a.txt", content="x")
    assert os.listdir(context.root) == []


async def test_the_placeholder_of_a_secret_is_never_written(tmp_path):
    context = make_context(tmp_path, API_TOKEN="abcdefgh12345678")
    assert "hidden from you" in await refused(context, path=".env", content="TOKEN=[secret API_TOKEN]\n")


async def test_pages_of_a_long_file_add_up_to_all_of_it(tmp_path):
    context = make_context(tmp_path, limits=OutputLimits(page_lines=2))
    (context.root / "a.txt").write_text("1\n2\n3\n")
    for offset in (1, 3):
        await call("read", context, path="a.txt", offset=offset)
    await call("write", context, path="a.txt", content="x\n")
    assert (context.root / "a.txt").read_text() == "x\n"
