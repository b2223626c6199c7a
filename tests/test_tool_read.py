"""`read`: pages of whole lines, nothing twice, nothing that is no text."""

import os
import tracemalloc
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_support import call, make_context, needs_permission_bits

from agent.tools.base import SMALL_OUTPUT, OutputLimits, Page, ToolError
from agent.tools.encoding import survey
from agent.tools.pages import covers, read_page
from context.canonical import digest


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def put(context, data, name="a.txt"):
    path = context.root / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


async def test_a_small_file_comes_as_it_is(context):
    put(context, "one\n  two\n")
    output = await call("read", context, path="a.txt")
    assert output.text == "one\n  two\n"
    assert output.summary == "a.txt, 2 lines"


async def test_numbers_only_on_request(context):
    put(context, "one\ntwo\nthree")
    assert (await call("read", context, path="a.txt", offset=2, numbers=True)).text == "2: two\n3: three"


async def test_an_empty_file_says_so(context):
    put(context, "")
    assert (await call("read", context, path="a.txt")).text == "[empty file]"


async def test_a_long_file_comes_in_pages_that_join(context):
    put(context, "".join(f"line {number}\n" for number in range(1, 5_001)))
    text, offset = "", 1
    for _ in range(3):
        output = await call("read", context, path="a.txt", offset=offset)
        body, bracket, note = output.text.rpartition("[")
        text += body if bracket else output.text
        if not bracket:
            break
        offset = int(note.split("offset ")[1].rstrip("]"))
    assert text == "".join(f"line {number}\n" for number in range(1, 5_001))


async def test_a_page_is_cut_by_characters_at_a_line_end(tmp_path):
    context = make_context(tmp_path, limits=OutputLimits(page_chars=100))
    put(context, "".join(f"{number:04} {'x' * 30}\n" for number in range(1, 11)))
    output = await call("read", context, path="a.txt")
    assert output.text.startswith("0001 ")
    assert output.text.endswith("\n[lines 1-2 of 10; go on with offset 3]")


async def test_small_models_get_small_pages(tmp_path):
    context = make_context(tmp_path, limits=SMALL_OUTPUT)
    put(context, "word " * 20 + "\n" + "x\n" * 1_000)
    output = await call("read", context, path="a.txt", limit=900)
    assert "[lines 1-300 of 1,001; go on with offset 301]" in output.text


async def test_offset_and_limit_select_lines(context):
    put(context, "1\n2\n3\n4\n")
    assert (await call("read", context, path="a.txt", offset=2, limit=2)).text == (
        "2\n3\n[lines 2-3 of 4; go on with offset 4]"
    )


async def test_a_line_past_the_end_is_an_error_with_the_length(context):
    put(context, "1\n2\n")
    with pytest.raises(ToolError, match=r"a\.txt has 2 lines; there is no line 9"):
        await call("read", context, path="a.txt", offset=9)


async def test_a_long_line_is_trimmed_with_a_note(context):
    put(context, "a" * 5_000 + "\nshort\n")
    first, second = (await call("read", context, path="a.txt")).text.splitlines()
    assert first == "a" * 2_000 + "… [3,000 more characters]"
    assert second == "short"


