"""`search` and `find`: what ripgrep says, short, in a fixed order, never outside of the folder."""

import asyncio
import os
import sys

import pytest
from tool_support import call, make_context, needs_permission_bits

from agent.tools import ripgrep as ripgrep_module
from agent.tools.base import OutputLimits, ToolError
from agent.tools.ripgrep import find_ripgrep, ripgrep


@pytest.fixture
def context(tmp_path):
    context = make_context(tmp_path)
    for name, text in {
        "b.py": "import os\n\n\ndef total(price):\n    return price\n",
        "a.py": "total = 1\n",
        "src/deep/c.ts": "const total = 2\nlet other\n",
        "README.md": "# Total\n",
        ".github/ci.yml": "run: total\n",
        ".git/config": "total in git\n",
        "build/out.py": "total built\n",
        "debug.log": "total log\n",
        ".gitignore": "build/\n*.log\n",
    }.items():
        path = context.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return context


async def search(context, /, **arguments):
    return (await call("search", context, **arguments)).text


async def find(context, /, **arguments):
    return (await call("find", context, **arguments)).text


class TestSearch:
    async def test_one_line_for_each_match_in_the_order_of_paths(self, context):
        assert await search(context, pattern="total") == (
            ".github/ci.yml:1: run: total\na.py:1: total = 1\nb.py:4: def total(price):\n"
            "src/deep/c.ts:1: const total = 2"
        )

    async def test_several_matches_in_a_file_are_grouped(self, context):
        output = await call("search", context, pattern="price")
        assert output.text == "b.py:\n4: def total(price):\n5:     return price"
        assert output.summary == "2 matches in 1 file"

    async def test_lines_around(self, context):
        (context.root / "x.txt").write_text("1\n2\nhit\n4\n5\n6\n7\nhit\n9\n")
        assert await search(context, pattern="hit", path="x.txt", context=1) == (
            "x.txt:\n2- 2\n3: hit\n4- 4\n--\n7- 7\n8: hit\n9- 9"
        )

    async def test_case_glob_and_path(self, context):
        assert "README.md:1: # Total" in await search(context, pattern="TOTAL", ignore_case=True)
        assert await search(context, pattern="total", glob="*.{ts,md}") == "src/deep/c.ts:1: const total = 2"
        assert await search(context, pattern="total", glob="./src/**") == "src/deep/c.ts:1: const total = 2"
        assert await search(context, pattern="total", path="src") == "src/deep/c.ts:1: const total = 2"
        assert await search(context, pattern="total", path="./a.py") == "a.py:1: total = 1"

    async def test_ignored_files_only_when_asked_for(self, context):
        assert await search(context, pattern="total", glob="*.log") == "debug.log:1: total log"
        assert await search(context, pattern="total", path="build") == "build/out.py:1: total built"

    async def test_no_matches(self, context):
        output = await call("search", context, pattern="nothing like it")
        assert (output.text, output.is_error) == ("no matches", False)

    @pytest.mark.parametrize(
        ("arguments", "fault"),
        [
            ({"pattern": "total("}, "unclosed group"),
            ({"pattern": "(?=x)"}, "look-around"),
            ({"pattern": "[z-a]"}, "invalid character class range"),
            ({"pattern": "x", "glob": "["}, "unclosed character class"),
        ],
    )
    async def test_an_invalid_pattern_is_explained_in_one_line(self, context, arguments, fault):
        with pytest.raises(ToolError, match=fault) as refusal:
            await search(context, **arguments)
        assert "\n" not in str(refusal.value)

    @pytest.mark.parametrize("arguments", [{"pattern": ""}, {"pattern": "a\0b"}, {"pattern": "a", "glob": "\0"}])
    async def test_what_ripgrep_cannot_be_asked(self, context, arguments):
        with pytest.raises(ToolError):
            await search(context, **arguments)

    async def test_a_pattern_like_an_option(self, context):
        (context.root / "x.txt").write_text("--help\n")
        assert await search(context, pattern="--help") == "x.txt:1: --help"

    async def test_a_pattern_over_two_lines(self, context):
        assert await search(context, pattern=r"total = 2\nlet") == "src/deep/c.ts:\n1: const total = 2\n2: let other"

    async def test_a_path_that_does_not_exist_gets_the_likely_one(self, context):
        with pytest.raises(ToolError, match=r"Did you mean src/deep/c\.ts\?"):
            await search(context, pattern="x", path="c.ts")

    async def test_limits_for_each_file_and_in_total(self, tmp_path):
        context = make_context(tmp_path, limits=OutputLimits(matches=50))
        for name in "abcdef":
            (context.root / name).write_text("hit\n" * 30)
        output = await call("search", context, pattern="hit")
        groups = output.text.split("[more in this file]\n")
        assert groups[0] == "a:\n" + "".join(f"{number}: hit\n" for number in range(1, 21))
        assert output.text.endswith("10: hit\n[there are more; narrow the pattern, path or glob]")
        assert output.summary == "50+ matches in 3 files"
        assert (await call("search", context, pattern="hit", path="a")).text.count("hit") == 30

    async def test_as_many_matches_as_allowed_are_not_called_more(self, tmp_path):
        context = make_context(tmp_path, limits=OutputLimits(matches=5))
        (context.root / "a").write_text("hit\n" * 5)
        assert "more" not in await search(context, pattern="hit")

    async def test_much_context_is_cut_by_characters(self, tmp_path):
        context = make_context(tmp_path, limits=OutputLimits(output_chars=2_000))
        (context.root / "a").write_text(("x" * 50 + "\n") * 10 + "hit\n" + ("y" * 50 + "\n") * 1_000)
        (context.root / "b").write_text("hit\n" * 300)
        output = await search(context, pattern="hit|y", path="a", context=20)
        assert len(output) < 2_300

    async def test_long_lines_are_trimmed(self, context):
        (context.root / "bundle.js").write_text("hit" + "x" * 1_000_000 + "\n")
        output = await search(context, pattern="hit")
        assert len(output) < 500
        assert "omitted" in output

    async def test_crlf_encodings_and_binaries(self, context):
        (context.root / "crlf").write_bytes(b"zebra one\r\nzebra\r\n")
        (context.root / "latin").write_bytes(b"zebra caf\xe9\n")
        (context.root / "wide").write_bytes("\ufeffzebra 中\n".encode("utf-16-le"))
        (context.root / "binary").write_bytes(b"zebra\n" + b"x\n" * 100_000 + b"\0")
        (context.root / "zz").write_bytes(b"zebra last\n")
        assert await search(context, pattern="zebra") == (
            "binary:1: zebra\ncrlf:\n1: zebra one\n2: zebra\nlatin:1: zebra café\nwide:1: zebra 中\nzz:1: zebra last"
        )
        assert await search(context, pattern="one$") == "crlf:1: zebra one"

    async def test_odd_names(self, context):
        for raw in (b"caf\xe9", b"new\nline", "中文".encode(), b"colon:1:", b"-x"):
            (context.root / os.fsdecode(raw)).write_text("zebra\n")
        assert (await search(context, pattern="zebra")).split("\n") == [
            "-x:1: zebra",
            "caf\\xe9:1: zebra",
            "colon:1::1: zebra",
            "new\\nline:1: zebra",
            "中文:1: zebra",
        ]

    async def test_links_that_lead_outside_are_not_followed(self, context, tmp_path):
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "secret").write_text("zebra\n")
        (context.root / "link").symlink_to(tmp_path / "outside")
        (context.root / "file").symlink_to(tmp_path / "outside" / "secret")
        assert await search(context, pattern="zebra") == "no matches"

    async def test_the_settings_of_the_user_do_not_change_the_answer(self, context, tmp_path):
        (tmp_path / "rc").write_text("--heading\n--no-line-number\n--ignore-case\n")
        context.env = {**context.env, "RIPGREP_CONFIG_PATH": str(tmp_path / "rc")}
        assert await search(context, pattern="def total") == "b.py:4: def total(price):"

    @needs_permission_bits
    async def test_an_unreadable_file_is_passed_over(self, context):
        (context.root / "a.py").chmod(0)
        assert "b.py:4" in await search(context, pattern="total")

    async def test_an_empty_folder(self, tmp_path):
        assert await search(make_context(tmp_path), pattern="x") == "no matches"


