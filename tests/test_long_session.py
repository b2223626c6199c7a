"""Three days in one session: sixty turns and well over 300 calls on a window of 200,000 tokens, into which more than
three times as much is put, with pauses of minutes, hours and nights, on a model that binds its reasoning to the exact
prefix.

`python -m pytest -s tests/test_long_session.py` prints the figures.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from emulator import Bill, Call, Emulator, ManualClock, Recorded, Reply, Think, raw_prefix
from emulator.models import ALL, Models
from waiting import Waiting

from agent import events
from agent.backend_choice import Downloads
from agent.events import TurnEnd
from agent.ledger import Ledger
from agent.ledger_rows import CallRow, EpochRow
from agent.opening import Surroundings, Task, open_conversation
from agent.ping_record import Ping
from context.forecast import Cause

MODEL: Final = "claude-opus-5-5"
WINDOW: Final = 200_000
FACT: Final = "the staging database listens on port 48123"
TURNS: Final = 60
LONG_TURNS: Final = {22: 40, 43: 80, 48: 20}  # turn: steps of it; the others take three or four
MINUTE, HOUR = 60.0, 3600.0
PAUSES: Final = (40.0, 25.0, 3 * MINUTE, 70.0, 8 * MINUTE, 15.0, 2 * MINUTE, 20 * MINUTE, 50.0, 4 * MINUTE)
LONG_PAUSES: Final = {8: HOUR, 17: 13 * HOUR, 30: 2 * HOUR, 38: 14 * HOUR, 52: HOUR}  # after that turn
LOGS, LINES, PAGE = 16, 2_400, 50


@dataclass
class Worker:
    """A model that looks through logs, three calls a step, for lines that it has not seen, and is forgetful: its
    summaries say nothing of what the person told it.
    """

    left: int = 0  # steps of this turn
    taken: int = 0  # of all turns

    def __call__(self, request: Recorded) -> Reply:
        if "about to be replaced by a summary" in json.dumps(request.body["messages"][-1]):
            return Reply.of(Think("What matters?"), f"{self.taken} steps were taken.", output_tokens=300)
        if not self.left:
            return Reply.of(Think("That will do."), f"Nothing new up to step {self.taken}.", output_tokens=60)
        self.left -= 1
        self.taken += 1
        calls = (Call(name, json.dumps(given, separators=(",", ":"))) for name, given in look(self.taken))
        return Reply.of(Think(f"Step {self.taken}: what do the logs say?"), *calls, output_tokens=150)


def look(step: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls for parts of the logs that no other step looks at."""
    log, first = f"logs/{step % LOGS}.log", step // LOGS * 2 * PAGE + 1
    yield "read", {"path": log, "offset": first, "limit": PAGE}
    yield "shell", {"command": f"sed -n {first + PAGE},{first + 2 * PAGE - 1}p {log}; wc -c {log}"}
    yield "search", {"pattern": f"request {step:04} ", "path": "logs"}
    if step % 10 == 0:
        yield "write", {"path": f"notes/{step}.md", "content": f"Step {step}: nothing yet.\n"}


def write_logs(repository: Path) -> None:
    draw = random.Random(4)
    words = ["accepted", "refused", "retried", "queued", "timeout", "connection", "shard", "replica", "commit", "index"]
    (repository / "logs").mkdir()
    for log in range(LOGS):
        with (repository / "logs" / f"{log}.log").open("w") as file:
            for line in range(LINES):
                one, other = draw.choices(words, k=2)
                file.write(f"{line:05} request {draw.randrange(3_000):04} {one} {other} in {draw.random():.3f} s\n")


def command(turn: int) -> str:
    """So long that the record of all of them has to leave some out (`context.compaction`)."""
    part = f"Go on with part {turn} of the logs; the rules that we agreed on hold. " * 4
    return f"For all that follows: {FACT}. {part}" if turn == 1 else part


@dataclass
class Person:
    """At the keyboard, on a clock that goes on only while they are away."""

    waiting: Waiting
    worker: Worker
    ends: list[events.TurnFinished] = field(default_factory=list)

    async def work(self) -> None:
        waiting, nothing = self.waiting, Downloads(lambda _: None, lambda _: None, None)
        around = Surroundings(waiting.env, waiting.clock, lambda: 0.0, waiting.note, nothing, None)
        task = Task("chat", waiting.repository)
        async with open_conversation(task, waiting.settings, waiting.folders, around) as conversation:
            for turn in range(1, TURNS + 1):
                self.worker.left = LONG_TURNS.get(turn, 3 + turn % 2)
                self.ends.append(await conversation.turn(command(turn)))
                await conversation.wait(self.ends[-1])
                await self.quiet()
                await waiting.clock.advance(LONG_PAUSES.get(turn, PAUSES[turn % len(PAUSES)]), self.quiet)

    async def quiet(self) -> None:
        """Nothing goes on any more without time passing: who is not asleep has finished."""
        clock = self.waiting.clock
        while (busy := asyncio.all_tasks() - {asyncio.current_task()}) and not clock.sleepers:
            clock.asleep.clear()
            asleep = asyncio.create_task(clock.asleep.wait())
            await asyncio.wait({asleep, *busy}, return_when=asyncio.FIRST_COMPLETED)
            asleep.cancel()
            await asyncio.wait({asleep})