class TestUnchanged:
    async def test_the_same_page_is_not_sent_again(self, context):
        put(context, "one\ntwo\n")
        await call("read", context, path="a.txt")
        assert (await call("read", context, path="a.txt")).text == "a.txt: unchanged since you read it."
        assert "unchanged" in (await call("read", context, path="./a.txt", offset=2)).text

    async def test_other_lines_are_sent(self, context):
        put(context, "".join(f"{number}\n" for number in range(1, 11)))
        await call("read", context, path="a.txt", limit=3)
        await call("read", context, path="a.txt", offset=4, limit=3)
        assert "unchanged" in (await call("read", context, path="a.txt", offset=2, limit=4)).text
        assert (await call("read", context, path="a.txt", offset=5, limit=3)).text.startswith("5\n6\n7\n")
        assert "1\n2\n" in (await call("read", context, path="a.txt")).text

    async def test_a_changed_file_is_sent_even_with_its_old_size_and_time(self, context):
        path = put(context, "one\n")
        before = path.stat()
        await call("read", context, path="a.txt")
        path.write_text("two\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await call("read", context, path="a.txt")).text == "two\n"
        path.write_text("one\n")
        assert (await call("read", context, path="a.txt")).text == "one\n"

    async def test_numbers_that_were_not_there_are_sent(self, context):
        put(context, "one\n")
        await call("read", context, path="a.txt")
        assert (await call("read", context, path="a.txt", numbers=True)).text == "1: one\n"
        assert "unchanged" in (await call("read", context, path="a.txt")).text

    async def test_after_a_resume_a_page_is_sent_because_the_pages_are_not_known(self, context):
        path = put(context, "one\n")
        context.seen[path] = digest(b"one\n")
        assert (await call("read", context, path="a.txt")).text == "one\n"

    async def test_an_empty_file_is_never_unchanged(self, context):
        put(context, "")
        for _ in range(2):
            assert (await call("read", context, path="a.txt")).text == "[empty file]"


def test_pages_cover_only_without_a_gap():
    pages = [Page(5, 9), Page(1, 4, numbers=True), Page(11, 20)]
    assert covers(pages, Page(1, 9))
    assert not covers(pages, Page(1, 9, numbers=True))
    assert covers(pages, Page(2, 3, numbers=True))
    assert not covers(pages, Page(9, 12))
    assert not covers([], Page(1, 1))


class TestEncodings:
    async def test_140_crlf_is_shown_as_lf(self, context):
        """Field report 140: what the model reads must be what it can give as `old`."""
        put(context, b"one\r\ntwo\r\nlone\rreturn\r\n")
        assert (await call("read", context, path="a.txt")).text == "one\ntwo\nlone\rreturn\n"

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\xef\xbb\xbfnaive\n", "naive\n"),
            ("\ufeffnaïve 中\n".encode("utf-16-le"), "naïve 中\n[decoded from utf-16-le]"),
            ("\ufeffnaïve 中".encode("utf-16-be"), "naïve 中\n[decoded from utf-16-be]"),
            ("\ufeffx\r\ny\r\n".encode("utf-16-le"), "x\ny\n[decoded from utf-16-le]"),
            ("naïve €\n".encode("cp1252"), "naïve €\n[decoded from cp1252]"),
            (b"\x81\xe9\n", "\x81é\n[decoded from latin-1]"),
        ],
        ids=["utf-8 mark", "utf-16-le", "utf-16-be", "utf-16 crlf", "cp1252", "latin-1"],
    )
    async def test_text_is_decoded_and_what_is_unusual_is_marked(self, context, data, text):
        put(context, data)
        assert (await call("read", context, path="a.txt")).text == text

    async def test_a_wrong_byte_far_into_a_large_file_decides_its_encoding(self, context):
        put(context, b"text\n" * 300_000 + b"caf\xe9\n")
        output = await call("read", context, path="a.txt", offset=300_000)
        assert output.text == "text\ncafé\n[decoded from cp1252]"

    @given(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\r\t", exclude_characters="\ufeff")
        )
    )
    def test_a_survey_counts_lines_and_names_the_content(self, text):
        data = text.encode()
        found = survey(BytesIO(data), len(data))
        assert found.lines == len(text.split("\n")) - (text.endswith("\n") or not text)
        assert found.digest == digest(data)


class TestNoText:
    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image, 10 bytes"),
            (b"\x7fELF\2\1\1\0", "an ELF program or library"),
            (b"%PDF-1.7\n\xe2\xe3", "a PDF document"),
            (b"PK\3\4\0\0", "a ZIP archive or office document"),
            (b"text \0 more", "binary data, 11 bytes"),
            (bytes(range(128, 256)) + bytes(range(1, 32)) * 4, "binary data"),
            (b"\xff\xfe\x00\xd8", "damaged utf-16-le text"),
        ],
    )
    async def test_binaries_are_refused_with_kind_and_size(self, context, data, kind):
        put(context, data)
        with pytest.raises(ToolError, match=r"a\.txt is no text") as refusal:
            await call("read", context, path="a.txt")
        assert kind in str(refusal.value)

    async def test_text_that_begins_like_a_binary_is_text(self, context):
        put(context, "%PDF- is how such a file begins\n")
        assert (await call("read", context, path="a.txt")).text.startswith("%PDF-")

    async def test_a_folder_points_to_find(self, context):
        (context.root / "src").mkdir()
        with pytest.raises(ToolError, match=r"src is a directory\. Use `find`"):
            await call("read", context, path="src")

    async def test_a_pipe_is_not_waited_for(self, context):
        os.mkfifo(context.root / "pipe")
        with pytest.raises(ToolError, match="no regular file"):
            await call("read", context, path="pipe")

    async def test_a_file_as_a_folder(self, context):
        put(context, "x")
        with pytest.raises(ToolError, match=r"not a directory|no such file"):
            await call("read", context, path="a.txt/b")

    @needs_permission_bits
    async def test_an_unreadable_file_is_one_line(self, context):
        put(context, "x").chmod(0)
        with pytest.raises(ToolError, match=r"a\.txt: permission denied"):
            await call("read", context, path="a.txt")


def test_a_200_mb_file_is_read_without_loading_it(tmp_path):
    path = tmp_path / "big.log"
    line = b"x" * 1_023 + b"\n"
    with open(path, "wb") as file:
        for _ in range(200):
            file.write(line * 1_024)
        file.write(b"the last line\n")
    tracemalloc.start()
    page = read_page(path, 200 * 1_024 + 1, 10, 1_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    path.unlink()
    assert page.lines == ("the last line",)
    assert page.survey.lines == 200 * 1_024 + 1
    assert peak < 20_000_000


def test_a_huge_single_line_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "bundle.min.js"
    path.write_bytes(b"a" * 30_000_000)
    tracemalloc.start()
    page = read_page(path, 1, 10, 1_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page.lines == ("a" * 2_000 + "… [29,998,000 more characters]",)
    assert peak < 20_000_000
