"""`agent cache explain`: each call's forecast, bill and cause, and the byte at which a changed prefix parts."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from desk import Desk
from emulator import Emulator, ManualClock, Read, play

from agent import head
from agent.ledger import Ledger
from agent.reports.explain import Explanation, explain, print_explanations
from context.audit import Verdict
from context.block import Block, Layer, Role, Text, ToolCall, ToolResult, ToolSpec
from context.explain import first_difference, sentence
from context.forecast import Cause

MODEL = "anthropic/claude-sonnet-5-5"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, clock: ManualClock) -> Iterator[Desk]:
    (home / "models.toml").write_text("[anthropic.claude-sonnet-5-5]\ntoken_scale = 1\n")
    with Emulator(play([Read("price.py")]), clock=clock) as server:
        yield Desk(repository, environment, server, clock)


def explained(desk: Desk, number: int | None = None) -> list[Explanation]:
    with Ledger.open(desk.folders.ledger) as ledger:
        row = ledger.last_used(str(desk.repository))
        assert row is not None
        return explain(ledger, row, number)


def test_a_changed_tool_description_is_named_and_its_byte_is_shown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.run("first", again=False, model=MODEL)
    original = head.specs

    def reworded(profile: str) -> list[ToolSpec]:
        """The tools of a later release, which says it otherwise."""
        return [
            ToolSpec(spec.name, spec.description.replace("Line ends", "Ends of lines"), spec.parameters)
            for spec in original(profile)
        ]

    monkeypatch.setattr(head, "specs", reworded)
    desk.pause(1)
    desk.run("second", again=False, model=MODEL)

    (found,) = explained(desk, 1)
    assert found.call.verdict is not None
    assert (found.call.verdict.cause, found.call.verdict.foreseen) == (Cause.CHANGED, True)
    assert found.call.verdict.missed
    difference = found.difference
    assert difference is not None
    assert (difference.layer, difference.block, difference.place) == (Layer.SYSTEM, 0, "tool `edit`")
    edit = next(spec for spec in original("cloud") if spec.name == "edit")
    assert difference.byte == len("edit\n") + edit.description.index("Line ends")
    assert b"Line ends" in (difference.before or b"")
    assert b"Ends of lines" in (difference.after or b"")

    with Ledger.open(desk.folders.ledger) as ledger:
        row = ledger.session(found.call.session)
        assert row is not None
        print_explanations(row, [found])
    shown = capsys.readouterr().out
    assert f"layer SYSTEM, block 1: tool `edit`, byte {difference.byte}" in shown
    assert "Line ends" in shown
    assert "Ends of lines" in shown
    json.dumps(found.to_json())


def test_another_snapshot_of_the_same_repository_parts_in_project(desk: Desk) -> None:
    (desk.repository / "AGENTS.md").write_text("Be brief. " * 400)
    desk.run("first", again=False, model=MODEL)
    (desk.repository / "later.py").write_text("\n")
    desk.pause(1)
    desk.run("second", again=False, model=MODEL)
    (found,) = explained(desk, 1)
    assert found.difference is not None
    assert found.difference.layer is Layer.PROJECT
    assert b"Files (4" in (found.difference.after or b"")  # it was 3


def test_a_first_session_and_one_that_reads_all_have_nothing_to_explain(desk: Desk) -> None:
    desk.run("first", again=False, model=MODEL)
    first, second = explained(desk)
    assert [each.call.verdict.cause for each in (first, second) if each.call.verdict] == [Cause.FIRST, Cause.NONE]
    assert first.baseline is None
    assert first.difference is None
    assert second.baseline is not None
    assert second.baseline.number == 1


def test_the_time_of_an_expiry_is_told(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.run("first", again=False, model=MODEL)
    began = desk.clock.now()
    desk.pause(7)
    desk.run("second", model=MODEL)
    (found,) = explained(desk, 3)
    assert found.call.verdict is not None
    assert found.call.verdict.cause is Cause.EXPIRED
    assert found.call.verdict.since == began + 300


def test_a_local_call_is_not_said_to_have_read_everything(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.run("first", again=False, model=MODEL)
    (found,) = explained(desk, 1)
    local = replace(found, call=replace(found.call, verdict=Verdict(Cause.NONE, True, None)))
    with Ledger.open(desk.folders.ledger) as ledger:
        (row,) = ledger.sessions()
    print_explanations(row, [local])
    shown = capsys.readouterr().out
    assert "what the engine reused" in shown
    assert "everything" not in shown


def block(*parts: Text | ToolCall | ToolResult, layer: Layer = Layer.HISTORY) -> Block:
    return Block.make(layer, Role.USER, parts)


def test_a_prompt_that_only_grows_has_no_difference() -> None:
    earlier = [block(Text("a"))]
    assert first_difference(earlier, [*earlier, block(Text("b"))], "any") is None


@pytest.mark.parametrize(
    ("before", "after", "place", "byte"),
    [
        (Text("one two"), Text("one too"), "the text", 5),
        (ToolCall("1", "read", '{"a":1}'), ToolCall("1", "read", '{"a":2}'), "a call of `read`", 10),
        (ToolResult("1", "äb"), ToolResult("1", "äc"), "a tool result", 2),
        (Text("abc"), Text("abcd"), "the text", 3),
    ],
)
def test_the_byte_counts_from_the_start_of_the_part(before: Text, after: Text, place: str, byte: int) -> None:
    found = first_difference([block(Text("same"), before)], [block(Text("same"), after)], "any")
    assert found is not None
    assert (found.place, found.byte) == (place, byte)


def test_a_block_that_is_gone_is_told() -> None:
    found = first_difference([block(Text("a")), block(Text("b"))], [block(Text("a"))], "any")
    assert found is not None
    assert (found.block, found.before, found.after) == (1, b"b", None)


def test_every_cause_has_a_sentence() -> None:
    assert len({sentence(cause) for cause in Cause}) == len(Cause)
