"""The loop on a backend that plays replies: stop reasons, limits, interrupts, and what the ledger keeps of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from budget_support import no_budgets

from agent import events
from agent.call import Caller
from agent.counting import Counter
from agent.database import LedgerError
from agent.epochs import Epochs, Rewriting
from agent.events import TurnEnd
from agent.forecaster import Forecaster
from agent.gate import ModeGate
from agent.keeper import Keeper, KeepLimits
from agent.ledger import Ledger
from agent.loop import Limits, Loop
from agent.parts import Parts
from agent.permissions import Mode
from agent.redact import Redactor
from agent.repository import Repository
from agent.session import Session
from agent.toolbox import Toolbox
from agent.tools import registry
from agent.tools.base import ToolContext
from agent.versions import Versions
from backends import base
from backends.base import BackendError, Capabilities, ErrorKind, Request, StopReason, Usage
from context.block import Block, Layer, Role, Text, ToolCall
from context.cache_rules import CacheRules
from context.layers.history import CUT_REPLY, INTERRUPTED
from context.notices import Environment

Step = Sequence[base.Event] | BackendError
USAGE = base.UsageReported(Usage(10, 0, 0, 0, 5, 0))


def said(text: str, stop: StopReason = StopReason.END) -> list[base.Event]:
    return [base.TextDelta(text), USAGE, base.ReplyFinished((Text(text),) if text else (), stop)]


def called(*calls: ToolCall) -> list[base.Event]:
    return [USAGE, base.ReplyFinished(calls, StopReason.TOOLS)]


class PlayedBackend:
    """Plays `steps`, one a call; an empty step never ends. `requests` are the prompts that came."""

    name = "played/model"
    dialect = "played"
    endpoint = "played.example"
    capabilities = Capabilities(100_000, 1_000, CacheRules(), 1.0)

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.requests: list[Request] = []
        self.waiting = asyncio.Event()

    async def prepare(self) -> None: ...

    async def warm(self, request: Request) -> Usage | None:
        return None

    async def aclose(self) -> None: ...

    async def stream(self, request: Request) -> AsyncGenerator[base.Event, None]:
        self.requests.append(request)
        step = self.steps.pop(0)
        if isinstance(step, BackendError):
            raise step
        for event in step:
            yield event
        if not any(isinstance(event, base.ReplyFinished) for event in step):
            self.waiting.set()
            await asyncio.Event().wait()


class FakeClock:
    def __init__(self) -> None:
        self.time = 1_796_083_200.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


NO_LIMITS = Limits()
ENVIRONMENT = Environment("2026-12-01", "/srv", "auto", asks=False)


class Run:
    """A session in a folder, and loops on it."""

    def __init__(self, root: Path, ledger: Ledger) -> None:
        self.root = root
        self.ledger = ledger
        self.clock = FakeClock()
        self.events: list[events.Event] = []
        head = [Block.make(Layer.SYSTEM, Role.SYSTEM, [Text("system")], 2000)]
        self.session = Session.create(
            ledger, now=self.clock.now(), directory=str(root), title="t", told=ENVIRONMENT, head=head
        )

    def loop(self, *steps: Step, limits: Limits = NO_LIMITS, cost: str | None = "0.01") -> tuple[Loop, PlayedBackend]:
        backend = PlayedBackend(list(steps))
        context = ToolContext(self.root, self.root / "spill", {"PATH": "/usr/bin:/bin"})
        gate = ModeGate(Mode.AUTO, self.root, None)
        toolbox = Toolbox(self.session, registry(), context, gate, Redactor({}), self.events.append, self.clock)
        price = None if cost is None else Decimal(cost)
        forecaster, pricing = Forecaster(self.session, backend, None), lambda usage, at: (price, "test")
        budgets = no_budgets(self.session, self.clock)
        parts = Parts(self.session, backend, pricing, self.events.append, self.clock, lambda: 0.0, budgets)
        keeper = Keeper(parts, forecaster, KeepLimits("off"))
        caller = Caller(parts, forecaster, Counter(), keeper)
        rewriting = Rewriting(lambda: list(self.session.prompt.head(Layer.PROJECT)), self.root, True, toolbox.forget)
        epochs = Epochs(parts, forecaster, caller, rewriting)
        repository = Repository(context, Versions(self.root / "versions"), Redactor({}))
        ways = (self.events.append, repository, parts.budgets)
        return Loop(self.session, caller, toolbox, keeper, epochs, limits, *ways), backend

    async def turn(self, *steps: Step, limits: Limits = NO_LIMITS, cost: str | None = "0.01") -> events.TurnFinished:
        loop, self.backend = self.loop(*steps, limits=limits, cost=cost)
        return await loop.turn("do it", ENVIRONMENT)

    def reopened(self) -> Session:
        row = self.ledger.session(self.session.id)
        assert row is not None
        return Session.resume(self.ledger, row)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        root = (tmp_path / "root").resolve()
        root.mkdir()
        yield Run(root, ledger)


async def test_a_reply_without_calls_ends_the_turn(run: Run) -> None:
    finished = await run.turn(said("Done."))
    assert (finished.end, finished.text, finished.calls, finished.cost_usd) == (
        TurnEnd.DONE,
        "Done.",
        1,
        Decimal("0.01"),
    )
    assert run.reopened().prompt.digest == run.session.prompt.digest


@pytest.mark.parametrize("stop", [StopReason.MAX_OUTPUT, StopReason.END])
async def test_a_cut_or_empty_reply_is_given_another_try_twice(run: Run, stop: StopReason) -> None:
    reply = said("half" if stop is StopReason.MAX_OUTPUT else "", stop)
    finished = await run.turn(reply, reply, said("whole"))
    assert (finished.end, finished.text) == (TurnEnd.DONE, "whole")
    assert "<notice>" in (run.backend.requests[1].prompt.block or pytest.fail("no block")).text
    finished = await run.turn(reply, reply, reply)
    assert finished.end is TurnEnd.FAILED
    assert "--continue" in (finished.message or "")


async def test_a_paused_reply_is_sent_back_as_it_is(run: Run) -> None:
    await run.turn(said("so far", StopReason.PAUSED), said("done"))
    first, second = (request.prompt for request in run.backend.requests)
    assert second.extends(first)
    assert [block.text for block in second.since(first.length)] == ["so far"]


async def test_a_refusal_is_told_with_the_providers_reason(run: Run) -> None:
    finished = await run.turn([USAGE, base.ReplyFinished((), StopReason.REFUSED, detail="cyber")])
    assert finished.end is TurnEnd.FAILED
    assert "cyber" in (finished.message or "")


async def test_retries_wait_longer_each_time_and_obey_the_provider(run: Run) -> None:
    busy = BackendError(ErrorKind.OVERLOADED, "busy")
    ordered = BackendError(ErrorKind.RATE_LIMIT, "slow down", retry_after=42.0)
    finished = await run.turn(busy, busy, ordered, said("done"))
    assert finished.end is TurnEnd.DONE
    assert run.clock.slept == [0.5, 1.0, 42.0]
    assert finished.calls == 1


async def test_text_of_a_broken_stream_is_not_kept_when_the_call_is_made_again(run: Run) -> None:
    """Field report 127: no half message is stored."""

    loop, backend = run.loop(said("whole"))
    whole = backend.stream
    tries = 0

    async def stream(request: Request) -> AsyncGenerator[base.Event, None]:
        nonlocal tries
        tries += 1
        if tries == 1:
            yield base.TextDelta("ha")
            raise BackendError(ErrorKind.NETWORK, "cut")
        async for event in whole(request):
            yield event

    backend.stream = stream  # type: ignore[method-assign]
    await loop.turn("do it", ENVIRONMENT)
    assert run.session.repair() == []
    assert [block.text for block in run.session.prompt][-1] == "whole"


async def test_an_interrupted_reply_keeps_its_text_and_the_model_is_told(run: Run) -> None:
    loop, backend = run.loop([base.TextDelta("The first half")])
    task = asyncio.create_task(loop.turn("do it", ENVIRONMENT))
    await backend.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(run.events[-1], events.TurnFinished)
    assert run.events[-1].end is TurnEnd.INTERRUPTED

    sent = backend.requests[0].prompt
    run.session = run.reopened()
    assert run.session.repair() == [CUT_REPLY]
    run.session = run.reopened()  # killed once more, before the notice was sent
    await run.turn(said("The second half"))
    later = run.backend.requests[0].prompt
    assert later.extends(sent)
    half, command = later.since(sent.length)
    assert (half.role, half.text) == (Role.ASSISTANT, "The first half")
    assert CUT_REPLY in command.text


async def test_an_interrupted_command_is_answered_as_perhaps_done_and_never_runs_again(run: Run) -> None:
    """Rule R7. Field reports 131, 132 and 139."""
    calls = [
        ToolCall("1", "shell", '{"command":"echo x >> log; sleep 60"}'),
        ToolCall("2", "shell", '{"command":"ls"}'),
    ]
    loop, _ = run.loop(called(*calls))
    task = asyncio.create_task(loop.turn("do it", ENVIRONMENT))
    await asyncio.to_thread(_wait_for, (run.root / "log").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    run.session = run.reopened()
    assert run.session.repair() == []
    block = run.session.prompt.block
    assert block is not None
    assert [result.text == INTERRUPTED for result in block.tool_results] == [True, False]
    assert (run.root / "log").read_text() == "x\n"
    again = run.reopened()
    assert again.repair() == []
    assert again.prompt.digest == run.session.prompt.digest, "a repair is stored: the next one has nothing to do"


def _wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_reads_run_side_by_side_and_writes_in_order(run: Run) -> None:
    for name in "abc":
        (run.root / name).write_text(name)
    reads = [ToolCall(name, "read", f'{{"path":"{name}"}}') for name in "abc"]
    writes = [ToolCall(n, "shell", f'{{"command":"echo {n} >> log"}}') for n in "12"]
    await run.turn(called(*reads, *writes), said("done"))
    told = [e for e in run.events if isinstance(e, events.ToolStarted | events.ToolFinished)]
    started = [type(event) is events.ToolStarted for event in told]
    assert started[:3] == [True, True, True], "all reads have begun before one has ended"
    assert (run.root / "log").read_text() == "1\n2\n"
    results = run.session.prompt.since(run.session.prompt.length - 2)[0].tool_results
    assert [result.call_id for result in results] == ["a", "b", "c", "1", "2"]


async def test_an_unknown_tool_and_bad_arguments_are_answered_not_raised(run: Run) -> None:
    await run.turn(called(ToolCall("1", "teleport", "{}"), ToolCall("2", "read", "{oops")), said("done"))
    results = run.session.prompt.since(run.session.prompt.length - 2)[0].tool_results
    assert all(result.is_error for result in results)
    assert "read" in results[0].text


async def test_honest_repetition_is_no_loop(run: Run) -> None:
    """Field report 123: eight like edits to eight files pass, with the same check after each."""
    steps: list[Step] = []
    for number in range(8):
        (run.root / f"f{number}").write_text("old\n")
        steps.append(called(ToolCall(f"e{number}", "edit", f'{{"path":"f{number}","old":"old","new":"new"}}')))
        steps.append(called(ToolCall(f"c{number}", "shell", '{"command":"true"}')))
    finished = await run.turn(*steps, said("done"))
    assert finished.end is TurnEnd.DONE


async def test_the_same_call_in_each_of_many_turns_is_no_loop(run: Run) -> None:
    steps: list[Step] = []
    for number in range(8):
        steps += [called(ToolCall(f"f{number}", "find", '{"pattern":"*"}')), said("done")]
    loop, _ = run.loop(*steps)
    for _ in range(8):
        finished = await loop.turn("What is here?", ENVIRONMENT)
        assert finished.end is TurnEnd.DONE
    assert "gave the same result before" not in str(list(run.session.prompt))


async def test_a_cycle_of_two_calls_is_stopped(run: Run) -> None:
    """Field report 120: two calls in turn teach as little as one."""
    steps = [called(ToolCall(str(n), "find", f'{{"pattern":"{"ab"[n % 2]}"}}')) for n in range(60)]
    finished = await run.turn(*steps)
    assert finished.end is TurnEnd.STUCK
    assert finished.calls < 15


async def test_an_unfinished_reply_has_an_unknown_output_and_price(run: Run) -> None:
    """Rule R4: what was generated before the interrupt is billed and not reported."""
    loop, backend = run.loop([USAGE, base.TextDelta("half")])
    task = asyncio.create_task(loop.turn("do it", ENVIRONMENT))
    await backend.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (call,) = run.ledger.calls(run.session.id)
    assert (call.status, call.usage.fresh, call.usage.output) == ("interrupted", 10, None)


async def test_a_failed_stream_keeps_its_text_when_no_retry_follows(run: Run) -> None:
    loop, backend = run.loop()

    async def stream(request: Request) -> AsyncGenerator[base.Event, None]:
        yield base.TextDelta("half")
        raise BackendError(ErrorKind.PROTOCOL, "broken")

    backend.stream = stream  # type: ignore[method-assign]
    assert (await loop.turn("do it", ENVIRONMENT)).end is TurnEnd.FAILED
    assert run.session.repair() == [CUT_REPLY]
    assert run.session.prompt.block is not None
    assert run.session.prompt.block.text == "half"


async def test_a_cost_limit_is_not_passed_by_calls_of_unknown_price(run: Run) -> None:
    calls = [called(ToolCall(str(n), "shell", f'{{"command":"echo {n}"}}')) for n in range(9)]
    finished = await run.turn(*calls, limits=Limits(max_cost=Decimal(5)), cost=None)
    assert (finished.end, finished.calls) == (TurnEnd.LIMIT, 1)


async def test_a_ledger_that_cannot_be_written_ends_the_turn_with_an_event(run: Run) -> None:
    loop, _ = run.loop(said("never told"))
    run.ledger.close()
    with pytest.raises(LedgerError):
        await loop.turn("do it", ENVIRONMENT)  # not even the command could be recorded: nothing was sent
    assert not any(isinstance(event, events.CallStarted) for event in run.events)


async def test_limits(run: Run) -> None:
    calls = [called(ToolCall(str(n), "shell", f'{{"command":"echo {n}"}}')) for n in range(9)]
    assert (await run.turn(*calls, limits=Limits(max_turns=3))).calls == 3
    limited = await run.turn(*calls, limits=Limits(max_cost=Decimal("0.02")))
    assert (limited.end, limited.calls) == (TurnEnd.LIMIT, 2)


async def test_an_unknown_price_stays_unknown(run: Run) -> None:
    """Field report 94: never $0."""
    finished = await run.turn(said("done"), cost=None)
    assert finished.cost_usd is None


async def test_the_scale_is_learned_from_what_was_billed(run: Run) -> None:
    """Field report 80: a count that is off is corrected by the provider's own."""
    big = base.UsageReported(Usage(1300, 0, 1500, 0, 5, 0))
    await run.turn([big, base.ReplyFinished((Text("a"),), StopReason.END)])
    scale = run.ledger.scale("played/model")
    assert scale is not None
    assert 1.0 < scale.factor < 1.4