class TestFind:
    async def test_by_glob_sorted_and_without_what_git_ignores(self, context):
        assert await find(context, pattern="*.py") == "a.py\nb.py"
        assert await find(context, pattern="**/*.{ts,md}") == "README.md\nsrc/deep/c.ts"
        assert await find(context, pattern="./src/**") == "src/deep/c.ts"
        assert await find(context, pattern="*.log") == "no files match"

    async def test_by_part_of_the_name_or_else_of_the_path(self, context):
        assert await find(context, pattern="readme") == "README.md"
        assert await find(context, pattern="src/deep") == "src/deep/c.ts"
        assert await find(context, pattern="deep") == "src/deep/c.ts"

    async def test_hidden_files_count_but_not_those_of_git(self, context):
        assert await find(context, pattern="*.yml") == ".github/ci.yml"
        assert ".git/" not in await find(context, pattern="**")

    async def test_in_a_folder_paths_are_still_those_of_the_root(self, context):
        assert await find(context, pattern="*", path="src") == "src/deep/c.ts"

    async def test_the_list_is_cut_with_a_note(self, tmp_path):
        context = make_context(tmp_path, limits=OutputLimits(names=3))
        for number in range(10):
            (context.root / f"{number}.txt").touch()
        output = await call("find", context, pattern="*")
        assert output.text == "0.txt\n1.txt\n2.txt\n[7 more; narrow the pattern or the path]"
        assert output.summary == "10 files"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"pattern": " "}, "empty"),
            ({"pattern": "["}, "unclosed character class"),
            ({"pattern": "*", "path": "nowhere"}, "no such file"),
            ({"pattern": "*", "path": "a.py"}, "a file, not a folder"),
        ],
    )
    async def test_refused(self, context, arguments, message):
        with pytest.raises(ToolError, match=message):
            await find(context, **arguments)


