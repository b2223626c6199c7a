"""Rules of permission: what they mean for commands and paths, and that no composition gets around them."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.always import pattern_for
from agent.config import Folders, load
from agent.errors import UserError
from agent.permission_rules import Places, RuleError, Rules, Verdict, parse_rule
from agent.permissions import Allow, Ask, Grants, Mode, Refuse, decide
from agent.progress import Progress
from agent.tools.base import Access, Effect
from context.block import ToolCall
from context.shell_commands import read_script
from context.shell_pattern import Fit, Pattern
from context.shell_words import HOLE, literal

ROOT, HOME = Path("/repo"), Path("/home/u")
DENY = Rules.parse(deny=["shell(rm *)"])
ALLOW = Rules.parse(allow=["shell(git status *)", "shell(echo *)", "shell(env *)", "shell(true)", "shell(sh *)"])


def run(command: str) -> Access:
    return Access(Effect.EXECUTE, "run it", (ROOT,), command)


def of_rules(rules: Rules, access: Access) -> Verdict | None:
    return rules.verdict(access, Places(ROOT, HOME))


@pytest.mark.parametrize(
    ("pattern", "command", "fit"),
    [
        *(("git status", "git status", 2), ("git status", "git status -s", 0), ("git status *", "git status", 2)),
        *(
            ("git status *", "git status -s x", 2),
            ("git status *", "git statusx", 0),
            ("git status*", "git statusx y", 2),
        ),
        *(("git * push", "git a b push", 2), ("git * push", "git push", 2), ("git * push", "git xpush", 0)),
        *(("npm run test:*", "npm run test:unit", 2), ("a*c d", "abc d", 2), ("a*c d", "ab cd", 0), ("*", "x", 2)),
        *(
            ("git push *", f"git {HOLE}", 1),
            ("rm *", f"rm {HOLE}", 2),
            ("rm *", f"r{HOLE}", 1),
            ("rm *", f"x{HOLE}", 0),
        ),
        *(("git push *", f"git log {HOLE}", 0), ("git push", f"{HOLE}", 1), ("a b c", f"a{HOLE}c", 1)),
    ],
)
def test_patterns(pattern, command, fit):
    assert Pattern(pattern).fit(tuple(command.split(" "))) == Fit(fit)


def test_words_are_not_joined():
    assert Pattern("git status").fit(("git status",)) is Fit.NO
    assert Pattern("npm run *").fit(("npm", "run x")) is Fit.NO


@pytest.mark.parametrize(
    "text", ["", "rm", "shell()", "shell( )", "bash(x)", "write(x)", "shell(x", "read(!x)", "edit(#x)"]
)
def test_what_is_no_rule_is_told(text, tmp_path):
    with pytest.raises(RuleError):
        parse_rule(text)
    (tmp_path / "config.toml").write_text(f"permissions_deny = ['{text}']\n")
    with pytest.raises(UserError, match="permissions_deny"):
        load(Folders(tmp_path, tmp_path, tmp_path, tmp_path), {}, {})


def test_rules_come_from_the_file_or_the_environment(tmp_path):
    (tmp_path / "config.toml").write_text("permissions_allow = ['shell(make *)']\nsandbox_network = true\n")
    told = load(Folders(tmp_path, tmp_path, tmp_path, tmp_path), {"KEEPWARM_PERMISSIONS_DENY": '["shell(rm *)"]'}, {})
    assert (told.permissions_allow, told.permissions_deny) == (("shell(make *)",), ("shell(rm *)",))
    assert (told.sandbox, told.sandbox_network) == ("auto", True)


@pytest.mark.parametrize(
    ("rule", "path", "meant"),
    [
        *(("read(~/.ssh/**)", HOME / ".ssh" / "id", True), ("read(~/.ssh/**)", HOME / ".sshx", False)),
        *(("read(~/.ssh)", HOME / ".ssh" / "id", True), ("read(/etc/**)", Path("/etc/passwd"), True)),
        *(("read(src/**)", ROOT / "src" / "a" / "b", True), ("read(src/**)", ROOT / "lib" / "src" / "a", False)),
        *(("read(.env)", ROOT / "a" / ".env", True), ("read(*.pem)", ROOT / "a.pem", True), ("read", Path("/x"), True)),
        *(("read(src/**)", Path("/src/a"), False), ("edit(src/**)", ROOT / "src" / "a", False)),
    ],
)
def test_paths(rule, path, meant):
    verdict = of_rules(Rules.parse(deny=[rule]), Access(Effect.READ, "read it", (path,)))
    assert (verdict is not None) is meant


def test_a_denied_path_is_denied_to_commands_that_name_it():
    rules = Rules.parse(deny=["read(~/.ssh/**)", "read(.env)", "edit(.github/**)"])
    for command in ("cat .env", "cat ~/.ssh/id", "cd a && grep x sub/.env", "sh -c 'ls'; cat '.e'nv", "rm .github/x"):
        assert of_rules(rules, run(command)) is not None, command
    assert of_rules(rules, run("cat env")) is None


def test_a_link_in_a_denied_pattern_is_followed(tmp_path):
    root = tmp_path.resolve()
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    access = Access(Effect.WRITE, "edit it", (root / "real" / "x",))
    assert Rules.parse(deny=["edit(link/**)"]).verdict(access, Places(root, None)) is not None
    assert Rules.parse(allow=["edit(link/**)"]).verdict(access, Places(root, None)) is None


class TestOrder:
    def decided(self, mode: Mode, access: Access, **rules: list[str]) -> object:
        return decide(mode, access, ROOT, rules=Rules.parse(**rules), home=HOME)

    def test_deny_wins_over_ask_and_ask_over_allow(self):
        three = {"allow": ["shell(make *)"], "ask": ["shell(make x)"], "deny": ["shell(make x y)"]}
        assert self.decided(Mode.ASK, run("make"), **three) == Allow()
        assert isinstance(self.decided(Mode.AUTO, run("make x"), **three), Ask)
        assert isinstance(self.decided(Mode.AUTO, run("make x y"), **three), Refuse)

    def test_deny_names_the_rule_in_every_mode(self):
        for mode in Mode:
            decision = self.decided(mode, run("make; rm x"), deny=["shell(rm *)"])
            assert isinstance(decision, Refuse)
        assert "shell(rm *)" in decision.reason

    def test_allow_needs_no_question_also_outside(self):
        outside = Access(Effect.WRITE, "write it", (Path("/other/x"),))
        assert self.decided(Mode.ASK, outside, allow=["edit(/other/**)"]) == Allow()
        assert isinstance(self.decided(Mode.ASK, Access(Effect.EXECUTE, "", (ROOT, Path("/etc/x")), "cat /etc/x"),
                                       allow=["shell(cat *)"]), Ask)  # fmt: skip

    def test_nothing_is_allowed_in_mode_plan_or_in_git(self):
        assert isinstance(self.decided(Mode.PLAN, run("make"), allow=["shell"]), Refuse)
        git = Access(Effect.WRITE, "write it", (ROOT / ".git" / "hooks" / "x",))
        assert isinstance(self.decided(Mode.AUTO, git, allow=["edit"]), Ask)

    def test_an_answer_does_not_take_an_ask_rule_away(self):
        grants, rules = Grants(), Rules.parse(ask=["shell(git push *)"])
        grants.remember(run("git push"), ROOT)
        assert isinstance(decide(Mode.ASK, run("git push"), ROOT, rules=rules, grants=grants), Ask)


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        *(("git status -s", "shell(git status *)"), ("ls -la src", "shell(ls *)"), ("npm test", "shell(npm test *)")),
        *(
            ("python3 x.py", None),
            ("git status; rm x", None),
            ("git -c a=b log", None),
            ("git $X", None),
            ("make", None),
        ),
        *(("sudo ls", None), ("npm run x", None), ("rm x", None), ("A=b git log", None), ("cat x > y", None)),
    ],
)
def test_always_offers_a_pattern_where_that_is_safe(command, offered):
    assert pattern_for(command) == offered


def test_a_granted_pattern_covers_its_like_and_nothing_more():
    grants = Grants()
    asked = decide(Mode.ASK, run("git status -s"), ROOT, grants=grants)
    assert isinstance(asked, Ask)
    assert asked.pattern == asked.always == "shell(git status *)"
    grants.remember(run("git status -s"), ROOT, asked.pattern)
    assert decide(Mode.ASK, run("git status src"), ROOT, grants=grants) == Allow()
    for command in ("git stash", "git status; git stash", "git status $(git stash)", "git status > x"):
        assert isinstance(decide(Mode.ASK, run(command), ROOT, grants=grants), Ask)


CONTEXTS = [
    *(
        "{}; true",
        "true; {}",
        "true && {}",
        "false || {}",
        "true | {}",
        "{} | cat",
        "true & {}",
        "{} &",
        "({})",
        "{{ {}; }}",
    ),
    *("if true; then {}; fi", "while {}; do break; done", "for i in 1; do {}; done", "case x in x) {};; esac", "! {}"),
    *("f() {{ {}; }}; f", "echo $({})", 'echo "$({})"', "cat <({})", "x=$({})", "[[ -n $({}) ]]", "echo ${{y:-$({})}}"),
    *("true\n{}", "echo a # b\n{}", "cat <<EOF\n$({})\nEOF", "cat <<'EOF'\ntext\nEOF\n{}", "echo $(( $({}) 0 ))"),
]
PREFIXES = ["A=b {}", "env {}", "command {}", "nohup {}", "time {}", ">/dev/null {}", "timeout 5 {}", "nice -n 1 {}"]
SPELLINGS = ["rm x", "r\\m x", "'rm' x", '"r"m x', "$'\\x72m' x", "/bin/rm x", "rm -rf x y", "rm\tx", "r\\\nm x"]
# How the command inside is put into any number of contexts, its prefixes first.
composed = st.builds(
    lambda spelling, prefixes, contexts: _put(spelling, [*prefixes, *contexts]),
    st.sampled_from(SPELLINGS),
    st.lists(st.sampled_from(PREFIXES), max_size=2),
    st.lists(st.sampled_from(CONTEXTS), max_size=4),
)


def _put(command: str, contexts: list[str]) -> str:
    for context in contexts:
        if "\n" in command and "\n" in context and "EOF" in command and "EOF" in context:
            continue  # two here-documents with one sign end each other
        command = context.format(command)
    return command


@given(composed)
def test_a_denied_command_is_never_allowed_in_any_context(command):
    assert isinstance(decide(Mode.AUTO, run(command), ROOT, rules=DENY), Ask | Refuse)
    assert isinstance(decide(Mode.ASK, run(command), ROOT, rules=ALLOW), Ask)


# Pieces that bash and other readers of shell may read differently.
PIECES = [
    *(
        "rm x",
        "rm",
        "x",
        " ",
        ";",
        "\n",
        "'",
        '"',
        "\\",
        "$(",
        ")",
        "`",
        "(",
        "{ ",
        "; }",
        "|",
        "&",
        "&&",
        "#",
        "$'",
        "$((",
    ),
    *(
        "))",
        "${y:-",
        "}",
        "<(",
        "echo ",
        "A=b ",
        "\\\n",
        "case x in x)",
        ";;",
        "esac",
        "[[",
        "]]",
        "<<<",
        "!",
        "if ",
        "fi",
    ),
    *(
        "then ",
        "f() ",
        "<<E\n",
        "\nE\n",
        "<<'E'\n",
        "<<-E\n\t",
        "\t",
        "coproc ",
        "time ",
        '$"',
        "~",
        "*",
        "=",
        ">o ",
        "2>&1 ",
    ),
    *("git status ", "git ", "echo a", "true"),
]


@pytest.fixture(scope="module")
def traps():
    """A folder of programs, of which `rm` only leaves a mark."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rm").write_text('#!/bin/sh\n: > "$MARK"\n')
        (folder / "x").write_text('#!/bin/sh\n: > "$MARK"\n')
        (folder / "git").write_text('#!/bin/sh\n[ "$1" = status ] || : > "$MARK"\n')
        for program in folder.iterdir():
            program.chmod(0o755)
        (folder / "cwd").mkdir()
        yield folder


