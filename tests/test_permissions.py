"""What each mode allows, by effect and by where the paths lead."""

from pathlib import Path

import pytest
from tool_support import make_context, tool

from agent.gate import CHANGED_MEANWHILE, Answer, ModeGate
from agent.permissions import Allow, Ask, Grants, Mode, Refuse, decide
from agent.screens.diff import show_diff
from agent.tools.base import Access, Effect

NO_LINE_END = "\\ No newline at end of file"

ROOT = Path("/repo")
INSIDE, OUTSIDE, GIT = ROOT / "src" / "a.py", Path("/etc/hosts"), ROOT / ".git" / "hooks" / "pre-commit"
SIBLING = Path("/repository/a.py")  # begins with the letters of the root, but does not lie in it


def access(effect: Effect, *paths: Path) -> Access:
    return Access(effect, f"{effect} it", paths, "make" if effect is Effect.EXECUTE else "")


READ, WRITE, RUN = Effect.READ, Effect.WRITE, Effect.EXECUTE
TABLE = [
    # effect, paths, then the outcome in plan, ask, edits, auto
    (READ, (INSIDE,), "allow allow allow allow"),
    (READ, (ROOT,), "allow allow allow allow"),
    (READ, (OUTSIDE,), "refuse ask ask ask"),
    (READ, (SIBLING,), "refuse ask ask ask"),
    (READ, (INSIDE, OUTSIDE), "refuse ask ask ask"),
    (READ, (GIT,), "allow allow allow allow"),
    (WRITE, (INSIDE,), "refuse ask allow allow"),
    (WRITE, (OUTSIDE,), "refuse ask ask ask"),
    (WRITE, (INSIDE, OUTSIDE), "refuse ask ask ask"),
    (WRITE, (SIBLING,), "refuse ask ask ask"),
    (WRITE, (GIT,), "refuse ask ask ask"),
    (WRITE, (ROOT / ".GIT" / "config",), "refuse ask ask ask"),
    (WRITE, (ROOT / ".gitignore",), "refuse ask allow allow"),
    (RUN, (ROOT,), "refuse ask ask allow"),
    (RUN, (ROOT, OUTSIDE), "refuse ask ask ask"),
]
KINDS = {"allow": Allow, "ask": Ask, "refuse": Refuse}


@pytest.mark.parametrize(("effect", "paths", "outcomes"), TABLE)
@pytest.mark.parametrize("interactive", [True, False])
def test_the_table(effect, paths, outcomes, interactive):
    for mode, outcome in zip(Mode, outcomes.split(), strict=True):
        expected = "refuse" if outcome == "ask" and not interactive else outcome
        decision = decide(mode, access(effect, *paths), ROOT, interactive=interactive)
        assert isinstance(decision, KINDS[expected]), (mode, decision)


@pytest.mark.parametrize(
    ("mode", "effect", "path", "said"),
    [
        (Mode.ASK, WRITE, INSIDE, "--mode edits"),
        (Mode.ASK, RUN, ROOT, "--mode auto"),
        (Mode.EDITS, RUN, ROOT, "--mode auto"),
        (Mode.AUTO, WRITE, OUTSIDE, "/etc/hosts is outside the working directory"),
        (Mode.AUTO, WRITE, GIT, "git's own folder"),
        (Mode.ASK, READ, OUTSIDE, "no mode allows it unasked"),
        (Mode.PLAN, WRITE, INSIDE, "mode plan only reads"),
        (Mode.PLAN, READ, OUTSIDE, "inside the working directory, not /etc/hosts"),
    ],
)
def test_a_refusal_tells_what_would_allow_it(mode, effect, path, said):
    decision = decide(mode, access(effect, path), ROOT, interactive=False)
    assert isinstance(decision, Refuse)
    assert said in decision.reason


def test_a_question_names_the_call_and_what_is_unusual():
    assert decide(Mode.ASK, access(RUN, ROOT), ROOT) == Ask("Allow to execute it?", "this exact command")
    assert decide(Mode.ASK, access(WRITE, INSIDE), ROOT) == Ask(
        "Allow to write it?", "writing in the working directory"
    )
    assert decide(Mode.AUTO, access(READ, OUTSIDE), ROOT) == Ask(
        "Allow to read it? (/etc/hosts is outside the working directory)", "reading in /etc"
    )
    assert decide(Mode.AUTO, access(WRITE, GIT), ROOT) == Ask("Allow to write it? (git's own folder)", None)


def test_full_outputs_may_be_read_though_they_lie_outside():
    spill = Path("/data/spill")
    for effect in (READ, RUN):
        assert decide(Mode.AUTO, access(effect, spill / "shell-1.txt"), ROOT, readable=[spill]) == Allow()
    assert decide(Mode.PLAN, access(READ, spill / "shell-1.txt"), ROOT, readable=[spill]) == Allow()
    assert isinstance(decide(Mode.AUTO, access(WRITE, spill / "shell-1.txt"), ROOT, readable=[spill]), Ask)


