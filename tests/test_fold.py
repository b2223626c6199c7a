"""A new epoch's history: all that was said, in order; stale outputs as one line; reasoning only on its own prefix."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.block import Block, Layer, Opaque, Part, Role, Text, ToolCall, ToolResult
from context.compaction import compacted
from context.fold import Folded, fold, fold_results
from context.layers.command import command_block, notice_block
from context.layers.history import reply_block, results_block
from context.prompt import Prompt

SYSTEM = Block.make(Layer.SYSTEM, Role.SYSTEM, [Text("system")])
PROJECT = Block.make(Layer.PROJECT, Role.SYSTEM, [Text("project")])
HEAD = (SYSTEM, PROJECT)
NEW_HEAD = (SYSTEM, Block.make(Layer.PROJECT, Role.SYSTEM, [Text("project, a day later")]))
FOLDER = "/data/outputs"
THOUGHT = Opaque("anthropic", b"signed thinking")
LONG = "".join(f"line {number} of the output\n" for number in range(100))


def prompt_of(*blocks: Block, head: tuple[Block, ...] = HEAD) -> Prompt:
    return Prompt.empty().extend([*head, *blocks])


def step(name: str, arguments: dict[str, str], output: str, *, call: str = "c1", error: bool = False) -> list[Block]:
    """A reply that thinks and calls a tool, and the result."""
    asked = ToolCall(call, name, json.dumps(arguments))
    return [reply_block([THOUGHT, asked]), results_block([asked], {call: ToolResult(call, output, error)})]


def turn(command: str, *steps: list[Block], answer: str = "Done.") -> list[Block]:
    return [command_block(command), *(block for one in steps for block in one), reply_block([Text(answer)])]


def folded_line(
    output: str, name: str = "read", arguments: dict[str, str] | None = None, *, error: bool = False
) -> str:
    """What becomes of an output of the turn before the last."""
    blocks = [*turn("first", step(name, arguments or {"path": "a.py"}, output, error=error)), *turn("second")]
    return fold(prompt_of(*blocks), HEAD, FOLDER).blocks[2].tool_results[0].text


def said(blocks: tuple[Block, ...] | list[Block], role: Role) -> list[str]:
    """Texts in order, without notices and without what nobody can see."""
    return [
        part.text
        for block in blocks
        for part in block.parts
        if block.role is role
        and isinstance(part, Text)
        and part.text.strip()
        and not part.text.startswith("<notice>\n")
    ]


def opaques(blocks: tuple[Block, ...]) -> int:
    return sum(isinstance(part, Opaque) for block in blocks for part in block.parts)


# What the line says


def test_a_stale_output_becomes_a_line_that_says_what_it_was_and_where_all_of_it_is() -> None:
    blocks = [*turn("first", step("read", {"path": "src/a.py"}, LONG)), *turn("second")]
    folded = fold(prompt_of(*blocks), HEAD, FOLDER)
    ((name, text),) = folded.outputs
    assert text == LONG
    line = folded.blocks[2].tool_results[0].text
    assert line == f"[folded: read src/a.py, 100 lines, last: line 99 of the output; whole output: {FOLDER}/{name}]"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("shell", {"command": "pytest -q"}, "shell pytest -q,"),
        ("search", {"path": "src", "pattern": "def fold"}, "search def fold,"),
        ("find", {"path": "src", "pattern": "*.py"}, "find *.py,"),
        ("shell", {"command": "x" * 500}, f"shell {'x' * 79}…,"),
        ("shell", {"command": "a\nb"}, r"shell a\nb,"),
    ],
)
def test_the_line_names_the_tool_and_its_main_argument(name: str, arguments: dict[str, str], expected: str) -> None:
    line = folded_line(LONG, name, arguments)
    assert line.startswith(f"[folded: {expected}")
    assert "\n" not in line


def test_arguments_that_are_no_json_do_not_matter() -> None:
    asked = ToolCall("c1", "read", '{"path": "a.p')
    cut = [reply_block([asked]), results_block([asked], {"c1": ToolResult("c1", LONG)})]
    folded = fold(prompt_of(*turn("first", cut), *turn("second")), HEAD, FOLDER)
    assert folded.blocks[1].tool_calls == (asked,)
    assert folded.blocks[2].tool_results[0].text.startswith("[folded: read, 100 lines,")


def test_of_a_failed_command_the_line_quotes_what_stands_ahead_of_the_exit_code() -> None:
    assert "last: 1 failed in 0.02s (exit 1);" in folded_line(f"{LONG}1 failed in 0.02s\nexit 1", "shell")


def test_a_long_last_line_is_cut() -> None:
    assert len(folded_line("x" * 10_000)) < 400


def test_an_error_stays_an_error() -> None:
    blocks = [*turn("first", step("shell", {"command": "make"}, LONG, error=True)), *turn("second")]
    result = fold(prompt_of(*blocks), HEAD, FOLDER).blocks[2].tool_results[0]
    assert result.is_error
    assert result.text.startswith("[folded:")


@pytest.mark.parametrize("call", ["../../etc/passwd", "a/b", "c" * 300, "ä\x00", ""])
def test_file_names_are_safe_whatever_the_call_is_named(call: str) -> None:
    blocks = [*turn("first", step("read", {"path": "a"}, LONG, call=call)), *turn("second")]
    ((name, _),) = fold(prompt_of(*blocks), HEAD, FOLDER).outputs
    assert name.replace("-", "").replace("_", "").removesuffix(".txt").isalnum()
    assert name.isascii()
    assert len(name) < 100


def test_calls_of_two_replies_with_one_id_keep_their_own_argument_and_output() -> None:
    other = LONG.upper()
    first = turn("first", step("read", {"path": "a.py"}, LONG))
    second = turn("second", step("read", {"path": "b.py"}, other))
    folded = fold(prompt_of(*first, *second, *turn("third")), HEAD, FOLDER)
    lines = [result.text for block in folded.blocks for result in block.tool_results]
    assert ["read a.py" in lines[0], "read b.py" in lines[1]] == [True, True]
    assert [text for _, text in folded.outputs] == [LONG, other]


def test_a_short_output_stays() -> None:
    assert folded_line("x" * 400) == "x" * 400


DEEP = "/deep" * 100


def test_an_output_stays_where_the_line_with_its_path_would_be_longer() -> None:
    blocks = [*turn("first", step("read", {"path": "a.py"}, "x" * 500)), *turn("second")]
    assert fold(prompt_of(*blocks), HEAD, DEEP) == Folded(tuple(blocks), ())


def test_a_line_is_not_folded_again_however_long_its_path_makes_it() -> None:
    blocks = [*turn("first", step("read", {"path": "a.py"}, LONG + "x" * 200)), *turn("second")]
    once = fold(prompt_of(*blocks), HEAD, DEEP)
    assert len(once.blocks[2].tool_results[0].text) > 600
    assert fold(prompt_of(*once.blocks), HEAD, DEEP) == Folded(once.blocks, ())


def test_the_last_turn_keeps_its_outputs_whatever_the_program_said_since() -> None:
    last = [
        *turn("second", step("read", {"path": "a.py"}, LONG)),
        notice_block("Tests were not run."),
        *step("x", {}, LONG),
    ]
    folded = fold(prompt_of(*turn("first"), *last), NEW_HEAD, FOLDER)
    assert [result.text for block in folded.blocks for result in block.tool_results] == [LONG, LONG]
    assert folded.outputs == ()


# Notices


def test_notices_of_old_turns_go_and_the_command_beside_them_stays() -> None:
    blocks = [command_block("first", ["Mode: plan."]), reply_block([Text("Planned.")]), *turn("second")]
    folded = fold(prompt_of(*blocks), HEAD, FOLDER)
    assert folded.blocks[0] == command_block("first")


def test_a_notice_between_two_replies_stays_because_else_they_would_be_one() -> None:
    told = notice_block("You have not run the tests.")
    old = [
        command_block("first"),
        reply_block([Text("Done.")]),
        told,
        notice_block("Again."),
        reply_block([Text("Ran.")]),
    ]
    folded = fold(prompt_of(*old, *turn("second")), HEAD, FOLDER)
    assert folded.blocks == (old[0], old[1], told, old[4], *turn("second"))


def test_a_notice_ahead_of_a_command_goes() -> None:
    folded = fold(prompt_of(*turn("first"), notice_block("told"), *turn("second")), HEAD, FOLDER)
    assert folded.blocks == (*turn("first"), *turn("second"))


def test_what_the_last_turn_was_told_stays() -> None:
    last = [command_block("second", ["Mode: plan."]), reply_block([Text("Planned.")])]
    assert fold(prompt_of(*turn("first"), *last), NEW_HEAD, FOLDER).blocks == (*turn("first"), *last)


def test_a_summary_is_no_notice_and_outlives_its_turn() -> None:
    summary = compacted(prompt_of(*turn("first"), *turn("second")), "The port is 4711.", open_turn=True)
    prompt = prompt_of(*summary, reply_block([Text("Going on.")]), *turn("third"))
    folded = fold(prompt, NEW_HEAD, FOLDER)
    kept = "".join(folded.blocks[0].text)
    assert "The port is 4711." in kept
    assert '"first"' in kept
    assert kept.endswith("second")


# Reasoning is bound to its prefix


def test_with_the_same_head_and_nothing_stale_all_stays_as_it_is() -> None:
    blocks = (*turn("first", step("read", {"path": "a"}, "short")), *turn("second", step("read", {"path": "a"}, LONG)))
    assert fold(prompt_of(*blocks), HEAD, FOLDER) == Folded(blocks, ())


def test_another_head_drops_all_reasoning() -> None:
    folded = fold(prompt_of(*turn("first", step("read", {"path": "a"}, "short"))), NEW_HEAD, FOLDER)
    assert opaques(folded.blocks) == 0


def test_reasoning_ahead_of_the_first_change_stays_and_what_follows_goes() -> None:
    first = turn("first", step("read", {"path": "a"}, "short"))
    second = turn("second", step("read", {"path": "b"}, LONG), step("read", {"path": "c"}, "short"))
    folded = fold(prompt_of(*first, *second, *turn("third")), HEAD, FOLDER)
    assert folded.blocks[: len(first) + 2] == (*first, *second[:2])  # the call itself precedes the change
    assert opaques(folded.blocks) == 2


def test_a_reply_of_reasoning_alone_goes_with_it() -> None:
    blocks = [command_block("first"), reply_block([THOUGHT]), command_block("second"), reply_block([Text("Done.")])]
    folded = fold(prompt_of(*blocks), NEW_HEAD, FOLDER)
    assert folded.blocks == (blocks[0], blocks[2], blocks[3])


# Any conversation

outputs = st.one_of(st.text(max_size=20), st.text(min_size=380, max_size=700), st.just(LONG))
words = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
thoughts = st.lists(st.just(THOUGHT), max_size=1)


@st.composite
def conversations(draw: st.DrawFn) -> list[Block]:
    """Whole turns: commands with and without notices, calls (ids may repeat in later replies), nudges, answers."""
    blocks: list[Block] = []
    for _ in range(draw(st.integers(1, 4))):
        blocks.append(command_block(draw(words), draw(st.lists(words, max_size=1))))
        for _ in range(draw(st.integers(0, 3))):
            calls = [
                ToolCall(f"c{number}", "read", draw(st.sampled_from(['{"path":"a.py"}', "{}", "["])))
                for number in range(draw(st.integers(1, 3)))
            ]
            parts: list[Part] = [*draw(thoughts), *(Text(text) for text in draw(st.lists(words, max_size=1))), *calls]
            blocks.append(reply_block(parts))
            results = {call.id: ToolResult(call.id, draw(outputs), draw(st.booleans())) for call in calls}
            blocks.append(results_block(calls, results))
        for _ in range(draw(st.integers(0, 2))):
            blocks += [reply_block([*draw(thoughts), Text(draw(words))]), notice_block(draw(words))]
        blocks.append(reply_block(draw(st.sampled_from([[THOUGHT], [Text("\n")], [THOUGHT, Text("Done.")]]))))
    return [Block.make(block.layer, block.role, block.parts) for block in blocks]


heads = st.sampled_from([HEAD, NEW_HEAD])
folders = st.sampled_from([FOLDER, DEEP])


def links(blocks: tuple[Block, ...] | list[Block]) -> list[str]:
    return [
        f"{type(part).__name__} {part.id if isinstance(part, ToolCall) else part.call_id}"
        for block in blocks
        for part in block.parts
        if isinstance(part, ToolCall | ToolResult)
    ]


@given(conversations(), heads)
def test_calls_stay_with_their_results_and_nothing_said_is_lost(blocks: list[Block], head: tuple[Block, ...]) -> None:
    folded = fold(prompt_of(*blocks), head, FOLDER)
    assert links(folded.blocks) == links(blocks)
    for role in (Role.USER, Role.ASSISTANT):
        assert said(folded.blocks, role) == said(blocks, role)
    prompt_of(*folded.blocks, head=head)  # the layers are in order


@given(conversations(), heads)
def test_every_output_is_either_there_or_in_its_file(blocks: list[Block], head: tuple[Block, ...]) -> None:
    folded = fold(prompt_of(*blocks), head, FOLDER)
    files = {f"{FOLDER}/{name}": text for name, text in folded.outputs}
    before = [result for block in blocks for result in block.tool_results]
    after = [result for block in folded.blocks for result in block.tool_results]
    for old, new in zip(before, after, strict=True):
        assert old.is_error == new.is_error
        if new.text != old.text:
            assert files[new.text.rpartition("whole output: ")[2].removesuffix("]")] == old.text


@given(conversations(), heads, folders)
def test_no_block_is_empty_two_replies_never_meet_and_it_never_grows(
    blocks: list[Block], head: tuple[Block, ...], folder: str
) -> None:
    folded = fold(prompt_of(*blocks), head, folder)

    def size(of: tuple[Block, ...] | list[Block]) -> int:
        return sum(len(part.text) for block in of for part in block.parts if isinstance(part, Text | ToolResult))

    assert size(folded.blocks) <= size(blocks)
    visible = [block for block in folded.blocks if block.sent("")]
    if list(folded.blocks) != blocks and head is NEW_HEAD:
        assert len(visible) == len(folded.blocks)
    roles = [block.role for block in visible]
    seen = [block.role for block in blocks if block.sent("")]
    meets = [(Role.ASSISTANT, Role.ASSISTANT) in pairwise(r) for r in (roles, seen)]
    assert meets[0] <= meets[1]


@given(conversations(), heads, folders)
def test_folding_what_is_folded_changes_nothing(blocks: list[Block], head: tuple[Block, ...], folder: str) -> None:
    once = fold(prompt_of(*blocks), head, folder)
    assert fold(prompt_of(*once.blocks, head=head), head, folder) == Folded(once.blocks, ())


@given(conversations())
def test_reasoning_stays_exactly_where_all_that_precedes_it_did(blocks: list[Block]) -> None:
    old = prompt_of(*blocks)
    new = prompt_of(*fold(old, HEAD, FOLDER).blocks)
    same = new.common_prefix(old)
    assert opaques(tuple(new)) == opaques(tuple(old.at(same)))
    for block in old.since(same)[:1]:  # the first that differs was stale
        assert block.layer is Layer.COMMAND or any(len(result.text) > 400 for result in block.tool_results)


def test_what_a_summary_has_not_seen_is_told_beside_it() -> None:
    """A window that is smaller than assumed: the summary was asked for behind what was answered before."""
    seen = [*turn("Find the port."), command_block("Change it.")]
    late = [*step("shell", {"command": "make"}, LONG), *step("edit", {"path": "a.py"}, "changed", call="c2")]
    told, outputs = fold_results(late, FOLDER)
    assert [text for _, text in outputs] == [LONG]
    assert f"{FOLDER}/{outputs[0][0]}" in told
    assert "[edit a.py]\nchanged" in told
    prompt = prompt_of(*seen, *late)
    (block,) = compacted(prompt, "S.", open_turn=True, seen=len(HEAD) + len(seen), unseen=told)
    assert told in block.text
    assert "the summary says how far" in block.text
    (block,) = compacted(prompt, "S.", open_turn=True, seen=len(HEAD) + len(seen) - 1, unseen=told)
    assert "the summary says how far" not in block.text, "it was written before the request came"
