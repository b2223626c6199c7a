"""`edit`: exact first, tolerant then, and every byte outside of the edit stays."""

import asyncio
import os
import subprocess
import threading

import pytest
from tool_support import call, make_context, needs_permission_bits

from agent.tools import edit as edit_module
from agent.tools.base import ToolError
from agent.tools.textfile import replace as replace_file

PRICE = "def total(price, tax):\n    return price - tax\n"


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


async def put(context, data, name="a.txt"):
    """A file that the model has read."""
    path = context.root / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    await call("read", context, path=name)
    return path


async def refused(context, **arguments):
    with pytest.raises(ToolError) as refusal:
        await call("edit", context, **arguments)
    return str(refusal.value)


async def test_the_answer_is_one_line(context):
    path = await put(context, PRICE, "price.py")
    output = await call("edit", context, path="price.py", old="    return price - tax", new="    return price + tax")
    assert output.text == "price.py: 1 replacement at line 2"
    assert path.read_text() == PRICE.replace("-", "+")


async def test_an_edit_may_begin_and_end_within_a_line(context):
    path = await put(context, PRICE, "price.py")
    await call("edit", context, path="price.py", old="price - tax", new="price + tax")
    assert path.read_text() == PRICE.replace("-", "+")


async def test_a_file_that_was_never_read_can_be_edited_exactly_but_not_tolerantly(context):
    (context.root / "a.txt").write_text("one  \ntwo\n")
    assert "`old` was not found" in await refused(context, path="a.txt", old="one\ntwo", new="x")
    await call("edit", context, path="a.txt", old="two", new="three")
    assert (context.root / "a.txt").read_text() == "one  \nthree\n"


async def test_edits_follow_each_other_without_a_new_read(context):
    path = await put(context, "1\n2\n3\n")
    for number in "123":
        await call("edit", context, path="a.txt", old=number, new=f"{number}{number}")
    assert path.read_text() == "11\n22\n33\n"


async def test_an_edited_file_is_sent_again_when_it_is_read(context):
    await put(context, "1\n")
    await call("edit", context, path="a.txt", old="1", new="2")
    assert (await call("read", context, path="a.txt")).text == "2\n"


class TestAtTheEnd:
    """An empty `old`."""

    async def test_new_text_goes_behind_the_old(self, context):
        path = await put(context, "def a():\n    pass\n", "a.py")
        await call("edit", context, path="a.py", old="", new="def b():\n    pass")
        assert path.read_text() == "def a():\n    pass\n\n\ndef b():\n    pass\n"

    async def test_the_whole_file_with_additions_takes_its_place(self, context):
        path = await put(context, "one\ntwo\n")
        await call("edit", context, path="a.txt", old="", new="one\nand a half\ntwo\nthree\n")
        assert path.read_text() == "one\nand a half\ntwo\nthree\n"

    async def test_line_ends_are_kept(self, context):
        path = await put(context, "one\r\ntwo\r\n")
        await call("edit", context, path="a.txt", old="", new="three")
        assert path.read_bytes() == b"one\r\ntwo\r\n\r\n\r\nthree\r\n"

    async def test_an_empty_file_gets_the_text_alone(self, context):
        path = await put(context, "")
        await call("edit", context, path="a.txt", old="", new="one")
        assert path.read_text() == "one\n"

    async def test_nothing_to_add_is_refused(self, context):
        path = await put(context, "one\n")
        assert "are the same" in await refused(context, path="a.txt", old="", new="")
        assert "has this text already" in await refused(context, path="a.txt", old="", new="one\n")
        assert path.read_text() == "one\n"

    async def test_a_new_file_is_made(self, context):
        await call("edit", context, path="new/a.txt", old="", new="one\n")
        assert (context.root / "new/a.txt").read_text() == "one\n"


