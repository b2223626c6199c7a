"""`shell`: output as text, in bounded room, and no process that outlives its call by accident."""

import asyncio
import os
import signal
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_support import call, make_context, tool

from agent.tools import excerpt as excerpt_module
from agent.tools.base import Effect, OutputLimits, ToolError
from agent.tools.excerpt import Excerpt
from agent.tools.process import run_group
from agent.tools.terminal import LineFolder, PlainText


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie that no one has collected does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition) -> None:
    """Wait for something outside of this process, which nothing here can await."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


class TestAnswer:
    @pytest.mark.parametrize(
        ("command", "text"),
        [
            ("echo hello", "hello"),
            ("true", "exit 0"),
            ("false", "exit 1"),
            ("echo out; exit 3", "out\nexit 3"),
            ("echo err >&2", "err"),
            ("printf 'a\\n\\n\\n'", "a"),
            ("echo ' \n'", "exit 0"),
            ("kill -9 $$", "ended by signal Killed"),
            ("no-such-program-here", "bash: line 1: no-such-program-here: command not found\nexit 127"),
            ("cat", "exit 0"),
        ],
    )
    async def test_output_and_exit_status(self, context, command, text):
        output = await call("shell", context, command=command)
        assert output.text.replace("/usr/bin/bash:", "bash:") == text
        assert not output.is_error

    async def test_it_runs_in_the_root_with_the_environment_of_the_user(self, tmp_path):
        context = make_context(tmp_path, PYTHONPATH="/their/own", MARK="1")
        output = await call("shell", context, command="pwd; echo $PYTHONPATH $MARK $PAGER $GIT_PAGER $TERM")
        assert output.text == f"{context.root}\n/their/own 1 cat cat dumb"

    async def test_nothing_of_our_environment_leaks_in(self, context, monkeypatch):
        monkeypatch.setenv("OURS", "leaked")
        assert (await call("shell", context, command="echo [$OURS]")).text == "[]"

    async def test_it_is_bash(self, context):
        assert (await call("shell", context, command="a=(1 2); [[ ${a[1]} == 2 ]] && echo yes")).text == "yes"

    async def test_sh_will_do(self, context, tmp_path):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
        context.env = {"PATH": str(tmp_path / "bin")}
        assert (await call("shell", context, command="echo hi")).text == "hi"

    async def test_no_shell_at_all(self, context, tmp_path):
        context.env = {"PATH": str(tmp_path)}
        with pytest.raises(ToolError, match="no `bash` and no `sh`"):
            await call("shell", context, command="echo hi")

    @pytest.mark.parametrize("command", ["", "  ", "echo a\0b", "echo \ud83d"])
    async def test_what_no_command_line_can_hold(self, context, command):
        with pytest.raises(ToolError):
            await call("shell", context, command=command)

    async def test_a_command_that_is_too_long_for_the_system(self, context):
        with pytest.raises(ToolError, match="could not be started: argument list too long"):
            await call("shell", context, command="true " + "x" * 5_000_000)

    async def test_a_working_directory_that_is_gone(self, context):
        context.root.rmdir()
        with pytest.raises(ToolError, match="could not be started: no such file"):
            await call("shell", context, command="true")


class TestText:
    @pytest.mark.parametrize(
        ("command", "text"),
        [
            (r"printf '\033[1;31mred\033[0m plain'", "red plain"),
            (r"printf '\033]0;title\007text \033]8;;http://x\033\\link\033]8;;\033\\'", "text link"),
            (r"printf '10%%\r50%%\r100%%\ndone\n'", "100%\ndone"),
            (r"printf 'working...\r'", "working..."),
            (r"printf 'a\r\nb\r\n'", "a\nb"),
            (r"printf 'a\0b\001c'", "abc"),
            (r"printf 'caf\xe9 \xe4\xb8\xad'", "caf\ufffd 中"),
            (r"printf '|\b/\b-\b done'", " done"),
        ],
        ids=["colour", "title and link", "progress", "open line", "crlf", "controls", "bytes", "spinner"],
    )
    async def test_what_was_meant_for_a_terminal_becomes_text(self, context, command, text):
        assert (await call("shell", context, command=command)).text == text

    @given(
        pieces=st.lists(
            st.sampled_from(
                [
                    b"a",
                    b"\x1b[31m",
                    b"\x1b]0;t\x07",
                    b"\x1b",
                    b"\r",
                    b"\n",
                    b"\b",
                    "中".encode(),
                    b"\xff",
                    b"\x9b1m",
                    b"[",
                    b"\x1bP",
                    b"\x1b\\",
                    b"]",
                ]
            ),
            max_size=20,
        ),
        size=st.integers(1, 5),
    )
    def test_how_output_is_cut_into_pieces_does_not_matter(self, pieces, size):
        data = b"".join(pieces)

        def text(chunks):
            plain, folder = PlainText(), LineFolder()
            settled = [folder.feed(plain.feed(chunk)) for chunk in chunks]
            return "".join([*settled, folder.feed(plain.close()), folder.close()])

        assert text([data[at : at + size] for at in range(0, len(data), size)]) == text([data])

    @pytest.mark.parametrize("form", ["\r{} of many", "{} of many\r"])
    def test_a_progress_bar_without_line_ends_takes_no_room(self, form):
        folder = LineFolder()
        for number in range(50_000):
            assert folder.feed(form.format(number)) == ""
        assert folder.close() == "49999 of many"

    def test_an_escape_sequence_without_an_end_holds_nothing_back_for_good(self):
        plain = PlainText()
        text = plain.feed(b"\x1b]0;" + b"x" * 10_000)
        assert len(text) + len(plain.close()) >= 10_000


class TestStream:
    async def test_output_of_endless_size_is_told_in_pieces_of_bounded_size(self, context):
        longest = 0

        def listen(text):
            nonlocal longest
            longest = max(longest, len(text))

        context.on_output = listen
        await call("shell", context, command="head -c 5000000 /dev/zero | tr '\\0' x")
        assert longest <= 1 << 17

    async def test_output_is_told_while_the_command_runs(self, context):
        told = asyncio.Event()
        pieces = []

        def listen(text):
            pieces.append(text)
            told.set()

        context.on_output = listen
        task = asyncio.create_task(call("shell", context, command="echo first; while [ ! -e go ]; do sleep 0.01; done"))
        async with asyncio.timeout(60):
            await told.wait()
            assert not task.done()
            (context.root / "go").touch()
            await task
        assert "".join(pieces) == "first\n"

    async def test_secrets_stay_out_of_the_stream_the_answer_and_the_file(self, tmp_path):
        context = make_context(tmp_path, limits=OutputLimits(output_chars=200), MY_TOKEN="s3cr3t-s3cr3t")
        pieces = []
        context.on_output = pieces.append
        output = await call("shell", context, command="for i in {1..50}; do printf s3cr3t-; printf 's3cr3t\\n'; done")
        for text in ("".join(pieces), output.text, output.full.read_text()):
            assert "s3cr3t" not in text
            assert "[secret MY_TOKEN]" in text


class TestLongOutput:
    async def test_head_and_tail_and_the_path_of_all_of_it(self, context):
        output = await call("shell", context, command="seq 1 10000")
        lines = output.text.split("\n")
        assert lines[0] == "1"
        assert lines[-1] == "10000"
        assert len(lines) <= 401
        assert len(output.text) <= 30_300
        gap = next(line for line in lines if "left out" in line)
        assert str(output.full) in gap
        assert output.full.parent == context.spill
        assert output.full.read_text() == "".join(f"{number}\n" for number in range(1, 10_001))
        assert output.full.stat().st_mode & 0o077 == 0

    async def test_short_output_makes_no_file(self, context):
        output = await call("shell", context, command="seq 1 400")
        assert output.full is None
        assert not context.spill.exists()

    async def test_the_exit_status_comes_behind_the_tail(self, context):
        assert (await call("shell", context, command="seq 1 10000; exit 2")).text.endswith("\n10000\nexit 2")

    async def test_the_limit_is_that_of_the_model(self, tmp_path):
        context = make_context(tmp_path, limits=OutputLimits(output_chars=1_000, output_lines=20))
        output = await call("shell", context, command="seq 1 10000")
        assert len(output.text) < 1_300
        assert output.text.count("\n") <= 20

    async def test_one_line_without_an_end(self, context):
        output = await call("shell", context, command="head -c 1000000 /dev/zero | tr '\\0' x")
        assert len(output.text) < 30_300
        assert "characters left out" in output.text
        assert output.full.stat().st_size == 1_000_000

    async def test_endless_output_takes_little_memory_and_ends_with_its_time(self, context):
        tracemalloc.start()
        output = await call("shell", context, command="yes", timeout=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert output.is_error
        assert output.text.endswith("timed out after 1 s; the command and its children were ended")
        assert peak < 10_000_000

    async def test_the_file_does_not_fill_the_disk(self, context, monkeypatch):
        monkeypatch.setattr(excerpt_module, "LARGEST_FILE", 1_000)
        output = await call("shell", context, command="seq 1 10000")
        assert "the first 1,000 characters are in" in output.text
        assert output.full.stat().st_size == 1_000
        assert output.text.endswith("10000")

    async def test_a_full_disk_is_said_and_the_answer_is_kept(self, context):
        context.spill.parent.joinpath("blocked").write_text("")
        context.spill = context.spill.parent / "blocked"
        output = await call("shell", context, command="seq 1 10000")
        assert "not kept: File exists" in output.text
        assert output.text.endswith("10000")

    @given(pieces=st.lists(st.text("ab\n", max_size=30), max_size=30))
    def test_an_excerpt_is_the_beginning_and_the_end(self, tmp_path_factory, pieces):
        limits = OutputLimits(output_chars=60, output_lines=9)
        excerpt = Excerpt(limits, tmp_path_factory.getbasetemp() / "spill", "x")
        for piece in pieces:
            excerpt.feed(piece)
        text, whole = excerpt.close(), "".join(pieces)
        if len(whole) <= 60 and whole.count("\n") <= 9:
            assert text == whole
            return
        head, _, rest = text.partition("[…")
        tail = rest.partition("…]\n")[2]
        assert whole.startswith(head.removesuffix("\n"))
        assert whole.endswith(tail)
        assert len(head) + len(tail) <= 61
        assert excerpt.path.read_text() == whole


class TestProcesses:
    async def test_a_time_out_ends_the_whole_group_and_keeps_the_output(self, context):
        command = "echo before; sleep 300 & echo $! > child; sleep 300"
        output = await call("shell", context, command=command, timeout=1)
        assert output.text == "before\ntimed out after 1 s; the command and its children were ended"
        await until(lambda: not alive(int((context.root / "child").read_text())))

    async def test_cancellation_ends_the_whole_group(self, context):
        command = "sleep 300 & echo $! > child.new; mv child.new child; sleep 300"
        task = asyncio.create_task(call("shell", context, command=command))
        await until((context.root / "child").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not alive(int((context.root / "child").read_text())))

    async def test_who_ignores_the_request_is_killed(self, context):
        command = "trap '' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.05; done"
        ended = asyncio.create_task(
            run_group(
                ["bash", "-c", command],
                cwd=context.root,
                env=context.env,
                time_limit=0.5,
                on_output=lambda _: None,
                grace=0.3,
            )
        )
        result = await ended
        assert result.timed_out
        assert result.code == -signal.SIGKILL
        assert not alive(int((context.root / "pid").read_text()))

    async def test_who_cleans_up_on_request_may(self, context):
        command = "trap 'echo cleaned; exit 1' TERM; echo ready; while :; do sleep 0.05; done"
        assert "\ncleaned\ntimed out" in (await call("shell", context, command=command, timeout=1)).text

    async def test_a_child_in_the_background_does_not_hold_the_call(self, context):
        begun = time.monotonic()
        output = await call("shell", context, command="sleep 300 & echo $! > child; echo started")
        assert time.monotonic() - begun < 30
        assert output.text.startswith("started\n[a background process holds the output open")
        child = int((context.root / "child").read_text())
        assert alive(child)
        os.kill(child, signal.SIGKILL)

    async def test_a_child_that_writes_elsewhere_is_not_mentioned(self, context):
        output = await call("shell", context, command="sleep 300 >/dev/null 2>&1 & echo $! > child; echo started")
        assert output.text == "started"
        os.kill(int((context.root / "child").read_text()), signal.SIGKILL)

    async def test_a_listener_that_fails_leaves_no_process(self, context):
        def broken(_):
            raise RuntimeError("screen is gone")

        context.on_output = broken
        with pytest.raises(ExceptionGroup):
            await call("shell", context, command="echo $$ > pid; echo x; sleep 300")
        await until(lambda: not alive(int((context.root / "pid").read_text())))

    async def test_no_file_descriptor_is_left_open(self, context):
        await call("shell", context, command="true")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await call("shell", context, command="echo x")
        with pytest.raises(ToolError):
            await call("shell", context, command="true " + "x" * 5_000_000)
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= before


class TestAccess:
    def test_it_executes_and_shows_the_command_in_one_line(self, context):
        access = tool("shell").access({"command": "echo a\necho \x1b[31m"}, context)
        assert access.effect is Effect.EXECUTE
        assert (
            access.summary == "run echo a\\necho \\x1b[31m"
        )  # a line break must show: it is where a second command begins
        assert access.command == "echo a\necho \x1b[31m"
        assert access.paths == (context.root,)

    @pytest.mark.parametrize(
        ("command", "named"),
        [
            ("cat ../secret", ["{up}/secret"]),
            ("cat <../secret>>../log", ["{up}/secret", "{up}/log"]),
            ("ls ~", ["{up}"]),
            ('rm -rf "$HOME/x" ${HOME}/y', ["{up}/x", "{up}/y"]),
            ("cp a {up}/notes.txt", ["{up}/notes.txt"]),
            ("cat link/x", ["/usr/x"]),
            ("tool --out=/etc/new", ["/etc/new"]),
            ("cd .. && make", ["{up}"]),
            ("grep -r /api/v1 src/../src 2>/dev/null", []),
            ("/usr/bin/env python3 a.py", []),
            ("{up}/venv/bin/python a.py", []),
            ("git log HEAD~3..HEAD -- a.py", []),
            ("curl https://example.org/etc", []),
            ("sed -i 's/a/b/' a.py", []),
            ("awk '{print $1 / $2}' a.csv", []),
            ("python -c 'print(4 // 2)'", []),
            ('grep -rn "//" src', []),
            ("echo $((6 / 2))", []),
            ("find / -name x", ["/"]),
            ("rm -rf / tmp", ["/"]),
            ("echo x >/rootfile", ["/rootfile"]),
            ("echo x 2>> '/rootfile'", ["/rootfile"]),
            ("curl -X POST /users >/dev/null", []),
        ],
    )
    def test_paths_outside_that_it_names_are_touched(self, context, command, named):
        up = context.root.parent
        (context.root / "link").symlink_to("/usr")
        (up / "notes.txt").touch()
        (up / "venv" / "bin").mkdir(parents=True)
        (up / "venv" / "bin" / "python").touch(0o755)
        paths = tool("shell").access({"command": command.replace("{up}", str(up))}, context).paths
        assert [str(path) for path in paths[1:]] == [name.format(up=up) for name in named]