@dataclass(frozen=True, repr=False)
class Outcome:
    """`requests` and `bills` are those of `calls`, one for one; pings are apart."""

    ends: Sequence[events.TurnFinished]
    calls: Sequence[CallRow]
    requests: Sequence[Recorded]
    bills: Sequence[Bill]
    epochs: Sequence[EpochRow]
    pings: Sequence[Ping]
    refused: int

    def compactions(self) -> list[int]:
        """Their places among the calls."""
        return [at for at, call in enumerate(self.calls) if call.purpose == "compaction"]


@pytest.fixture
async def outcome(repository: Path, environment: dict[str, str], home: Path) -> Outcome:
    (home / "models.toml").write_text(f"[anthropic.{MODEL}]\ntoken_scale = 1\ncontext = {WINDOW}\nmax_output = 32000\n")
    write_logs(repository)
    models = Models.of(replace(ALL.rows[MODEL], context=WINDOW))
    with Emulator(clock=ManualClock(), models=models) as server:
        person = Person(Waiting(repository, environment, server, f"anthropic/{MODEL}"), Worker())
        server.play(person.worker)
        await person.work()
        billed = list(zip(server.requests, server.bills, strict=True))
    with Ledger.open(person.waiting.folders.ledger) as ledger:
        (row,) = ledger.sessions()
        calls, epochs, pings = ledger.calls(row.id), ledger.epochs(row.id), ledger.pings.of(row.id)
    paid = [(request, bill) for request, bill in billed if bill is not None and request.body["max_tokens"] > 0]
    return Outcome(
        ends=person.ends,
        calls=calls,
        requests=[request for request, _ in paid],
        bills=[bill for _, bill in paid],
        epochs=epochs,
        pings=pings,
        refused=sum(bill is None for _, bill in billed),
    )


def inputs(call: CallRow) -> int:
    """All input tokens."""
    assert call.usage.input_total is not None
    return call.usage.input_total


def reads(call: CallRow) -> int:
    assert call.usage.cache_read is not None
    return call.usage.cache_read


def hit_rate(calls: Sequence[CallRow]) -> float:
    """cache_read / (fresh + read + write)."""
    return sum(map(reads, calls)) / sum(map(inputs, calls))


def brought(calls: Sequence[CallRow]) -> int:
    """Tokens that commands, replies and tools have put into the conversation."""
    turns = [call for call in calls if call.purpose == "turn"]
    return sum(inputs(later) - inputs(call) for call, later in pairwise(turns) if call.epoch == later.epoch)


def cause(call: CallRow) -> Cause | None:
    return call.verdict.cause if call.verdict else None


def show(outcome: Outcome) -> None:
    calls, at = outcome.calls, outcome.compactions()
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    pings = [ping.cost_usd for ping in outcome.pings if ping.cost_usd is not None]
    print(f"\n{len(calls)} calls in {TURNS} turns, {len(at)} of them for summaries; ${sum(costs):.2f}")
    print(f"{brought(calls):,} tokens put into the conversation; largest request {max(map(inputs, calls)):,}")
    print(f"hit rate of input tokens {hit_rate(calls):.2%}, {sum(map(inputs, calls)):,} tokens")
    print(f"causes {dict(Counter(str(cause(call)) for call in calls))}")
    print(f"epochs {[(epoch.reason, epoch.tokens_before, epoch.tokens_after) for epoch in outcome.epochs]}")
    read = [f"{reads(calls[n])} of {inputs(calls[n - 1])} in turn {calls[n].turn}" for n in at]
    print(f"summaries read {read}")
    print(f"pings {dict(Counter(ping.status for ping in outcome.pings))}, ${sum(pings):.2f}")


async def test_three_hundred_calls_that_fill_the_window_three_times_miss_nothing_unsaid(outcome: Outcome) -> None:
    calls, compactions = outcome.calls, outcome.compactions()
    assert [end.message for end in outcome.ends if end.end is not TurnEnd.DONE] == []
    assert outcome.refused == 0
    show(outcome)
    assert len(outcome.requests) == len(calls) >= 300
    assert brought(calls) >= 3 * WINDOW
    assert len(compactions) >= 3
    assert {epoch.reason for epoch in outcome.epochs} == {"cold", "compacted"}
    assert outcome.pings
    assert {ping.status for ping in outcome.pings} == {"done"}

    assert hit_rate(calls) >= 0.95
    for number, (earlier, call) in enumerate(pairwise(calls), 1):
        if reads(call) < inputs(earlier):
            assert cause(call) not in (None, Cause.NONE, Cause.UNKNOWN), f"call {number + 1} of {len(calls)}"
    assert all(call.verdict and call.verdict.foreseen for call in calls)
    for call, bill in zip(calls, outcome.bills, strict=True):
        assert call.forecast is not None
        usage, written = call.forecast.usage, bill.write_short + bill.write_long
        assert (usage.fresh, usage.cache_read, usage.cache_write) == (bill.fresh, bill.read, written), call.number

    for at in compactions:
        assert reads(calls[at]) >= 0.99 * inputs(calls[at - 1])
        assert calls[at].usage.cache_write == 0

    behind_third = range(compactions[2] + 1, len(calls))
    assert behind_third
    assert [at for at in behind_third if FACT not in outcome.requests[at].raw.decode()] == []

    before: tuple[int, bytes] = (0, b"")
    for call, request in zip(calls, outcome.requests, strict=True):
        prefix = raw_prefix(request.raw)
        assert call.epoch != before[0] or prefix.startswith(before[1]), f"call {call.number} rewrites its epoch"
        if call.purpose == "turn":
            before = (call.epoch, prefix)