class TestRefused:
    async def test_old_equal_to_new(self, context):
        await put(context, PRICE, "price.py")
        assert "are the same" in await refused(context, path="price.py", old="tax", new="tax")
        assert "are the same" in await refused(context, path="price.py", old="tax\r\n", new="tax\n")
        assert "only the lines to change" in await refused(context, path="price.py", old=PRICE, new=PRICE)

    async def test_a_file_that_changed_on_disk_since_it_was_read(self, context):
        path = await put(context, "one\n")
        path.write_text("one\nmore\n")
        assert "has changed on disk since you read it" in await refused(context, path="a.txt", old="one", new="two")
        await call("read", context, path="a.txt")
        await call("edit", context, path="a.txt", old="one", new="two")

    async def test_156_a_change_that_keeps_size_and_time(self, context):
        """Field report 156: the modification time alone is not enough."""
        path = await put(context, "one\n")
        before = path.stat()
        path.write_text("two\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert "has changed on disk" in await refused(context, path="a.txt", old="two", new="three")

    async def test_several_places_without_all(self, context):
        path = await put(context, "x = 1\ny = 1\nx = 1\n")
        message = await refused(context, path="a.txt", old="x = 1", new="x = 2")
        assert "occurs more than once, at lines 1, 3" in message
        assert path.read_text() == "x = 1\ny = 1\nx = 1\n"

    async def test_places_that_overlap_are_several(self, context):
        await put(context, "aaa\n")
        assert "more than once" in await refused(context, path="a.txt", old="aa", new="b")

    async def test_a_file_that_does_not_exist(self, context):
        await put(context, PRICE, "price.py")
        assert "Did you mean price.py?" in await refused(context, path="prices.py", old="a", new="b")

    async def test_binaries_and_folders(self, context):
        (context.root / "a.bin").write_bytes(b"\0\1")
        assert "is no text" in await refused(context, path="a.bin", old="a", new="b")
        assert "is a directory" in await refused(context, path=".", old="a", new="b")

    async def test_a_text_that_the_encoding_cannot_hold(self, context):
        path = await put(context, "caf\xe9\n".encode("cp1252"))
        assert "cp1252, which cannot hold" in await refused(context, path="a.txt", old="café", new="中")
        assert path.read_bytes() == b"caf\xe9\n"

    async def test_the_placeholder_of_a_secret_never_reaches_a_file(self, tmp_path):
        context = make_context(tmp_path, API_KEY="abcdefgh12345678")
        path = await put(context, "key = abcdefgh12345678\nport = 1\n")
        new = "key = [secret API_KEY]\nport = 2"
        message = await refused(context, path="a.txt", old="key = [secret API_KEY]\nport = 1", new=new)
        assert "hidden from you" in message
        assert path.read_text() == "key = abcdefgh12345678\nport = 1\n"

    @needs_permission_bits
    async def test_a_read_only_file(self, context):
        (await put(context, "a\n")).chmod(0o444)
        assert "read-only" in await refused(context, path="a.txt", old="a", new="b")


class TestSyntax:
    async def test_an_edit_that_breaks_python_is_refused_with_the_line(self, context):
        path = await put(context, PRICE, "price.py")
        message = await refused(context, path="price.py", old="price - tax", new="price + (tax")
        assert "would no longer parse. line 2: '(' was never closed" in message
        assert "    return price + (tax" in message
        assert path.read_text() == PRICE

    async def test_wrong_indentation_is_refused(self, context):
        await put(context, PRICE, "price.py")
        assert "indent" in await refused(
            context, path="price.py", old="    return price - tax", new="return price + tax"
        )

    @pytest.mark.parametrize(
        ("name", "text", "old", "new"),
        [("a.json", '{"a": 1}\n', "1", "1,,"), ("a.toml", "a = 1\n", "1", "= 1"), ("a.pyi", "x: int\n", "int", "in t")],
    )
    async def test_other_languages(self, context, name, text, old, new):
        await put(context, text, name)
        assert "would no longer parse" in await refused(context, path=name, old=old, new=new)

    async def test_a_file_that_did_not_parse_before_may_be_edited(self, context):
        path = await put(context, "def broken(:\n    x\n", "a.py")
        await call("edit", context, path="a.py", old="    x", new="    y")
        assert path.read_text() == "def broken(:\n    y\n"

    async def test_crlf_and_a_mark_do_not_confuse_the_parser(self, context):
        path = await put(context, b"\xef\xbb\xbfx = 1\r\nif x:\r\n    y = 2\r\n", "a.py")
        await call("edit", context, path="a.py", old="y = 2", new="y = 3\n    z = 4")
        assert path.read_bytes() == b"\xef\xbb\xbfx = 1\r\nif x:\r\n    y = 3\r\n    z = 4\r\n"


class TestTolerance:
    @pytest.mark.parametrize(
        ("text", "old", "new", "after", "told"),
        [
            ("a = 1  \nb = 2\n", "a = 1\nb = 2", "a = 1\nb = 3", "a = 1  \nb = 3\n", "blanks at line ends"),
            ("a = 1\nb = 2\n", "a = 1  \nb = 2", "a = 1  \nb = 3", "a = 1\nb = 3\n", "blanks at line ends"),
            (
                "    if a:\n        b()\n",
                "if a:\n    b()\n",
                "if a:\n    c()\n",
                "    if a:\n        c()\n",
                "indentation",
            ),
            ("if a:\n    b()\n", "    if a:\n        b()", "    if a:\n        c()", "if a:\n    c()\n", "indentation"),
            (
                "\tif a:\n\t\tb()\n",
                "    if a:\n        b()",
                "    if a:\n        c()",
                "\tif a:\n\t\tc()\n",
                "indentation",
            ),
            ("if a:\n    b()\n", "if a:\n\tb()\n", "if a:\n\tb()\n\tc()\n", "if a:\n    b()\n    c()\n", "indentation"),
            (
                "def f():\n        if a:\n            b()\n        return c\n",
                "if a:\n        b()\n    return c",
                "if a:\n        b()\n    return d",
                "def f():\n        if a:\n            b()\n        return d\n",
                "indentation",
            ),
            ("a\nlast", "last\n", "end\n", "a\nend", "no line end at the end of the file"),
        ],
        ids=[
            "trailing",
            "trailing in old",
            "deeper",
            "shallower",
            "tabs for spaces",
            "spaces for tabs",
            "from within a line",
            "last line",
        ],
    )
    async def test_whitespace(self, context, text, old, new, after, told):
        path = await put(context, text)
        output = await call("edit", context, path="a.txt", old=old, new=new)
        assert path.read_text() == after
        assert told in output.text
        assert "\n" not in output.text

    @pytest.mark.parametrize(
        "odd", ["\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212"], ids=lambda char: f"U+{ord(char):04X}"
    )
    async def test_146_dashes(self, context, odd):
        """Field report 146: look-alike dashes and the minus sign in the file, ASCII in the edit."""
        path = await put(context, f"pages 1{odd}2: draft\n")
        output = await call("edit", context, path="a.txt", old="pages 1-2: draft", new="pages 1-2: final")
        assert path.read_text() == f"pages 1{odd}2: final\n"
        assert "look-alike characters" in output.text

    @pytest.mark.parametrize("odd", ["\u00a0", "\u202f", "\u2009", "\u3000"], ids=lambda char: f"U+{ord(char):04X}")
    async def test_146_blanks(self, context, odd):
        """Field report 146: NBSP, U+202F and their like."""
        path = await put(context, f"10{odd}km to go\nrest\n")
        await call("edit", context, path="a.txt", old="10 km to go\nrest", new="12 km to go\nrest")
        assert path.read_text() == f"12{odd}km to go\nrest\n"

    async def test_146_quotes_in_either_direction(self, context):
        """Field report 146: typographic quotes in the file or in the edit."""
        path = await put(context, "say \u201chi\u201d\nit's\n")
        await call("edit", context, path="a.txt", old='say "hi"', new='say "ho"')
        await call("edit", context, path="a.txt", old="it\u2019s", new="it was")
        assert path.read_text() == "say \u201cho\u201d\nit was\n"

    async def test_exact_text_wins_over_look_alikes(self, context):
        path = await put(context, "a - b\na \u2013 b\n")
        await call("edit", context, path="a.txt", old="a - b", new="c")
        assert path.read_text() == "c\na \u2013 b\n"

    async def test_several_tolerant_places_are_refused(self, context):
        await put(context, "a  \nb\na \nb\n")
        assert "more than once, at lines 1, 3" in await refused(context, path="a.txt", old="a\nb", new="c")

    async def test_a_very_long_search_is_exact_only_and_says_so(self, context):
        """Looked for tolerantly, this took half a minute in a thread that Ctrl-C cannot stop."""
        line = "    value = 1\n"
        await put(context, line * 200_000)
        old = line * 1_999 + "    value = 2 \n"
        assert "looked for exactly only" in await refused(context, path="a.txt", old=old, new="x")
        assert "(looked" not in await refused(context, path="a.txt", old="    value = 2 \n", new="x")

    async def test_blanks_alone_are_not_looked_for_tolerantly(self, context):
        await put(context, "a\tb\n")
        assert "not found" in await refused(context, path="a.txt", old="   ", new="x")

    async def test_different_words_are_never_tolerated(self, context):
        await put(context, "alpha = 1\n")
        assert "not found" in await refused(context, path="a.txt", old="alpha = 2", new="alpha = 3")


class TestLineEnds:
    @pytest.mark.parametrize(
        ("before", "old", "new", "after"),
        [
            (b"one\r\ntwo\r\nthree\r\n", "one\ntwo", "one\n2\n2b", b"one\r\n2\r\n2b\r\nthree\r\n"),
            (b"a\r\nb\nc\r\nd\ne\r\n", "a\nb\nc\nd\n", "a\nB\nc\nD\n", b"a\r\nB\nc\r\nD\ne\r\n"),
            (b"a\r\nb\nc\n", "a\nb", "a\nnew\nb\nnew", b"a\r\nnew\r\nb\nnew\nc\n"),
            (b"a\rb\nc\n", "c", "d", b"a\rb\nd\n"),
            (b"a\nb", "b", "c", b"a\nc"),
        ],
        ids=[
            "140: LF as shown, CRLF in the file",
            "143: in a mixed file each line keeps its end",
            "143: an added line ends like the one above it",
            "a lone carriage return",
            "a missing last line end",
        ],
    )
    async def test_line_ends_stay(self, context, before, old, new, after):
        """Field reports 140 and 143: the model is shown LF and gives LF back; mixed ends must not become one kind."""
        path = await put(context, before)
        await call("edit", context, path="a.txt", old=old, new=new)
        assert path.read_bytes() == after

    async def test_141_only_touched_lines_differ_for_git(self, context):
        """Field report 141: CRLF turned into LF shows every line as changed."""
        path = context.root / "a.txt"
        path.write_bytes(b"".join(b"line %d\r\n" % number for number in range(50)))

        def git(*arguments):
            settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false"]
            command = ["git", *settings, *arguments]
            return subprocess.run(command, cwd=context.root, capture_output=True, text=True, check=True).stdout

        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "before")
        await call("edit", context, path="a.txt", old="line 7\nline 8\n", new="line 7\nline eight\n")
        assert git("diff", "--numstat").split() == ["1", "1", "a.txt"]


