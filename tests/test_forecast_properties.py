"""For any sequence of turns, pauses and changes: every body is legal, extends the one before, and costs what was said.

The judge is the emulator's own reading of the providers' rules and bills, here without HTTP.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from emulator import ManualClock, Recorded, Reply, raw_prefix
from emulator.anthropic_api import AnthropicApi
from emulator.api import Generation, Surroundings
from emulator.models import ALL
from emulator.responses import ResponsesApi
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.forecaster import Forecaster, Plan
from agent.ledger import Ledger
from agent.ledger_rows import CallOutcome, ForecastRow
from agent.session import Session
from backends import anthropic_wire, openai_wire
from backends.base import Capabilities, MemoryWireStore, Usage
from backends.catalog import Catalog
from backends.openai import cache_key
from context.block import Block, Layer, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import ALL_SHORT
from context.cache_rules import Ttl
from context.forecast import Cause
from context.layers.command import command_block
from context.layers.history import reply_block, results_block
from context.notices import Environment

MODELS = {
    "anthropic": ("anthropic/claude-sonnet-5-5", "anthropic/claude-opus-5"),
    "responses": ("openai/gpt-6.2-sol", "openai/gpt-6.1-terra"),
}
TOOL = ToolSpec("read", "Read a file.", '{"type":"object","properties":{"path":{"type":"string"}}}')


@dataclass
class Wire:
    """A backend without its connection: it only knows how its bodies look."""

    name: str
    api: str
    endpoint: str = "emulator.example"
    wires: MemoryWireStore = field(default_factory=MemoryWireStore)

    def __post_init__(self) -> None:
        info = Catalog.load().find(self.name)
        self.id = info.id
        known = info.capabilities
        self.capabilities = Capabilities(
            known.context, known.max_output, known.cache, 1.0, default_effort=known.default_effort
        )
        self.dialect = f"anthropic:{info.id}" if self.api == "anthropic" else openai_wire.dialect_of(info.id)
        kind = anthropic_wire.RequestBody if self.api == "anthropic" else openai_wire.RequestBody
        self._body: Any = kind(self.wires, self.dialect)

    def body(self, session: Session, plan: Plan, effort: str | None) -> bytes:
        self._body.extend_to(session.prompt)
        if self.api == "anthropic":
            tail: dict[str, Any] = {"max_tokens": 1000, "stream": True}
            if effort:
                tail["output_config"] = {"effort": effort}
        else:
            tail = {"store": False, "stream": True, "prompt_cache_key": cache_key(session.prompt)}
            if plan.markers:
                tail["prompt_cache_options"] = {"mode": "explicit"}
            if effort:
                tail["reasoning"] = {"effort": effort}
        taken: bytes = self._body.take({"model": self.id}, plan.markers, tail)
        return taken


class Talk:
    """Sessions on one emulated API, with the real ledger and forecaster between them."""

    def __init__(self, ledger: Ledger, api: str, words: int) -> None:
        self.ledger, self.api, self.words = ledger, api, words
        self.clock = ManualClock()
        around = Surroundings(self.clock, ALL, True)
        self.server = AnthropicApi(around) if api == "anthropic" else ResponsesApi(around)
        self.path = "/v1/messages" if api == "anthropic" else "/v1/responses"
        self.wires = {name: Wire(name, api) for name in MODELS[api]}
        self.model, self.effort, self.ttl = MODELS[api][0], None, dict[Layer, Ttl](ALL_SHORT)
        self.numbers = count(1)
        self.open("a first session")

    def open(self, title: str) -> None:
        head = [
            Block.make(Layer.SYSTEM, Role.SYSTEM, [TOOL, Text("You are careful. " * self.words)]),
            Block.make(Layer.PROJECT, Role.SYSTEM, [Text("A project. " * self.words)]),
        ]
        told = Environment("2026-12-01", "/", "auto", False)
        now = self.clock.now()
        self.session = Session.create(self.ledger, now=now, directory="/", title=title, told=told, head=head)
        self.sent: dict[str, bytes] = {}
        self.prepare()

    def prepare(self) -> None:
        wire: Any = self.wires[self.model]
        self.forecaster = Forecaster(self.session, wire, self.effort, self.ttl)

    def fork(self) -> None:
        row = self.ledger.session(self.session.id)
        assert row is not None
        self.session = Session.fork(self.ledger, row, now=self.clock.now(), title="a copy")
        self.prepare()

    def turn(self, words: int, loops: int, wide: int) -> None:
        number = next(self.numbers)
        self.session.append([command_block(f"Command {number}. " + "word " * words, ["A notice."] * (number % 2))])
        for step in range(loops):
            self.call()
            calls = [ToolCall(f"call_{number}_{step}_{side}", "read", f'{{"path":"{side}"}}') for side in range(wide)]
            self.session.append([reply_block([Text("I look."), *calls])])
            results = {each.id: ToolResult(each.id, f"{each.id} " * words, is_error=wide % 2 == 0) for each in calls}
            self.session.append([results_block(calls, results)])
        self.call()
        self.session.append([reply_block([Text("Done.")])])

    def call(self) -> None:
        wire, session, now = self.wires[self.model], self.session, self.clock.now()
        plan = self.forecaster.plan(now)
        raw = wire.body(session, plan, self.effort)
        headers = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
        request = Recorded(self.path, headers, raw, json.loads(raw), next(self.numbers), now)
        generation: Generation = self.server.find("POST", self.path)  # type: ignore[assignment]
        assert generation.refusal(request) is None, "every body is legal"
        assert raw_prefix(raw).startswith(self.sent.get(self.model, b"")), "and extends the one before"
        self.sent[self.model] = raw_prefix(raw)

        account = generation.account(request, Reply.of("ok"))
        account.begin()
        bill = account.bill
        said = plan.forecast.usage
        assert (said.fresh, said.cache_read, said.cache_write, said.cache_write_long) == (
            *(bill.fresh, bill.read, bill.write_short + bill.write_long, bill.write_long),
        ), (plan.forecast.cause, plan.markers)
        usage = Usage(bill.fresh, bill.read, bill.write_short + bill.write_long, bill.write_long, 10, 0)
        verdict, entries = self.forecaster.audit(plan, usage, None)
        assert verdict.foreseen
        assert verdict.cause is not Cause.UNKNOWN
        call_id, _ = self.ledger.begin_call(
            session.id,
            model=wire.name,
            dialect=wire.dialect,
            started=now,
            prompt=session.prompt,
            markers=plan.markers,
            endpoint=wire.endpoint,
            effort=plan.scope.effort,
            forecast=ForecastRow(said, plan.forecast.total, None),
            baseline=plan.baseline,
        )
        self.ledger.finish_call(call_id, CallOutcome("done", usage, verdict=verdict, entries=entries))
        self.forecaster.learn(session.prompt.length, usage)


@contextmanager
def talk(api: str, words: int) -> Iterator[Talk]:
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.db") as ledger:
        yield Talk(ledger, api, words)


_turns = st.tuples(st.just("turn"), st.integers(1, 120), st.integers(0, 3), st.sampled_from([1, 1, 2, 25]))
_pauses = st.tuples(st.just("pause"), st.sampled_from([1, 200, 240, 299, 300, 301, 1700, 1900, 3500, 4000, 50_000]))
_changes = st.one_of(
    st.tuples(st.just("effort"), st.sampled_from([None, "low", "high"])),
    st.tuples(st.just("model"), st.integers(0, 1)),
    st.tuples(st.just("ttl"), st.sampled_from(["short", "long"])),
    st.tuples(st.sampled_from(["fork", "new"])),
)


@pytest.mark.parametrize("api", MODELS)
@settings(max_examples=250, deadline=None)
@given(
    words=st.sampled_from([1, 40, 130, 400]),  # of the head: below, around and above the models' minimum
    happened=st.lists(st.one_of(_turns, _pauses, _pauses, _changes), min_size=2, max_size=16),
)
def test_whatever_happens_bodies_are_legal_and_bills_are_foretold(api: str, words: int, happened: list[Any]) -> None:
    with talk(api, words) as desk:
        desk.turn(3, 1, 1)
        for what in happened:
            match what:
                case ("turn", words, loops, wide):
                    desk.turn(words, loops, wide)
                case ("pause", seconds):
                    desk.clock.advance(seconds)
                case ("effort", effort):
                    desk.effort = effort
                    desk.prepare()
                case ("model", index):
                    desk.model = MODELS[api][index]
                    desk.prepare()
                case ("ttl", ttl):
                    desk.ttl = {**ALL_SHORT, Layer.SYSTEM: ttl, Layer.PROJECT: ttl}
                    desk.prepare()
                case ("fork",):
                    desk.fork()
                case ("new",):
                    desk.open("another session")