class TestGrants:
    def test_a_command_is_granted_by_its_exact_text(self):
        grants = Grants()
        grants.remember(Access(RUN, "run make", (ROOT,), "make"), ROOT)
        assert decide(Mode.ASK, Access(RUN, "run make", (ROOT,), "make"), ROOT, grants=grants) == Allow()
        assert isinstance(decide(Mode.ASK, Access(RUN, "run make", (ROOT,), "make\nrm x"), ROOT, grants=grants), Ask)

    def test_writing_is_granted_for_the_working_directory_or_a_folder(self):
        grants = Grants()
        grants.remember(access(WRITE, INSIDE), ROOT)
        assert decide(Mode.ASK, access(WRITE, ROOT / "other"), ROOT, grants=grants) == Allow()
        assert isinstance(decide(Mode.ASK, access(WRITE, OUTSIDE), ROOT, grants=grants), Ask)
        grants.remember(access(WRITE, OUTSIDE), ROOT)
        assert decide(Mode.ASK, access(WRITE, OUTSIDE.parent / "passwd"), ROOT, grants=grants) == Allow()
        assert isinstance(decide(Mode.ASK, access(READ, OUTSIDE), ROOT, grants=grants), Ask)

    def test_every_path_must_be_granted(self):
        grants = Grants()
        grants.remember(access(READ, OUTSIDE), ROOT)
        assert isinstance(decide(Mode.ASK, access(READ, OUTSIDE, Path("/var/x")), ROOT, grants=grants), Ask)

    def test_nothing_is_granted_for_git_or_in_mode_plan(self):
        grants = Grants()
        grants.remember(access(WRITE, INSIDE), ROOT)
        assert isinstance(decide(Mode.ASK, access(WRITE, GIT), ROOT, grants=grants), Ask)
        assert isinstance(decide(Mode.PLAN, access(WRITE, INSIDE), ROOT, grants=grants), Refuse)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", {"path": "link/secret"}),
        ("read", {"path": "../up"}),
        ("edit", {"path": "link/secret", "old": "a", "new": "b"}),
        ("write", {"path": "dangling", "content": "x"}),
        ("write", {"path": "src/../../up", "content": "x"}),
        ("write", {"path": "~/x", "content": "x"}),
        ("search", {"pattern": "x", "path": "link"}),
        ("find", {"pattern": "*", "path": "/"}),
        ("shell", {"command": "cat link/secret"}),
        ("shell", {"command": "cat ../up"}),
    ],
)
def test_no_tool_leaves_the_root_unasked_through_links_and_dots(tmp_path, name, arguments):
    context = make_context(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    (context.root / "link").symlink_to(tmp_path / "outside")
    (context.root / "dangling").symlink_to(tmp_path / "outside" / "new")
    touched = tool(name).access(arguments, context)
    for mode in Mode:
        assert isinstance(decide(mode, touched, context.root, interactive=False), Refuse)
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


class TestTheChangeThatIsShown:
    """A person says yes to a diff; that diff, and nothing else, is what is done."""

    async def ask(self, context, name, arguments, meanwhile=lambda: None, mode=Mode.ASK):
        asked = []

        async def asker(ask):
            asked.append(ask)
            meanwhile()
            return Answer(allowed=True)

        gate = ModeGate(mode, context.root, asker)
        return asked, await gate.refusal(tool(name).access(arguments, context))

    @pytest.mark.parametrize(
        ("name", "arguments", "diff"),
        [
            ("edit", {"path": "a", "old": "two", "new": "2"}, "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2"),
            ("edit", {"path": "new", "old": "", "new": "x\n"}, "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x"),
            ("write", {"path": "new", "content": "x"}, "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n" + NO_LINE_END),
        ],
    )
    async def test_it_is_worked_out_before_the_question(self, tmp_path, name, arguments, diff):
        context = make_context(tmp_path)
        (context.root / "a").write_text("one\ntwo\n")
        asked, refusal = await self.ask(context, name, arguments)
        assert [ask.diff for ask in asked] == [diff]
        assert refusal is None
        assert [path.name for path in context.root.iterdir()] == ["a"]  # nothing is done by looking

    async def test_a_file_that_changes_while_the_question_is_open_is_not_written(self, tmp_path):
        context = make_context(tmp_path)
        file = context.root / "a"
        file.write_text("one\ntwo\n")
        edit = {"path": "a", "old": "two", "new": "2"}
        _, refusal = await self.ask(context, "edit", edit, lambda: file.write_text("zero\none\ntwo\n"))
        assert refusal == CHANGED_MEANWHILE

    async def test_secrets_of_the_environment_are_not_in_it(self, tmp_path):
        context = make_context(tmp_path, SOME_API_KEY="k-123456789")
        (context.root / "a").write_text("key = 'k-123456789'\ntwo\n")
        asked, _ = await self.ask(context, "edit", {"path": "a", "old": "two", "new": "2"})
        assert "k-123456789" not in asked[0].diff
        assert "[secret SOME_API_KEY]" in asked[0].diff

    async def test_a_command_has_none(self, tmp_path):
        asked, _ = await self.ask(make_context(tmp_path), "shell", {"command": "make"})
        assert [ask.diff for ask in asked] == [None]

    async def test_a_mode_set_in_the_open_session_counts_from_the_next_call_on(self, tmp_path):
        context = make_context(tmp_path)
        gate = ModeGate(Mode.ASK, context.root, None)
        touched = tool("write").access({"path": "a", "content": "x"}, context)
        assert await gate.refusal(touched) is not None
        gate.mode = Mode.EDITS
        assert await gate.refusal(touched) is None
        gate.mode = Mode.PLAN
        assert await gate.refusal(touched) is not None


def test_a_diff_cannot_command_the_terminal_and_a_long_one_is_folded():
    shown = show_diff("--- a/x\n+++ b/x\n+\x1b[2Jgone\tand\u202e\r").plain
    assert shown == "--- a/x\n+++ b/x\n+\\x1b[2Jgone\tand\\u202e\\r"
    lines = [f"+{number}" for number in range(1000)]
    folded = show_diff("\n".join(lines), lines=30).plain.splitlines()
    assert len(folded) == 31
    assert folded[20] == "[… 970 more lines]"
    assert [folded[0], folded[-1]] == ["+0", "+999"]
    assert len(show_diff("\n".join(lines), lines=None).plain.splitlines()) == 1000
