"""What small models are told beside a tool's own result, and what they are asked."""

import json
import subprocess
from pathlib import Path

import pytest

from agent.coach import Coach
from agent.coach.turn import Turn
from agent.tools import edit, search, shell
from agent.tools.base import SMALL_OUTPUT, ToolContext, ToolError, ToolOutput
from context.block import ToolCall

PRICE = "RATE_PERCENT = 19\n\n\ndef total(net):\n    return net - net * RATE_PERCENT // 100\n"
TEST = "from price import total\n\n\ndef test_total():\n    assert total(100) == 119\n"
CHANGED = {"path": "tests/test_price.py", "old": "== 119", "new": "== 81"}


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    root = (tmp_path / "repo").resolve()
    (root / "tests").mkdir(parents=True)
    (root / "price.py").write_text(PRICE)
    (root / "tests" / "test_price.py").write_text(TEST)
    (root / "README.md").write_text("# price\n\nPrices with tax.\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return ToolContext(root, tmp_path / "spill", {"PATH": "/usr/local/bin:/usr/bin:/bin"}, limits=SMALL_OUTPUT)


@pytest.fixture
def coach(context: ToolContext) -> Coach:
    return Coach(context)


def edit_call(**arguments: str) -> ToolCall:
    return ToolCall("1", "edit", json.dumps(arguments))


async def do_edit(coach: Coach, context: ToolContext, path: str, old: str, new: str) -> None:
    arguments = {"path": path, "old": old, "new": new}
    output = await edit.tool.run(arguments, context)
    await coach.hint("edit", arguments, output)


async def run(coach: Coach, context: ToolContext, command: str, summary: str, text: str = "") -> str:
    return await coach.hint("shell", {"command": command}, ToolOutput(text, summary))


@pytest.mark.parametrize(
    "command",
    [
        "Read shop/price.py and tell me the tax rate.",
        "Summarize shop/basket.py in one sentence.",
        "Find where the rate is defined",
        "Review the code of total()",
        "Please explain what this does.",
        "Could you describe how discounts work",
        "hi",
        "Which tests fail?",
        "How would I add a test?",
        "What must be set before a start?",
    ],
)
def test_a_question_is_no_order_to_change_anything(command: str) -> None:
    assert Turn(command).is_question


@pytest.mark.parametrize(
    "command",
    [
        "test_no_hyphen_at_the_ends fails. Please fix it.",
        "One of the tests fails. Find the bug and fix it.",
        "Find the wrong rate and correct it.",
        "is_leap(2000) returns False, but 2000 was a leap year. Fix it and run the tests.",
        "Read the issue, then update price.py",
        "Can you fix total()?",
        "Could you please rename calc to subtotal?",
        "The percent is now 20.",
        "wrap() breaks lines one character too early: a line may be exactly as long as the width. Fix it.",
        "Bump the version to 1.3.0.",
        "We release 2.5.0. Set the new version everywhere it is stated.",
        "The README mentions `tally sum`, but the command is called `tally total`. Correct the README.",
    ],
)
def test_an_order_is_no_question(command: str) -> None:
    assert not Turn(command).is_question


class TestBegin:
    async def test_what_the_task_names_is_shown(self, coach: Coach) -> None:
        (notice,) = await coach.begin("total() is wrong. Fix it.")
        assert "price.py, lines 4-5:\ndef total(net):" in notice

    async def test_a_test_comes_with_the_code_that_it_calls(self, coach: Coach) -> None:
        (notice,) = await coach.begin("test_total fails")
        assert notice.index("def test_total") < notice.index("def total(net)")

    async def test_settings_are_found_by_a_part_of_their_name(self, coach: Coach) -> None:
        assert await coach.begin("The percent is now 20.") == ["Named in the task:\nprice.py:1: RATE_PERCENT = 19"]

    async def test_a_question_about_the_whole_gets_the_beginning_of_the_readme(self, coach: Coach) -> None:
        assert await coach.begin("Tell me about it?") == ["README.md begins:\n# price\n\nPrices with tax."]

    async def test_the_readme_is_not_told_again_once_something_was_read(
        self, coach: Coach, context: ToolContext
    ) -> None:
        context.seen[context.root / "price.py"] = "read in an earlier turn"
        assert await coach.begin("Tell me about it?") == []
        assert coach.objection() is None

    async def test_a_word_of_three_letters_finds_its_line(self, coach: Coach, context: ToolContext) -> None:
        (context.root / "price.py").write_text("TAX = 0.19\n")
        assert await coach.begin("Raise the tax.") == ["Named in the task:\nprice.py:1: TAX = 0.19"]

    async def test_words_that_every_task_has_are_no_names(self, coach: Coach, context: ToolContext) -> None:
        (context.root / "price.py").write_text("def project():\n    pass\n")
        (notice,) = await coach.begin("What does this project do?")
        assert notice.startswith("README.md begins:")

    async def test_the_commands_of_a_readme_are_left_out(self, coach: Coach, context: ToolContext) -> None:
        (context.root / "README.md").write_text("# price\n\n```\npip install price\n```\n\nPrices with tax.\n")
        assert await coach.begin("Tell me about it?") == ["README.md begins:\n# price\n\nPrices with tax."]

    async def test_a_task_that_names_nothing_gets_nothing(self, coach: Coach) -> None:
        assert await coach.begin("Tidy up, please.") == []

    async def test_the_code_that_was_shown_counts_as_read(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Fix total()")
        assert context.root / "price.py" in context.seen
        (context.root / "price.py").write_text("changed\n")
        with pytest.raises(ToolError, match="changed on disk"):
            await edit.tool.run({"path": "price.py", "old": "net", "new": "gross"}, context)


class TestVeto:
    @pytest.mark.parametrize(
        ("old", "new", "blamed"),
        [
            ("return net", "return net", "new"),
            ("return net", "return net)", "new"),
            ("return gross", "return net", "old"),
        ],
    )
    def test_an_edit_that_is_sure_to_be_refused(self, coach: Coach, old: str, new: str, blamed: str) -> None:
        call = edit_call(path="price.py", old=old, new=new)
        at = coach.veto(call)
        assert at is not None
        assert call.arguments[at:].startswith(f'"{blamed}"')

    async def test_what_was_refused_before_must_come_out_otherwise_altogether(self, coach: Coach) -> None:
        call = edit_call(path="price.py", old="return net", new="return net")
        await coach.begin("Fix total")
        coach.failure(call, "`old` and `new` are the same.")
        at = coach.veto(call)
        assert at is not None
        assert call.arguments[at:].startswith('"old"')

    def test_everything_else_may_go(self, coach: Coach, context: ToolContext) -> None:
        assert coach.veto(edit_call(path="price.py", old="net - net", new="net + net")) is None
        assert coach.veto(edit_call(path="missing.py", old="a", new="b")) is None
        assert coach.veto(ToolCall("1", "shell", '{"command":"old new"}')) is None
        assert (context.root / "price.py").read_text() == PRICE


class TestQuestion:
    async def test_the_test_instead_of_the_code_is_asked_about_once(self, coach: Coach) -> None:
        await coach.begin("Correct test_total")
        question = await coach.question("edit", CHANGED)
        assert question is not None
        assert "price.py" in question.replace("tests/test_price.py", "")
        assert await coach.question("edit", CHANGED) is None

    async def test_a_test_that_is_added_is_no_question(self, coach: Coach) -> None:
        added = {"path": "tests/test_price.py", "old": "import total\n", "new": "import total\n\n\ndef test_b(): ...\n"}
        assert await coach.question("edit", added) is None
        assert (
            await coach.question("edit", {"path": "tests/test_new.py", "old": "", "new": "def test_c(): ..."}) is None
        )

    async def test_a_line_that_is_added_to_a_test_is_a_question(self, coach: Coach) -> None:
        added = {
            "path": "tests/test_price.py",
            "old": "def test_total():",
            "new": "def test_total():\n    assert 1 == 2",
        }
        assert await coach.question("edit", added) is not None
        assert await coach.question("edit", added) is None

    async def test_tests_follow_a_change_of_the_code(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Prices are rounded down")
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        assert await coach.question("edit", CHANGED) is None

    async def test_an_assertion_that_goes_away_is_always_asked_about(self, coach: Coach, context: ToolContext) -> None:
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        emptied = {"path": "tests/test_price.py", "old": "assert total(100) == 119", "new": "pass"}
        assert await coach.question("edit", emptied) is not None

    async def test_a_function_that_is_still_used_is_not_overwritten(self, coach: Coach) -> None:
        replaced = {"path": "price.py", "old": "def total(net):", "new": "def tax(net):"}
        question = await coach.question("edit", replaced)
        assert question is not None
        assert "tests/test_price.py" in question
        assert await coach.question("edit", replaced) is None  # a rename is sent again

    async def test_lines_that_follow_are_not_doubled(self, coach: Coach, context: ToolContext) -> None:
        (context.root / "price.py").write_bytes(
            b"def total(net):\r\n    tax = 19\r\n    net += tax\r\n    return net\r\n"
        )
        doubled = {
            "path": "price.py",
            "old": "def total(net):",
            "new": "def total(net):\n    tax = 20\n    net += tax\n    return net",
        }
        question = await coach.question("edit", doubled)
        assert question is not None
        assert "twice" in question
        assert await coach.question("edit", doubled) is None

    @pytest.mark.parametrize("path", ["new.py", "price.py", "empty.py", "tests/test_price.py", "tests/test_new.py"])
    async def test_an_empty_old_text_is_an_addition_and_no_question(
        self, coach: Coach, context: ToolContext, path: str
    ) -> None:
        (context.root / "empty.py").touch()
        added = {"path": path, "old": "", "new": "def added():\n    net = 1\n    return net"}
        await coach.begin("Add a function")
        assert coach.veto(edit_call(**added)) is None
        assert await coach.question("edit", added) is None
        await do_edit(coach, context, **added)
        assert (context.root / path).read_text().rstrip().endswith(added["new"])

    async def test_a_file_that_cannot_be_read_is_left_to_the_tool(self, coach: Coach, context: ToolContext) -> None:
        (context.root / "binary.py").write_bytes(b"\0\1")
        for path in ("binary.py", "tests", "missing.py", f"tests/{'x' * 300}.py"):
            assert await coach.question("edit", {"path": path, "old": "a", "new": "b"}) is None


class TestHint:
    async def test_a_failed_test_run_shows_the_code_under_test(self, coach: Coach, context: ToolContext) -> None:
        output = "tests/test_price.py:5: AssertionError\n"
        hint = await run(coach, context, "python -m pytest -q", "exit 1, 1 lines", output)
        assert "price.py, lines 4-5:\ndef total(net):" in hint
        assert await run(coach, context, "python -m pytest -q", "exit 0, 1 lines", output) == ""

    async def test_a_run_of_no_test_is_no_failure_and_leads_to_all_tests(
        self, coach: Coach, context: ToolContext
    ) -> None:
        await coach.begin("Fix total")
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        hint = await run(coach, context, "python -m pytest -q tests/test_cost.py", "exit 4, 3 lines", "no tests ran")
        assert hint == "There is no tests/test_cost.py. Run all tests: python -m pytest -q"
        hint = await run(coach, context, "python -m pytest -q -k cost", "exit 5, 2 lines", "\nno tests ran in 0.01s\n")
        assert hint == "No test ran. Run all tests: python -m pytest -q"
        assert "fail" not in str(coach.objection())

    async def test_without_a_test_runner_there_is_nothing_to_run(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Fix total")
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        hint = await run(coach, context, "python -m pytest -q", "exit 1, 1 lines", "python: No module named pytest\n")
        assert hint == "pytest is not installed here, so the tests cannot be run. Answer without them."
        assert coach.objection() is None

    async def test_a_run_that_passes_does_not_show_the_failure(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("One of the tests fails")
        hint = await run(coach, context, "python -m pytest -q tests/test_price.py", "exit 0, 1 lines")
        assert hint == "Run all tests: python -m pytest -q"
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        assert await run(coach, context, "python -m pytest -q", "exit 0, 1 lines") == ""

    async def test_a_search_without_matches_is_tried_word_by_word(self, coach: Coach, context: ToolContext) -> None:
        output = await search.tool.run({"pattern": "prices including tax rules"}, context)
        hint = await coach.hint("search", {"pattern": "prices including tax rules"}, output)
        assert "README.md:3: Prices with tax." in hint

    async def test_other_places_are_told_when_the_task_is_about_all_of_them(
        self, coach: Coach, context: ToolContext
    ) -> None:
        renamed = {"path": "price.py", "old": "def total(net)", "new": "def gross(net)"}
        output = await edit.tool.run(renamed, context)
        await coach.begin("total is to be called gross, everywhere.")
        hint = await coach.hint("edit", renamed, output)
        assert hint.startswith("Still to change:\n")
        assert "tests/test_price.py:5:     assert total(100) == 119" in hint
        assert "def gross" not in hint
        await coach.begin("Call the function gross.")
        assert await coach.hint("edit", renamed, output) == ""

    async def test_nothing_found_at_all_leads_to_the_readme(self, coach: Coach, context: ToolContext) -> None:
        output = await search.tool.run({"pattern": "zebra"}, context)
        assert await coach.hint("search", {"pattern": "zebra"}, output) == "Read README.md."

    async def test_a_test_tells_what_it_tests(self, coach: Coach) -> None:
        hint = await coach.hint("read", {"path": "tests/test_price.py"}, ToolOutput(TEST, ""))
        assert hint == "[it tests price.py]"

    async def test_a_wrong_path_in_a_command_is_put_right(self, coach: Coach, context: ToolContext) -> None:
        output = await shell.tool.run({"command": "cat test_price.py"}, context)
        hint = await coach.hint("shell", {"command": "cat test_price.py"}, output)
        assert hint == "There is no test_price.py, but tests/test_price.py."

    async def test_a_word_that_is_no_path_is_none(self, coach: Coach, context: ToolContext) -> None:
        assert await run(coach, context, f"python -c print('{'.' * 300}')", "exit 1, 1 lines") == ""


class TestObjection:
    async def test_an_answer_without_a_look_is_objected_to_once(self, coach: Coach) -> None:
        await coach.begin("What does it do?")
        objection = coach.objection()
        assert objection is not None
        assert "README.md" in objection
        assert objection.endswith("The task was: What does it do?")
        assert coach.objection() is None

    async def test_code_that_came_with_the_task_was_looked_at(self, coach: Coach) -> None:
        await coach.begin("Explain total, please")
        assert coach.objection() is None

    async def test_a_question_may_change_nothing(self, coach: Coach) -> None:
        await coach.begin("Where is the tax?")
        await coach.hint("read", {"path": "price.py"}, ToolOutput(PRICE, ""))
        assert coach.objection() is None

    async def test_a_task_that_changed_nothing_is_not_done(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Fix it")
        await run(coach, context, "git status", "exit 0, 1 lines")
        objection = coach.objection()
        assert objection is not None
        assert "no file was changed" in objection

    async def test_a_change_is_to_be_tested(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Fix total")
        await coach.hint("read", {"path": "price.py"}, ToolOutput(PRICE, ""))
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        objection = coach.objection()
        assert objection is not None
        assert "tests were not run" in objection
        await run(coach, context, "python -m pytest -q", "exit 0, 1 lines")
        assert coach.objection() is None

    async def test_failing_tests_are_not_done(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Fix total")
        await do_edit(coach, context, "price.py", "net - net", "net * net")
        await run(coach, context, "pytest", "exit 1, 3 lines")
        objection = coach.objection()
        assert objection is not None
        assert "the tests fail" in objection

    async def test_a_test_that_was_asked_for_is_missed(self, coach: Coach, context: ToolContext) -> None:
        await coach.begin("Fix total and add a test")
        await do_edit(coach, context, "price.py", "net - net", "net + net")
        await run(coach, context, "pytest", "exit 0, 3 lines")
        await do_edit(coach, context, "tests/test_price.py", "", "def helper(net):\n    return net")
        await run(coach, context, "pytest", "exit 0, 3 lines")
        objection = coach.objection()
        assert objection is not None
        assert "no test was added" in objection
        await do_edit(coach, context, "tests/test_price.py", "", "def test_nothing():\n    assert total(0) == 0")
        await run(coach, context, "pytest", "exit 0, 3 lines")
        assert coach.objection() is None

    async def test_objections_end(self, coach: Coach) -> None:
        await coach.begin("Fix it")
        assert [coach.objection() is None for _ in range(5)].count(False) <= 3