class TestAll:
    async def test_145_the_model_learns_how_many_places_changed_and_to_what(self, context):
        """Field report 145: the result states the count, the places and the new text."""
        path = await put(context, "x = old\ny = old\n\nz = old\n")
        output = await call("edit", context, path="a.txt", old="old", new="new", all=True)
        assert output.text == "a.txt: 3 replacements at lines 1, 2, 4; each is now `new`"
        assert path.read_text() == "x = new\ny = new\n\nz = new\n"

    async def test_145_line_numbers_are_those_of_the_new_file(self, context):
        """Field report 145: with replacements that add or remove lines."""
        await put(context, "".join(f"a\n{number}\n" for number in range(12)))
        output = await call("edit", context, path="a.txt", old="a\n", new="", all=True)
        assert output.text.startswith("a.txt: 12 replacements at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more")
        assert output.text.endswith("; each was removed")


class TestNearest:
    async def test_150_a_miss_shows_the_nearest_place_with_its_lines(self, context):
        """Field report 150: a model that is not told where it went wrong deletes the file and writes it anew."""
        await put(
            context,
            "import os\n\n\ndef total(price, tax):\n    return price - tax\n\n\ndef other():\n    pass\n",
            "p.py",
        )
        message = await refused(
            context, path="p.py", old="def total(price, taxes):\n    return price - taxes", new="x = 1"
        )
        assert "Nearest is lines 4-5:\ndef total(price, tax):\n    return price - tax" in message
        assert "Nothing was changed" in message

    async def test_150_nothing_like_it(self, context):
        """Field report 150: no place is shown that has nothing to do with it."""
        await put(context, "alpha\nbeta\n")
        message = await refused(context, path="a.txt", old="zzzz yyyy xxxx", new="q")
        assert "not found" in message
        assert "Nearest" not in message

    async def test_a_large_file_is_searched_in_bounded_time(self, context):
        text = "".join(f"value_{number} = compute({number}, scale={number % 7})\n" for number in range(18_000))
        await put(context, text)
        old = "value_9000 = compute(9000, scale=99)\nvalue_9001 = compute(9001, scale=99)"
        async with asyncio.timeout(60):
            message = await refused(context, path="a.txt", old=old, new="x")
        assert "Nearest is lines 9001-9002" in message


