"""Field reports of group H, each with its number: broken tool calls, and loops that lead nowhere."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from desk import Desk
from emulator import Answer, Call, Emulator, Failure, ManualClock, Reply, Say, assert_extends
from test_loop import ENVIRONMENT, Run, Step, called, said

from agent import events
from agent.events import TurnEnd
from agent.ledger import Ledger
from agent.progress import SAME_ERROR
from backends.base import BackendError, ErrorKind
from context.block import ToolCall
from context.layers.history import BROKEN_CALL

LLAMA = (
    "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at line 1, column 27: "
    "syntax error while parsing value - invalid string: missing closing quote"
)
LONG = " ".join(hex(number * 7919) for number in range(12_000))
BROKEN = BackendError(ErrorKind.BROKEN_CALL, "box could not read the tool call that the model wrote.")


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def desk(repository: Path, environment: dict[str, str], home: Path, server: Emulator) -> Desk:
    (home / "config.toml").write_text(f'[endpoints.llama-server]\nbase_url = "{server.url}/flavours/llama-server/v1"\n')
    assert isinstance(server.clock, ManualClock)
    desk = Desk(repository, environment, server, server.clock)
    desk.settings = replace(desk.settings, model="llama-server/local-model")
    return desk


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        root = (tmp_path / "root").resolve()
        root.mkdir()
        yield Run(root, ledger)


def shell(number: int, command: str) -> ToolCall:
    return ToolCall(str(number), "shell", json.dumps({"command": command}))


def results(run: Run) -> list[str]:
    return [event.text for event in run.events if isinstance(event, events.ToolFinished)]


# --- 115, 116: the server cannot read the call that its model wrote ---


@pytest.mark.parametrize(
    "fault",
    [
        Failure(500, ("server_error", LLAMA)),
        Failure(500, ("", "error parsing tool call: raw='ls -R', err=invalid character 'l' looking for a value")),
        Failure(400, ("invalid_request_error", "Failed to call a function. Please adjust your prompt.")),
        Reply.of("I read the price.", Call("read", {"path": "price.py"}), error_after=(2, "server_error", LLAMA)),
    ],
    ids=["llama-server", "Ollama", "Groq", "in the stream"],
)
def test_a_call_that_the_server_cannot_read_is_asked_for_once_more(desk: Desk, server: Emulator, fault: Answer) -> None:
    """Field report 115: one more request, with a short reminder at its end, and the turn goes on."""
    server.play([fault, Reply.of(Call("read", {"path": "price.py"})), Reply.of("It subtracts.")])
    desk.run("What does price.py do?", again=False)
    assert desk.answer() == "It subtracts."
    assert len(server.requests) == 3
    assert desk.clock.slept == [], "waiting would not mend it"
    for earlier, later in pairwise(server.requests):
        assert_extends(earlier, later)
    second = server.requests[1].body["messages"]
    assert BROKEN_CALL in second[-1]["content"]
    assert "I read the price" not in json.dumps(second), "half a reply is none"
    assert len(BROKEN_CALL) < 300


async def test_three_broken_calls_in_a_row_make_the_prompt_shorter_once(run: Run) -> None:
    """Field report 116: at a large context the same happens again and again."""
    steps: list[Step] = [BROKEN, BROKEN, BROKEN, said("The long text says nothing."), said("Done.")]
    loop, backend = run.loop(said(LONG), *steps)
    await loop.turn("Write a long text.", ENVIRONMENT)
    finished = await loop.turn("And now the file.", ENVIRONMENT)
    assert (finished.end, finished.text) == (TurnEnd.DONE, "Done.")
    _, *tried, asked, last = (request.prompt for request in backend.requests)
    assert len(tried) == 3
    assert asked.extends(tried[-1]), "the summary is asked for behind what the cache holds"
    assert last.length < tried[-1].length
    assert [event.reason for event in run.events if isinstance(event, events.EpochStarted)] == ["compacted"]
    assert last.block is not None
    assert BROKEN_CALL in last.block.text


async def test_broken_calls_without_end_end_the_turn_with_what_to_do(run: Run) -> None:
    """Field report 116: three, a shorter prompt, three more; a prompt that cannot get shorter ends after three."""
    finished = await run.turn(*[BROKEN] * 20)
    assert (finished.end, len(run.backend.requests)) == (TurnEnd.FAILED, 3)
    steps: list[Step] = [BROKEN, BROKEN, BROKEN, said("Nothing."), *[BROKEN] * 20]
    loop, backend = run.loop(said(LONG), *steps)
    await loop.turn("Write a long text.", ENVIRONMENT)
    finished = await loop.turn("And now the file.", ENVIRONMENT)
    assert (finished.end, len(backend.requests)) == (TurnEnd.FAILED, 8)
    assert "`agent compact`" in (finished.message or "")
    assert "\n" not in (finished.message or "")


async def test_broken_calls_between_whole_ones_are_no_row(run: Run) -> None:
    """Field report 116: only those in a row count, so that a long turn with a slip here and there goes on."""
    steps: list[Step] = []
    for number in range(5):
        steps += [BROKEN, BROKEN, called(shell(number, f"echo {number}"))]
    finished = await run.turn(*steps, said("Done."))
    assert finished.end is TurnEnd.DONE


# --- 118: a call as text ---

WRITTEN = {
    "qwen": "<tool_call>\n<function=read>\n<parameter=path>\nprice.py\n</parameter>\n</function>\n</tool_call>",
    "without its frame": "I look.\n<function=read><parameter=path>price.py</parameter>",
    "hermes": 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "price.py"}}\n</tool_call>\n',
    "invoke": '<invoke name="read"><parameter name="path">price.py</parameter></invoke>',
    "glm": "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>price.py</arg_value>\n</tool_call>",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN.keys())
async def test_a_call_that_is_only_written_is_refused_with_the_schema(run: Run, text: str) -> None:
    """Field report 118: it is no answer that would end the turn."""
    (run.root / "price.py").write_text("x = 1\n")
    finished = await run.turn(said(text), called(ToolCall("1", "read", '{"path":"price.py"}')), said("It is 1."))
    assert (finished.end, finished.text) == (TurnEnd.DONE, "It is 1.")
    first, second, _ = (request.prompt for request in run.backend.requests)
    assert second.extends(first)
    assert second.block is not None
    assert "{path: string, " in second.block.text


async def test_calls_that_are_only_written_end_the_turn_in_the_end(run: Run) -> None:
    """Field report 118."""
    finished = await run.turn(*[said(WRITTEN["qwen"])] * 9)
    assert (finished.end, finished.calls) == (TurnEnd.FAILED, 3)
    assert "into its text" in (finished.message or "")


@pytest.mark.parametrize(
    "answer",
    [
        f"Qwen writes its calls like this:\n```\n{WRITTEN['qwen']}\n```",
        f"The model wrote `{WRITTEN['invoke']}`",
        f"{WRITTEN['qwen']}\nis what a call looks like.",
        "It ends with </parameter>",
        "<tool_call><function=teleport></function></tool_call>",
    ],
)
async def test_an_answer_about_calls_is_an_answer(run: Run, answer: str) -> None:
    """Field report 118, the other way round."""
    finished = await run.turn(said(answer))
    assert (finished.end, finished.calls) == (TurnEnd.DONE, 1)


async def test_empty_arguments_are_answered_with_the_schema_each_time(run: Run) -> None:
    """Field report 118: after one refused call the model sends `{}`."""
    steps = [called(ToolCall(str(number), "read", "{}")) for number in range(2)]
    await run.turn(*steps, said("I cannot."))
    assert len(results(run)) == 2
    for told in results(run):
        assert "`path` is missing" in told
        assert "{path: string, " in told


# --- 120, 121, 123: what is a loop, and what is not ---

REFUSED = "echo 'HTTP 401 Unauthorized'; exit 22 #"


async def test_the_same_error_whatever_the_arguments_ends_the_turn(run: Run) -> None:
    """Field report 121: three times 401 from one tool. The second time the model is told."""
    finished = await run.turn(*[called(shell(number, f"{REFUSED} {number}")) for number in range(50)])
    assert (finished.end, finished.calls) == (TurnEnd.STUCK, 3)
    assert "the same error from shell" in (finished.message or "")
    assert [SAME_ERROR in told for told in results(run)] == [False, True, True]


async def test_a_tool_that_does_not_exist_is_not_asked_for_without_end(run: Run) -> None:
    """Field report 121."""
    steps = [called(ToolCall(str(number), "fetch", f'{{"url":"https://{number}.example"}}')) for number in range(50)]
    finished = await run.turn(*steps)
    assert (finished.end, finished.calls) == (TurnEnd.STUCK, 3)


HONEST = {
    "something works in between": [[f"{REFUSED} 0"], ["true"], [f"{REFUSED} 1"], ["date +%N"], [f"{REFUSED} 2"]],
    "another error in between": [[f"{REFUSED} 0"], [f"{REFUSED} 1"], ["echo no; exit 1"], [f"{REFUSED} 2"]],
    "nothing was found": [[f"grep {word} *"] for word in ("price", "tax", "total", "sum")],
    "beside what works": [[f"{REFUSED} {number}", f"echo {number}"] for number in range(4)],
    "all in one reply": [[f"{REFUSED} {number}" for number in range(5)]],
}


@pytest.mark.parametrize("replies", HONEST.values(), ids=HONEST.keys())
async def test_errors_that_teach_something_are_no_loop(run: Run, replies: list[list[str]]) -> None:
    """Field reports 121 and 123."""
    (run.root / "a.txt").write_text("nothing\n")
    steps = [
        called(*[shell(10 * number + place, command) for place, command in enumerate(commands)])
        for number, commands in enumerate(replies)
    ]
    assert (await run.turn(*steps, said("Done."))).end is TurnEnd.DONE


def test_like_edits_to_eight_files_with_a_test_after_each_pass(desk: Desk, server: Emulator) -> None:
    """Field report 123: the same words, the same new text and the same result eight times over, in one turn."""
    header = "".join(f"# {line}. Licensed under the Apache License, Version 2.0.\n" for line in range(12))
    replies = []
    for number in range(8):
        (desk.repository / f"f{number}.py").write_text("import old\n")
        edit = Call("edit", {"path": f"f{number}.py", "old": "import old\n", "new": f"{header}import new\n"})
        replies += [
            Reply.of(Say(f"Now I put the licence header into f{number}.py.\n", pieces=9), edit),
            Reply.of(Call("shell", {"command": "python3 -c 'print(1)'"})),
        ]
    answer = "".join(f"- f{number}.py has the licence header now, and imports `new`.\n" for number in range(8))
    server.play([*replies, Reply.of(Say(answer, pieces=40))])
    desk.run("Put the licence header into all files.", again=False)
    assert desk.answer().strip() == answer.strip()
    assert not [event for event in desk.seen if isinstance(event, events.Notice)]
    for number in range(8):
        assert (desk.repository / f"f{number}.py").read_text() == f"{header}import new\n"
