"""What each mode allows, by effect and by where the paths lead."""

from pathlib import Path

import pytest
from tool_support import make_context, tool

from agent.permissions import Allow, Ask, Grants, Mode, Refuse, decide
from agent.tools.base import Access, Effect

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