class TestRipgrep:
    def test_the_one_on_the_path_comes_first(self, tmp_path):
        (tmp_path / "rg").write_text("#!/bin/sh\n")
        (tmp_path / "rg").chmod(0o755)
        assert find_ripgrep(str(tmp_path)) == str(tmp_path / "rg")

    def test_else_the_one_that_was_installed_with_us(self, tmp_path):
        assert os.path.exists(find_ripgrep(str(tmp_path)))

    def test_and_without_either_there_is_a_clear_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ripgrep_module, "_own_folders", list)
        with pytest.raises(ToolError, match="neither on the PATH nor installed"):
            find_ripgrep(str(tmp_path / "no such folder"))

    def test_the_installed_one_is_found_from_the_package_alone(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        monkeypatch.setattr(ripgrep_module.sysconfig, "get_path", lambda *_: str(tmp_path))
        assert os.path.basename(find_ripgrep(str(tmp_path / "another empty place"))) == "rg"

    async def test_leaving_early_or_being_cancelled_ends_the_process(self, context):
        (context.root / "large").write_text("hit " * 20 + "\n" + "hit\n" * 2_000_000)
        async with ripgrep(["--no-config", "-n", "hit", "./"], context.root, context.env) as running:
            async for _ in running.chunks():
                break
        assert running.process.returncode is not None

        processes, started = [], asyncio.Event()

        async def read_slowly():
            async with ripgrep(["--no-config", "-n", "hit", "./"], context.root, context.env) as running:
                processes.append(running.process)
                started.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(read_slowly())
        async with asyncio.timeout(60):
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert processes[0].returncode is not None

    @pytest.mark.parametrize("early", [False, True])
    async def test_its_end_is_awaited_and_nothing_is_said_about_it(self, context, caplog, *, early):
        """asyncio warned on stderr of a child that was killed after its end."""
        (context.root / "a").write_text("hit\n" * 3)
        for _ in range(100):
            async with ripgrep(["--no-config", "-n", "hit", "./"], context.root, context.env) as running:
                async for _ in running.chunks():
                    if early:
                        await asyncio.sleep(0)
                        break
                else:
                    assert running.process.returncode == 0
        assert [record.message for record in caplog.records if record.name == "asyncio"] == []
