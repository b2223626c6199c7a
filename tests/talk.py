"""Sessions on an emulated API without HTTP: the real ledger and forecaster, judged by the emulator call by call."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from emulator import ManualClock, Recorded, Reply, raw_prefix
from emulator.anthropic_api import AnthropicApi
from emulator.api import Generation, Surroundings
from emulator.bill import Account, Bill
from emulator.models import ALL
from emulator.responses import ResponsesApi

from agent.forecaster import Forecaster, Plan
from agent.ledger import Ledger
from agent.ledger_rows import CallOutcome, ForecastRow
from agent.ping_record import Ping
from agent.session import Session
from backends import anthropic_wire, openai_wire
from backends.base import Capabilities, MemoryWireStore, Usage
from backends.catalog import Catalog
from backends.openai import cache_key
from context.block import Block, Layer, Role, Text, ToolCall, ToolResult, ToolSpec
from context.breakpoints import ALL_SHORT
from context.cache_rules import Ttl
from context.cachemodel import Entry
from context.forecast import Cause
from context.layers.command import command_block
from context.layers.history import reply_block, results_block
from context.notices import Environment
from context.prompt import Prompt

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
        self._kind: Any = anthropic_wire.RequestBody if self.api == "anthropic" else openai_wire.RequestBody
        self._body = self._kind(self.wires, self.dialect)

    def body(self, prompt: Prompt, plan: Plan, effort: str | None, *, ping: bool = False) -> bytes:
        body = self._kind(self.wires, self.dialect) if ping else self._body
        body.extend_to(prompt)
        if self.api == "anthropic":
            tail: dict[str, Any] = {"max_tokens": 0} if ping else {"max_tokens": 1000, "stream": True}
            if effort:
                tail["output_config"] = {"effort": effort}
        else:
            tail = {"store": False, "stream": not ping, "prompt_cache_key": cache_key(prompt)}
            if plan.markers:
                tail["prompt_cache_options"] = {"mode": "explicit"} | ({"prewarm": True} if ping else {})
            if effort:
                tail["reasoning"] = {"effort": effort}
        taken: bytes = body.take({"model": self.id}, plan.markers, tail)
        return taken


Fate = Literal["done", "cut", "lost", "refused"]
"""Of a request: answered; cut after its usage was told; begun, but nothing came back; refused before it began."""


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
        self.lost = False  # a request was begun whose bill never arrived: the client may know less than is true
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

    def reopen(self) -> None:
        """Another process goes on with the session."""
        row = self.ledger.session(self.session.id)
        assert row is not None
        self.session = Session.resume(self.ledger, row)
        self.prepare()

    def turn(
        self, words: int, loops: int, wide: int, between: Callable[[], object] = lambda: None, first: Fate = "done"
    ) -> None:
        """`between`: what happens while tools run. `first`: how its first request ends, which is made again."""
        number = next(self.numbers)
        self.session.append([command_block(f"Command {number}. " + "word " * words, ["A notice."] * (number % 2))])
        if first != "done":
            self.call(first)
        for step in range(loops):
            self.call()
            calls = [ToolCall(f"call_{number}_{step}_{side}", "read", f'{{"path":"{side}"}}') for side in range(wide)]
            self.session.append([reply_block([Text("I look."), *calls])])
            between()
            results = {each.id: ToolResult(each.id, f"{each.id} " * words, is_error=wide % 2 == 0) for each in calls}
            self.session.append([results_block(calls, results)])
        self.call()
        self.session.append([reply_block([Text("Done.")])])

    def call(self, fate: Fate = "done") -> None:
        session, wire, now = self.session, self.wires[self.model], self.clock.now()
        plan = self.forecaster.plan(now)
        raw = wire.body(session.prompt, plan, self.effort)
        account = self._send(raw, fate)
        assert raw_prefix(raw).startswith(self.sent.get(self.model, b"")), "it extends the one before"
        self.sent[self.model] = raw_prefix(raw)
        said, bill = plan.forecast.usage, account.bill
        if fate == "done" and not self.lost:
            assert (said.fresh, said.cache_read, said.cache_write, said.cache_write_long) == (
                *(bill.fresh, bill.read, bill.write_short + bill.write_long, bill.write_long),
            ), (plan.forecast.cause, plan.markers)
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
        if fate not in ("done", "cut"):  # nothing came back that says what was billed
            self.ledger.finish_call(call_id, CallOutcome("failed", Usage()))
            return
        usage = _usage(bill)
        verdict, entries = self.forecaster.audit(plan, usage, None)
        if not self.lost:
            assert verdict.foreseen
            assert verdict.cause is not Cause.UNKNOWN
        status = "done" if fate == "done" else "failed"
        self.ledger.finish_call(call_id, CallOutcome(status, usage, verdict=verdict, entries=entries))
        if fate == "done":
            self.forecaster.learn(session.prompt.length, usage)

    def ping(self, fate: Fate = "done") -> bool:
        """Renew the lease of what was sent last, as the keeper does: only one that is alive. Whether there was one."""
        now, lease = self.clock.now(), self.forecaster.lease()
        if lease is None or not lease.alive(now):
            return False
        plan = self.forecaster.renewal(now)
        assert plan is not None
        wire = self.wires[self.model]
        raw = wire.body(plan.prompt, plan, self.effort, ping=True)
        account = self._send(raw, fate)
        assert self.sent[self.model].startswith(raw_prefix(raw)), "it is what was sent once more"
        usage = _usage(account.bill)
        entries: Sequence[Entry] = ()
        if fate in ("done", "cut"):
            assert usage.cache_read == lease.tokens
            assert usage.cache_write == 0
            _, entries = self.forecaster.audit(plan, usage, None)
        where = (self.session.id, now, wire.name, wire.endpoint, plan.prompt.digest, plan.prompt.length)
        self.ledger.pings.add(Ping(*where, "idle", "done" if entries else "failed", usage), entries)
        return True

    def _send(self, raw: bytes, fate: Fate) -> Account:
        headers = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
        request = Recorded(self.path, headers, raw, json.loads(raw), next(self.numbers), self.clock.now())
        generation: Generation = self.server.find("POST", self.path)  # type: ignore[assignment]
        assert generation.refusal(request) is None, "every body is legal"
        account = generation.account(request, Reply.of("ok"))
        if fate != "refused":
            account.begin()
        self.lost |= fate == "lost"
        return account

    def held(self) -> dict[str, "Counter[tuple[int, float]]"]:
        """What client and provider hold alive now: length and end of life of each prefix."""
        now = self.clock.now()
        cache = (
            self.server._cache._entries if isinstance(self.server, AnthropicApi) else self.server.breakpoints.entries
        )
        theirs = [(entry.tokens, entry.expires) for entry in cache._entries.values() if now < entry.expires]
        rows = self.ledger.caches.all()
        mine = [(entry.tokens, entry.expires or 0.0) for entry in rows if entry.alive(now)]
        return {"client": Counter(mine), "provider": Counter(theirs)}


def _usage(bill: Bill) -> Usage:
    return Usage(bill.fresh, bill.read, bill.write_short + bill.write_long, bill.write_long, 10, 0)


@contextmanager
def talk(api: str, words: int) -> Iterator[Talk]:
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.db") as ledger:
        yield Talk(ledger, api, words)