class TestOnDisk:
    async def test_148_the_byte_order_mark_stays(self, context):
        """Field report 148: an editor that loses EF BB BF breaks readers that rely on it."""
        path = await put(context, b"\xef\xbb\xbffirst\nsecond\n")
        await call("edit", context, path="a.txt", old="first", new="1st")
        assert path.read_bytes() == b"\xef\xbb\xbf1st\nsecond\n"

    @pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le"])
    async def test_148_other_encodings_stay(self, context, codec):
        """Field report 148: the same for the wider encodings."""
        path = await put(context, "\ufeffnaïve\r\n中文\r\n".encode(codec))
        await call("edit", context, path="a.txt", old="中文", new="日本\n語")
        assert path.read_bytes() == "\ufeffnaïve\r\n日本\r\n語\r\n".encode(codec)

    async def test_mode_bits_stay(self, context):
        path = await put(context, "#!/bin/sh\necho a\n", "run.sh")
        path.chmod(0o751)
        await call("edit", context, path="run.sh", old="echo a", new="echo b")
        assert path.stat().st_mode & 0o7777 == 0o751

    async def test_a_symlink_stays_and_its_target_changes(self, context):
        target = await put(context, "a\n", "target.txt")
        (context.root / "link.txt").symlink_to("target.txt")
        output = await call("edit", context, path="link.txt", old="a", new="b")
        assert (context.root / "link.txt").is_symlink()
        assert target.read_text() == "b\n"
        assert output.text == "target.txt: 1 replacement at line 1"

    async def test_no_temporary_file_is_left(self, context):
        await put(context, "a\n")
        await call("edit", context, path="a.txt", old="a", new="b")
        assert os.listdir(context.root) == ["a.txt"]

    async def test_a_full_disk_leaves_the_file_as_it_was(self, context, monkeypatch):
        path = await put(context, "a\n")

        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        message = await refused(context, path="a.txt", old="a", new="b")
        assert message == "a.txt: no space left on device. Nothing was changed."
        assert os.listdir(context.root) == ["a.txt"]
        assert path.read_text() == "a\n"

    async def test_a_file_that_changes_between_plan_and_replacement_is_left_alone(self, context):
        path = await put(context, "a\n")
        before = path.stat()
        path.write_text("someone else\n")
        with pytest.raises(ToolError, match="changed by someone else"):
            replace_file(path, "a.txt", b"mine", before)
        assert path.read_text() == "someone else\n"
        assert os.listdir(context.root) == ["a.txt"]

    async def test_a_cancelled_edit_has_not_happened(self, context, monkeypatch):
        path = await put(context, "a\n")
        started, go_on, plan = threading.Event(), threading.Event(), edit_module._plan

        def slow_plan(*arguments):
            started.set()
            go_on.wait()
            return plan(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(edit_module, "_plan", slow_plan)
            task = asyncio.create_task(call("edit", context, path="a.txt", old="a", new="b"))
            await asyncio.to_thread(started.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
        assert path.read_text() == "a\n"
        await call("edit", context, path="a.txt", old="a", new="c")
