"""The sandbox, for real: what a command in it can and cannot do. Where there is none, that is said."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tool_support import call, make_context

from agent.gate import Answer, ModeGate
from agent.permission_rules import Rules
from agent.permissions import Mode
from agent.sandbox import Fence, Sandbox, clean_environment, command_line, confining, find_sandbox, home_secrets
from agent.seatbelt import seatbelt_profile
from agent.tools.base import Access, Effect


def _why_not() -> str:
    """Empty where a sandbox works."""
    return find_sandbox(Fence(Path("/usr"), Path("/tmp")), os.environ, sys.platform)[1]


needs_sandbox = pytest.mark.skipif(bool(_why_not()), reason=f"no sandbox: {_why_not()}")


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("very secret")
    (home / ".netrc").write_text("very secret")
    (home / "own").mkdir()
    (home / "own" / "ledger.db").write_text("very secret")
    (home / "notes").write_text("plain")
    return home


@pytest.fixture
def said():
    return []


@pytest.fixture
def context(tmp_path, home, said):
    context = make_context(tmp_path, HOME=str(home), SOME_API_KEY="k-123456789", SSH_AUTH_SOCK="/tmp/agent")
    subprocess.run(["git", "init", "-q", context.root], check=True)
    (context.root / "a.py").write_text("print('inside')\n")
    sandbox = Sandbox(context.root, [*home_secrets(home), home / "own"], [context.spill], said.append)
    context.confine = sandbox.confine
    return context


async def run(context, command: str, **more: object) -> str:
    return (await call("shell", context, command=command, **more)).text


@needs_sandbox
class TestFence:
    @pytest.mark.parametrize(
        ("command", "made"),
        [
            ("echo x > ../outside", "outside"),
            ("touch $HOME/x", "home/x"),
            ("python3 -c \"open('../outside', 'w')\"", "outside"),
            ("ln -s .. up; echo x > up/outside", "outside"),
            ("mkdir -p $HOME/.config/autostart", "home/.config"),
            ("mv ../home ../away", "away"),
            ("cd / && touch usr/x", "/usr/x"),
        ],
    )
    async def test_nothing_is_written_outside(self, context, tmp_path, command, made):
        assert "ead-only file system" in await run(context, command)
        assert not (tmp_path / made).exists()

    @pytest.mark.parametrize(
        "command",
        [
            *(
                "cat $HOME/.ssh/id_ed25519",
                "cat $HOME/.netrc",
                "cat $HOME/own/ledger.db",
                "cp -r $HOME . ; cat home/.netrc",
            ),
            *(
                "ln -s $HOME/.ssh s; cat s/*",
                'python3 -c \'import os; print(open(os.environ["HOME"] + "/.netrc").read())\'',
            ),
            *("cat /proc/1/environ /proc/*/root/$HOME/.netrc", "umount $HOME/.ssh; cat $HOME/.ssh/*"),
            *("unshare -rm sh -c 'umount $HOME/.ssh; cat $HOME/.ssh/*'", "env", "grep -r secret $HOME"),
        ],
    )
    async def test_no_secret_is_read(self, context, command):
        text = await run(context, command)
        assert "very secret" not in text
        assert "SOME_API_KEY" not in text

    async def test_no_socket_reaches_anything(self, context, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            connect = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""
            text = await run(context, connect)
            assert "onnection refused" in text
            assert "It ran in a sandbox" in text  # the model is told why
            server.settimeout(0)
            with pytest.raises(BlockingIOError):
                server.accept()

    async def test_the_network_can_be_allowed(self, context, said):
        sandbox = Sandbox(context.root, [], [], said.append, network=True)
        context.confine = sandbox.confine
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            connect = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""
            assert await run(context, connect) == "exit 0"

    @pytest.mark.parametrize(
        "command",
        [
            *("echo x > .git/hooks/pre-commit", "git config alias.x '!rm y'", "echo x >> .git/config"),
            *("mv .git away", "rm -rf .git/hooks; mkdir .git/hooks && touch .git/hooks/pre-commit"),
            "mv .git/hooks h; mkdir -p .git/hooks; touch .git/hooks/pre-commit",
        ],
    )
    async def test_what_git_runs_stays_as_it_is(self, context, command):
        before = (context.root / ".git" / "config").read_text()
        assert await run(context, f"{command} && echo done") != "done"
        assert (context.root / ".git" / "config").read_text() == before
        assert not (context.root / ".git" / "hooks" / "pre-commit").exists()


@needs_sandbox
class TestWork:
    @pytest.mark.parametrize(
        ("command", "text"),
        [
            ("python3 a.py", "inside"),
            ("echo x > b && cat b && rm b", "x"),
            ("git add a.py && git -c user.name=n -c user.email=e commit -qm m && git log --format=%s", "m"),
            ("cat $HOME/notes", "plain"),
            ("echo x > $TMPDIR/x && cat $TMPDIR/x; echo y > /dev/null", "x"),
            ("python3 -c 'import os, tempfile as t; print(t.gettempdir() == os.environ[\"TMPDIR\"])'", "True"),
            ("exit 3", "exit 3"),
            ("kill -9 $$", "exit 137"),
            ("echo $SOME_API_KEY$SSH_AUTH_SOCK end", "end"),
            ("python3 -c 'import multiprocessing as m; print(m.Pool(1).map(abs, [-1]))'", "[1]"),
        ],
    )
    async def test_inside_everything_works(self, context, said, command, text):
        assert await run(context, command) == text
        assert said == []

    async def test_temporary_files_last_from_command_to_command_and_go_with_the_session(self, context, said):
        sandbox = Sandbox(context.root, [], [], said.append)
        context.confine = sandbox.confine
        await run(context, "echo x > $TMPDIR/x")
        assert await run(context, "cat $TMPDIR/x") == "x"
        folder = sandbox.temporary
        assert [path.name for path in folder.iterdir()] == ["x"]
        sandbox.close()
        assert not os.access(folder, os.F_OK)

    async def test_away_from_tmp_the_temporary_folder_is_tmp(self, said):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            context = make_context(Path(folder))
            sandbox = Sandbox(context.root, [], [], said.append)
            context.confine = sandbox.confine
            assert await run(context, "echo x > /tmp/x && echo y > y && ls /tmp") == "x"
            assert [path.name for path in sandbox.temporary.iterdir()] == ["x"]
            assert (context.root / "y").read_text() == "y\n"

    async def test_full_outputs_can_be_read(self, context):
        context.spill.mkdir()
        (context.spill / "shell-1.txt").write_text("full")
        assert await run(context, f"cat {context.spill}/shell-1.txt") == "full"

    async def test_output_streams(self, context):
        seen: list[str] = []
        context.on_output = seen.append
        await run(context, "echo one; sleep 0.2; echo two")
        assert len(seen) > 1
        assert "".join(seen) == "one\ntwo\n"

    async def test_a_time_limit_ends_all_of_it(self, context):
        text = await run(context, "trap '' TERM; (while :; do echo x >> log; sleep 0.05; done) & sleep 60", timeout=1)
        assert "timed out" in text
        size = (context.root / "log").stat().st_size
        await asyncio.sleep(0.3)  # long enough for a survivor to write: that nothing comes cannot be awaited
        assert (context.root / "log").stat().st_size == size

    async def test_what_is_left_in_the_background_lives_on(self, context):
        text = await run(
            context, 'mkfifo pipe; (read line < pipe; echo "got $line" > got) >/dev/null 2>&1 & echo started'
        )
        assert text.startswith("started\n[something runs on in the background")
        async with asyncio.timeout(10):
            await asyncio.to_thread((context.root / "pipe").write_text, "it\n")
            while not (context.root / "got").exists() or not (context.root / "got").read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (context.root / "got").read_text() == "got it\n"

    async def test_cancelling_ends_it(self, context):
        task = asyncio.create_task(run(context, "echo $$ > pid; exec sleep 60"))
        async with asyncio.timeout(10):
            while not (context.root / "pid").exists():  # noqa: ASYNC110 (another process makes it)
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_where_there_is_none_that_is_said_once(tmp_path, said):
    context = make_context(tmp_path)
    context.confine = Sandbox(context.root, [], [], said.append, platform="plan9").confine
    assert await run(context, "echo a") == "a"
    assert await run(context, "echo b") == "b"
    assert said == [
        "Commands run without a sandbox: this system has none that we know. "
        "In mode auto they can do all that you can do."
    ]


def test_a_sandbox_that_does_not_work_is_none(tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    (tmp_path / "repo").mkdir()
    fence = Fence(tmp_path / "repo", tmp_path)
    program, why = find_sandbox(fence, {"PATH": str(tmp_path)}, "linux")
    assert program != broken
    assert program is not None or "namespace" in why


def test_a_bwrap_of_the_repository_is_not_trusted(tmp_path):
    planted = tmp_path / "bwrap"
    planted.write_text('#!/bin/sh\nshift $(($# - 1)); exec "$@"\n')
    planted.chmod(0o755)
    assert find_sandbox(Fence(tmp_path, tmp_path), {"PATH": str(tmp_path)}, "linux")[0] != planted


def test_a_repository_in_a_secret_folder_is_not_hidden_from_itself(tmp_path):
    fence = Fence(tmp_path / ".config" / "gh" / "repo", tmp_path, secrets=(tmp_path / ".config" / "gh",))
    assert "--tmpfs" not in command_line(Path("bwrap"), fence)[command_line(Path("bwrap"), fence).index("--bind") :]


def test_the_profile_of_macos():
    profile = seatbelt_profile(Path('/r "x"'), Path("/t"), [Path("/h/.ssh")], [Path("/h/own/spill")], network=False)
    lines = profile.splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert lines[3] == r'(allow file-write* (subpath "/r \"x\"") (subpath "/t"))'
    assert r'(subpath "/r \"x\"/.git/hooks")' in profile
    hidden, shown = (lines.index(line) for line in lines if "/h/" in line)
    assert lines[hidden] == '(deny file-read* file-write* (subpath "/h/.ssh"))'
    assert shown > hidden  # the last rule counts
    assert lines[-1] == "(deny network*)"
    assert "network" not in seatbelt_profile(Path("/r"), Path("/t"), [], [], network=True)


def test_the_environment_has_no_keys_and_no_way_out():
    env = {"PATH": "/bin", "SOME_API_KEY": "k", "TMUX": "x", "MY_KEY_FILE": "/k"}
    assert clean_environment(env, Path("/own")) == {
        "PATH": "/bin",
        "MY_KEY_FILE": "/k",
        "TMPDIR": "/own",
        "XDG_CACHE_HOME": "/own/cache",
    }


class TestWhichCommands:
    """Only those of which nobody was asked: what a person or a rule of theirs has allowed runs as they would run it."""

    @pytest.mark.parametrize(
        ("mode", "command", "confined"),
        [
            *((Mode.AUTO, "make", True), (Mode.AUTO, "cat ../x", False), (Mode.ASK, "make", False)),
            *((Mode.AUTO, "git push origin", False), (Mode.AUTO, "git push; make", True)),
        ],
    )
    async def test_by_mode_and_answer(self, tmp_path, mode, command, confined):
        root = tmp_path.resolve()

        async def yes(ask):
            return Answer(allowed=True)

        gate = ModeGate(mode, root, yes, rules=Rules.parse(allow=["shell(git push *)"]))
        paths = (root, root.parent) if ".." in command else (root,)
        assert await gate.refusal(Access(Effect.EXECUTE, "run it", paths, command)) is None
        assert gate.confined is confined
        confine = confining(gate, root, None, [], root / "spill", lambda _: None, network=False)
        assert ((await confine(["true"], {})).argv == ("true",)) is (not confined or bool(_why_not()))
