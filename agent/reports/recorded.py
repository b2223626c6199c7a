"""A session out of the ledger as `context.whatif` wants it: what was sent, when, how it was billed, and what was waited
for in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

from agent.backend_choice import find_model
from agent.errors import UserError
from agent.ledger import Ledger
from agent.ledger_rows import CallRow, SessionRow
from agent.pause_record import Wait as Pause
from agent.ping_record import Ping
from agent.reports.spend import is_billed
from backends.catalog import Catalog
from context.account import Record
from context.billed import Billed, Kind, RulesOf
from context.block import Layer
from context.breakpoints import Marker
from context.cache_rules import CacheRules, Ttl
from context.cachemodel import Scope
from context.compaction import instruction_block
from context.forecast import Cause
from context.prompt import Prompt
from context.skeleton import prompts
from context.usage import Usage
from context.whatif import Wait

_AFTERWARDS_S: Final = 0.001  # the last ping of a wait of unknown length was within it
_UNKNOWN: Final = CacheRules(kind="none")


@dataclass(frozen=True, slots=True)
class Recorded:
    """`calls`: the ledger's, billed or not. `costs`: of each request of the `record`, None: not known. `of_call`: the
    call that a request is; None: a ping. `apart`: calls that are billed but not in the record, because their counters
    are not known or cannot be true. `waited`: whether it is known what the program waited for, and `blocks` whether it
    is known what was sent.
    """

    session: SessionRow
    calls: tuple[CallRow, ...]
    record: Record
    costs: tuple[Decimal | None, ...]
    of_call: tuple[CallRow | None, ...]
    apart: tuple[CallRow, ...]
    waits: tuple[Wait, ...]
    failed: tuple[float, ...]
    one_shot: bool
    waited: bool
    blocks: bool


def rules_of(catalog: Catalog) -> RulesOf:
    """The cache rules of the models in `catalog`; those of a model that it does not know say nothing."""
    known: dict[str, CacheRules] = {}

    def of(model: str) -> CacheRules:
        if model not in known:
            try:
                known[model] = find_model(model, catalog).cache_rules
            except UserError:
                known[model] = _UNKNOWN
        return known[model]

    return of


def recorded(ledger: Ledger, session: SessionRow, catalog: Catalog, now: float) -> Recorded:
    """`now`: seconds since the epoch; until then the program may be waiting. Raises LedgerError."""
    calls, pings, pauses = ledger.calls(session.id), ledger.pings.of(session.id), ledger.pauses.of(session.id)
    usable = [call for call in calls if is_billed(call) and _is_usable(call)]
    whole = session.origin is None
    billed = _own(ledger, usable) if whole else _foreign(usable)
    entries: list[tuple[Billed, Decimal | None, CallRow | None]] = [
        (request, call.cost_usd, call) for request, call in zip(billed, usable, strict=True)
    ]
    entries += [(ping, usd, None) for ping, usd in _pings(ledger, session.id, pings, billed)]
    entries.sort(key=lambda entry: (entry[0].at, entry[2] is not None))  # a ping goes ahead of the call that it serves
    record = Record([request for request, _, _ in entries], rules_of(catalog))
    return Recorded(
        session=session,
        calls=tuple(calls),
        record=record,
        costs=tuple(usd for _, usd, _ in entries),
        of_call=tuple(call for _, _, call in entries),
        apart=tuple(call for call in calls if is_billed(call) and not _is_usable(call)),
        waits=tuple(waits_of(calls, pauses, pings, now) if whole else _pauses_of_foreign(calls)),
        failed=tuple(ping.at for ping in pings if ping.status != "done"),
        one_shot=whole and not pauses,
        waited=whole,
        blocks=whole,
    )


def _is_usable(call: CallRow) -> bool:
    implausible = call.verdict is not None and call.verdict.cause is Cause.IMPLAUSIBLE
    return bool(call.usage.input_total) and not implausible


def _own(ledger: Ledger, calls: Sequence[CallRow]) -> list[Billed]:
    nodes: dict[int, list[Prompt]] = {}
    markers = ledger.markers(calls[0].session) if calls else {}
    found = []
    for call in calls:
        if call.epoch not in nodes:
            nodes[call.epoch] = _nodes(ledger.prompt(call.session, epoch=call.epoch))
        aside = call.purpose != "turn"
        prompt = nodes[call.epoch][call.blocks - 1 if aside else call.blocks]
        if aside:
            prompt = prompt.append(instruction_block())
        scope = Scope(call.endpoint or "", call.model, call.effort)
        kind: Kind = "aside" if aside else "call"
        found.append(
            Billed(
                kind, call.started, prompt, call.epoch, scope, call.dialect, markers[call.id], call.usage, call.policy
            )
        )
    return found


def _nodes(prompt: Prompt) -> list[Prompt]:
    """The prefixes by their length."""
    nodes: list[Prompt] = []
    node: Prompt | None = prompt
    while node is not None:
        nodes.append(node)
        node = node.parent
    return nodes[::-1]


def _foreign(calls: Sequence[CallRow]) -> list[Billed]:
    """Marked as agents do it: at the head, where the last request ended, and at the end."""
    found: list[Billed] = []
    for call, (prompt, epoch) in zip(calls, prompts([call.usage for call in calls]), strict=True):
        last = found[-1].prompt.length if found and found[-1].epoch == epoch else 0
        ends = sorted({prompt.head(Layer.PROJECT).length, min(last, prompt.length), prompt.length} - {0})
        ttl = _ttl(call.usage) or (found[-1].markers[-1].ttl if found else "short")
        scope = Scope(call.endpoint or "", call.model, call.effort)
        marks = tuple(Marker(end, ttl) for end in ends)
        found.append(Billed("call", call.started, prompt, epoch, scope, call.dialect, marks, call.usage))
    return found


def _ttl(usage: Usage) -> Ttl | None:
    """For how long most of it was written."""
    if not usage.cache_write:
        return None
    return "long" if (usage.cache_write_long or 0) * 2 > usage.cache_write else "short"


def _pings(
    ledger: Ledger, session: str, pings: Sequence[Ping], calls: Sequence[Billed]
) -> list[tuple[Billed, Decimal | None]]:
    """Those that were answered, each with its price."""
    nodes: dict[str, Prompt] = {}
    for epoch in sorted({call.epoch for call in calls} | {0}):
        nodes |= {node.digest: node for node in _nodes(ledger.prompt(session, epoch=epoch))}
    found = []
    for ping in pings:
        node = nodes.get(ping.prompt)
        if ping.status != "done" or node is None or not ping.usage.input_total:
            continue
        ahead = ping.activity == "prewarm"
        of = _call_of(ping, calls, ahead=ahead)
        if of is None:
            continue
        kind: Kind = "prewarm" if ahead else "ping"
        marks = tuple(mark for mark in of.markers if mark.blocks <= node.length)
        markers = _head_markers(node, ping.usage) if ahead else marks
        scope = Scope(ping.endpoint, ping.model, of.scope.effort)
        billed = Billed(kind, ping.at, node, of.epoch, scope, of.dialect, markers, ping.usage, of.policy)
        found.append((billed, ping.cost_usd))
    return found


def _call_of(ping: Ping, calls: Sequence[Billed], *, ahead: bool) -> Billed | None:
    """The call that a ping repeats, or one that it goes `ahead` of."""
    turns = [call for call in calls if call.kind == "call"]
    before = [call for call in turns if call.at <= ping.at]
    after = [call for call in turns if call.at >= ping.at]
    found = (after[:1] or before[-1:]) if ahead else (before[-1:] or after[:1])
    return found[0] if found else None


def _head_markers(head: Prompt, usage: Usage) -> tuple[Marker, ...]:
    """Where a pre-warm was marked: at the ends of SYSTEM and of PROJECT."""
    written, long = usage.cache_write or 0, usage.cache_write_long or 0
    system: Ttl = "long" if long else "short"
    project: Ttl = "long" if long and long == written else "short"
    ends = {head.head(Layer.SYSTEM).length: system, head.length: project}
    return tuple(Marker(blocks, ttl) for blocks, ttl in sorted(ends.items()) if blocks)


def waits_of(calls: Sequence[CallRow], pauses: Sequence[Pause], pings: Sequence[Ping], now: float) -> list[Wait]:
    """Between the requests of a session of ours, in order: for tools within a turn, and for the person.

    Of the last wait of a program that was closed nothing is kept but its pings: until the last of them it was waiting.
    """
    found: list[Wait] = []
    gaps = [(call, later.started) for call, later in pairwise(calls)] + [(call, now) for call in calls[-1:]]
    turns = [call.turn for call in calls[1:]] + [None]
    for (call, end), next_turn in zip(gaps, turns, strict=True):
        start = call.started + (call.duration_s or 0.0)
        at = start
        for pause in pauses:
            began, ended = pause.began, end if pause.ended is None else min(pause.ended, end)
            if began >= end or ended <= start:
                continue
            if call.turn is not None and call.turn == next_turn and at < began:
                found.append(Wait(at, began, start, "tool", "answer"))
            found.append(Wait(max(at, began), ended, began, "idle", pause.after))
            at = ended
        if call.turn is not None and call.turn == next_turn and at < end:
            found.append(Wait(at, end, start, "tool", "answer"))
        elif at == start:
            between = [ping.at for ping in pings if start <= ping.at < end and ping.activity != "prewarm"]
            if between:
                found.append(Wait(start, between[-1] + _AFTERWARDS_S, start, "idle", "answer"))
    return found


def _pauses_of_foreign(calls: Sequence[CallRow]) -> list[Wait]:
    """Another agent is taken to have been open all the time: nobody has noted when it was closed."""
    found = []
    for call, later in pairwise(calls):
        start = call.started + (call.duration_s or 0.0)
        if start < later.started:
            within = call.turn is not None and call.turn == later.turn
            found.append(Wait(start, later.started, start, "tool" if within else "idle", "answer"))
    return found


def unknown_output(recorded: Recorded) -> Mapping[int, CallRow]:
    """Requests, by their place in the record, whose bill is not whole: the reply was cut, and its length not told."""
    return {
        number: call for number, call in enumerate(recorded.of_call) if call is not None and call.usage.output is None
    }