def bash_leaves_a_mark(traps: Path, text: str) -> bool:
    mark, here = traps / "mark", traps / "cwd"
    for left in (mark, *here.iterdir()):
        left.unlink(missing_ok=True)
    env = {"PATH": str(traps), "MARK": str(mark)}
    told = {"cwd": here, "env": env, "capture_output": True, "timeout": 10, "stdin": subprocess.DEVNULL}
    subprocess.run(["/bin/bash", "-c", text], check=False, **told)
    return mark.exists()


pieces = st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces)
def test_bash_itself_runs_nothing_denied_that_was_not_seen(traps, text):
    """The judge is bash: if it comes to run `rm`, the rule must have seen that it might."""
    rules = Rules.parse(deny=["shell(rm *)", "shell(x *)", "shell(git *)"])
    if isinstance(decide(Mode.AUTO, run(text), ROOT, rules=rules), Allow):
        assert not bash_leaves_a_mark(traps, text)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces, st.sampled_from(["{}", "echo {}", "git status {}", "git status && echo {}", "echo a{}git status"]))
def test_bash_itself_runs_nothing_that_no_rule_allowed(traps, noise, around):
    """If a rule allows a text, bash runs nothing else, and makes no file."""
    text = around.format(noise)
    if of_rules(ALLOW, run(text)) is not None:
        assert not bash_leaves_a_mark(traps, text)
        assert list((traps / "cwd").iterdir()) == []
        assert all(words[0] in ("echo", "git", "env", "true", "sh") for words in read_script(text).plain or ())


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from(list("abr'\"\\$\nxnu07 -=,.#")), min_size=1, max_size=12))
def test_words_are_what_bash_makes_of_them(raw):
    if HOLE in literal(raw) or raw.startswith("#") or raw[0] in "=" or set(raw) & set(" \n"):
        return
    told = subprocess.run(["/bin/bash", "-c", f"printf %s {raw}"], capture_output=True, check=False, env={"PATH": ""})
    if told.returncode == 0 and not told.stderr:
        assert literal(raw) == os.fsdecode(told.stdout)


class TestRefusalsOfAPerson:
    """A no with a reason is news, not an error that the model keeps making."""

    def after(self, *arguments: str) -> str | None:
        progress = Progress()
        progress.begin_turn()
        for each in arguments:
            call = ToolCall("1", "shell", each)
            progress.begin_reply()
            progress.note(call, "The user refused this call.", failed=True, refused=True)
            progress.end_reply()
        return progress.stuck([call])

    def test_other_ways_may_be_tried(self):
        assert self.after(*(f'{{"command": "{number}"}}' for number in range(10))) is None

    def test_the_very_same_call_is_not_made_three_times(self):
        assert self.after("a", "b", "a") is None
        assert self.after("a", "b", "a", "a") == "calling shell though you refused that"
