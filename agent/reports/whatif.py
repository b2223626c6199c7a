"""`agent cost --what-if`: a session under other policies, on other models, and without its largest tool outputs."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Final

from agent.backend_choice import find_model, pricing
from agent.bill import Pricing
from agent.config import Settings
from agent.errors import USAGE, UserError
from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.reports.policies import AUTO, NAMED, Deciding, Known, Policy, can_ping, policy_of
from agent.reports.recorded import Recorded, recorded
from agent.reports.totals import Totals, money
from backends.catalog import DEFAULT_ANTHROPIC, DEFAULT_OPENAI, Catalog, ModelInfo
from backends.llama.models import is_local
from context.account import Event
from context.outputs import Output, outputs_of, without
from context.whatif import Made, run

_OUTPUTS: Final = 3  # that are left out when nobody says how many
_NUMBER: Final = re.compile(r"\d+")
_SAME: Final = (
    "The same requests at the same times. A policy decides what is marked, for how long, and when a ping goes out; "
    "that a cold cache lets old outputs be folded is not counted."
)
_FOREIGN: Final = (
    "What this agent has sent is not known, only its counters and times: each request is taken to go on from the one "
    "before, and the program to have been open in every pause."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One way in which the session could have been billed. `group`: policy, model or outputs. `name` as it is typed for
    `--against`, `label` for people. `usd` None: a price is not known. `calls`: their counters; `pings` are beside them.
    `recomputed`: requests that are billed otherwise than they were, pings that are not made any more included.
    """

    group: str
    name: str
    label: str
    usd: Decimal | None
    calls: Totals
    pings: int
    pings_usd: Decimal | None
    recomputed: int
    cheapest: bool = False


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`paid_usd`: the ledger's own sum; None: a price is not known. `left_out`: calls whose bill is not known, in no
    row. `outputs`: what the rows of that group leave out, the largest first. `rests_on`: what must be known to judge
    the table, in sentences.
    """

    session: str
    title: str
    models: tuple[str, ...]
    paid_usd: Decimal | None
    paid: Totals
    left_out: int
    rows: tuple[Row, ...]
    outputs: tuple[Output, ...]
    rests_on: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/cost.md. Unknown is null; money is a decimal number of USD as a string."""
        return {
            "session": self.session,
            "title": self.title,
            "models": list(self.models),
            "paid_usd": _text(self.paid_usd),
            "left_out": self.left_out,
            "rows": [_row_json(row, self.paid_usd) for row in self.rows],
            "outputs": [
                {"name": output.name, "tool": output.tool, "tokens": output.tokens, "requests": output.requests}
                for output in self.outputs
            ],
            "rests_on": list(self.rests_on),
        }


def known_models(catalog: Catalog) -> Known:
    """Rules and prices of the models of a catalogue, each looked up once."""
    found: dict[str, tuple[ModelInfo, Pricing] | None] = {}

    def of(name: str) -> tuple[ModelInfo, Pricing] | None:
        if name not in found:
            try:
                info = find_model(name, catalog)
            except UserError:
                found[name] = None
            else:
                found[name] = info, pricing(info)
        return found[name]

    return of


def what_if(
    ledger: Ledger,
    session: SessionRow,
    catalog: Catalog,
    settings: Settings,
    now: float,
    against: Sequence[str] = (),
) -> WhatIf:
    """`session` in other ways, and in those of `against`: policies, models, and `outputs:N`.

    `now`: seconds since the epoch. Raises UserError for what cannot be compared, and LedgerError.
    """
    found = recorded(ledger, session, catalog, now)
    if not found.record.requests:
        raise UserError(f"Nothing of session {session.id} was billed that could be billed otherwise.", USAGE)
    known = known_models(catalog)
    table = _Table(ledger, found, Deciding(ledger, found, settings, known))
    policies, models, outputs = _asked(against, catalog)
    usual = table.policies()
    for policy in [*usual, *(policy for policy in policies if policy not in usual)]:
        table.add_policy(policy)
    named = {info.name: info for info in models}
    others = {name: about[0] for name in _others(found, catalog) if (about := known(name)) is not None}
    for name, info in {**others, **named}.items():
        table.add_model(info, asked=name in named)
    for count in outputs or [_OUTPUTS]:
        table.add_without(count)
    return table.report()


def _asked(against: Sequence[str], catalog: Catalog) -> tuple[list[Policy], list[ModelInfo], list[int]]:
    policies: list[Policy] = []
    models: list[ModelInfo] = []
    outputs: list[int] = []
    for name in against:
        kind, _, count = name.partition(":")
        if (policy := policy_of(name)) is not None:
            policies.append(policy)
        elif kind == "outputs" and count.isdecimal() and int(count):
            outputs.append(int(count))
        elif "/" in name or name.startswith("local:"):
            models.append(find_model(name, catalog))
        else:
            names = ", ".join(each.name for each in NAMED)
            raise UserError(
                f"Nothing to compare with is called {name!r}: a policy ({names}, fixed:MINUTES), a model "
                "(provider/model), or outputs:N for a session without its N largest tool outputs.",
                USAGE,
            )
    return policies, models, outputs


def _others(found: Recorded, catalog: Catalog) -> list[str]:
    """The newest model of each family of the providers that were called, and those that are taken by default."""
    called = {request.scope.model for request in found.record.requests}
    providers = {name.partition("/")[0] for name in called}
    newest: dict[str, str] = {}
    for name in catalog.names():
        if name.partition("/")[0] in providers and not is_local(name):
            family = _NUMBER.sub("", name).strip("-.")
            newest[family] = max(name, newest.get(family, name), key=_version)
    return [name for name in dict.fromkeys([*newest.values(), DEFAULT_ANTHROPIC, DEFAULT_OPENAI]) if name not in called]


def _version(name: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(name)))


class _Table:
    """Rows as they are added."""

    def __init__(self, ledger: Ledger, found: Recorded, deciding: Deciding) -> None:
        self._ledger, self._found, self._deciding = ledger, found, deciding
        self._rows: list[Row] = []
        self._factors: dict[str, float | None] = {}  # by model; None: not learned
        self._outputs: list[Output] | None = None
        self._priced: dict[int, Decimal | None] = {}
        self._models = tuple(dict.fromkeys(request.scope.model for request in found.record.requests))
        self._untold = {
            number for number, call in enumerate(found.of_call) if call is not None and call.usage.output is None
        }

    def policies(self) -> list[Policy]:
        """Those that differ on the models that were called."""
        infos = [known[0] for name in self._models if (known := self._deciding.known(name)) is not None]
        wanted = [policy for policy in NAMED if not policy.cached]
        if any(info.cache != "none" for info in infos):
            wanted += [policy for policy in NAMED if policy.ttl == "short" and policy.cached]
        if any(info.cache_rules.ttl_long for info in infos):
            wanted += [policy for policy in NAMED if policy.ttl == "long"]
        if not any(can_ping(info) for info in infos):
            wanted = [policy for policy in wanted if policy.keepalive == "off"]
        elif infos:
            wanted.append(AUTO)
        return [] if all(is_local(name) for name in self._models) else wanted

    def add_policy(self, policy: Policy) -> None:
        rules = self._found.record.rules_of(self._models[-1])
        made = run(self._found.record, self._deciding.way(policy), self._found.waits, self._found.failed)
        self._rows.append(self._row("policy", policy.name, policy.in_words(rules), made))

    def add_model(self, info: ModelInfo, *, asked: bool) -> None:
        """`asked`: somebody named it; else it is left out where its price is not known or the session does not fit."""
        factors = {model: self._factor(model, info.name) for model in self._models}
        way = self._deciding.way(AUTO, info.name, {model: factor or 1.0 for model, factor in factors.items()})
        made = run(self._found.record, way, self._found.waits)
        fits = all((each.usage.input_total or 0) <= info.context for each in made)
        row = self._row("model", info.name, info.name if fits else f"{info.name} (does not fit its window)", made)
        if asked or (row.usd is not None and fits):
            self._factors[info.name] = None if None in factors.values() else max(f or 1.0 for f in factors.values())
            self._rows.append(row)

    def add_without(self, count: int) -> None:
        """The session without its `count` largest tool outputs."""
        if self._outputs is None:
            self._outputs = outputs_of(self._found.record)
        if self._outputs:
            gone = self._outputs[:count]
            label = (
                f"without its {len(gone)} largest tool outputs" if len(gone) > 1 else "without its largest tool output"
            )
            self._rows.append(self._row("outputs", f"outputs:{count}", label, self._made_without(gone)))

    def report(self) -> WhatIf:
        found, paid = self._found, self._paid()
        of = max((int(row.name.partition(":")[2]) for row in self._rows if row.group == "outputs"), default=0)
        return WhatIf(
            session=found.session.id,
            title=found.session.title,
            models=self._models,
            paid_usd=paid.usd,
            paid=paid.calls,
            left_out=len(self._untold) + sum(call.cost_usd is None for call in found.apart),
            rows=tuple(_marked(self._rows)),
            outputs=tuple((self._outputs or [])[:of]),
            rests_on=tuple(self._rests_on()),
        )

    def _paid(self) -> Row:
        requests = enumerate(self._found.record.requests)
        made = [Made(each.kind, each.at, each.scope.model, each.usage, number, True) for number, each in requests]
        return self._row("paid", "", "", made, today=False)

    def _made_without(self, outputs: Sequence[Output]) -> list[Made]:
        record = self._found.record
        made = []
        for number, request in enumerate(record.requests):
            usage = without(record, number, outputs)
            made.append(Made(request.kind, request.at, request.scope.model, usage, number, usage == request.usage))
        return made

    def _row(self, group: str, name: str, label: str, made: Sequence[Made], *, today: bool = True) -> Row:
        """`today`: what the ledger has no price of is priced by today's tables."""
        found = self._found
        usd: Decimal | None = sum((call.cost_usd for call in found.apart if call.cost_usd is not None), Decimal(0))
        pings_usd: Decimal | None = Decimal(0)
        calls, pings = Totals(), 0
        for each in made:
            price = self._price(each, today=today)
            if each.kind in ("call", "aside"):
                calls = calls.plus(each.usage, price)
            else:
                pings += 1
                pings_usd = None if pings_usd is None or price is None else pings_usd + price
            if each.request not in self._untold:
                usd = None if usd is None or price is None else usd + price
        gone = len(found.record.requests) - sum(each.request is not None for each in made)
        recomputed = gone + sum(not each.kept for each in made)
        return Row(group, name, label, usd, calls, pings, pings_usd, recomputed)

    def _price(self, made: Made, *, today: bool) -> Decimal | None:
        """A bill that holds is what it was, whatever the tables say today. One that changes, changes in proportion."""
        known = None if made.request is None else self._found.costs[made.request]
        if made.kept and (known is not None or not today):
            return known
        price = self._deciding.price(made.model, made.usage, made.at)
        if price is None or known is None or made.request is None:
            return price
        if self._found.record.requests[made.request].scope.model != made.model:
            return price
        then = self._today(made.request)
        return price if then is None or then == known or not then else known * price / then

    def _today(self, number: int) -> Decimal | None:
        """What the recorded request of that number costs by today's tables."""
        if number not in self._priced:
            request = self._found.record.requests[number]
            self._priced[number] = self._deciding.price(request.scope.model, request.usage, request.at)
        return self._priced[number]

    def _factor(self, model: str, other: str) -> float | None:
        """Tokens of `other` for each of `model`'s, as far as bills have taught them; None: not known."""
        if model == other:
            return 1.0
        scales = [self._ledger.scale(name) for name in (other, model)]
        theirs, ours = (None if scale is None or not scale.samples else scale.factor for scale in scales)
        return None if theirs is None or not ours else theirs / ours

    def _rests_on(self) -> list[str]:
        found, settings = self._found, self._deciding.settings
        record, notes = found.record, [_SAME]
        if not found.blocks:
            notes.append(_FOREIGN)
        events = sum(fact.event != Event() for fact in record.facts)
        if events:
            notes.append(
                f"{events} requests found more or less in the cache than the rules say: so they do under every policy."
            )
        if any(row.pings for row in self._rows):
            notes.append(
                f"Pings keep to the limits in force now: {settings.keepalive_minutes} minutes for a wait, "
                f"{money(settings.keepalive_session)} a session, {money(settings.keepalive_day)} a day."
            )
        if self._factors:
            told = ", ".join(
                f"{name} takes {factor:.2f} for one" for name, factor in self._factors.items() if factor is not None
            )
            rest = (
                "the other models' tokenizers are not known: counts are taken over" if told else "counts are taken over"
            )
            all_known = None not in self._factors.values()
            notes.append(
                "On another model: its prices and cache rules from the catalogue, policy auto, replies of the same "
                f"length. Tokens: {'; '.join(part for part in (told, '' if all_known else rest) if part)}."
            )
        changed = sum(
            usd is not None and each.kind in ("call", "aside") and self._today(number) not in (None, usd)
            for number, (usd, each) in enumerate(zip(found.costs, record.requests, strict=True))
        )
        if changed:
            notes.append(f"{changed} requests were billed at other prices than today's; what changes is in proportion.")
        if self._outputs:
            notes.append(
                "Without an output: the same calls, each less what it carried of it. What the model would have done "
                "otherwise is not known."
            )
        return notes


def _marked(rows: Sequence[Row]) -> list[Row]:
    """The cheapest of each group with more than one row is marked."""
    found = []
    for row in rows:
        costs = [other.usd for other in rows if other.group == row.group and other.usd is not None]
        found.append(replace(row, cheapest=len(costs) > 1 and row.usd == min(costs)))
    return found


def _row_json(row: Row, paid: Decimal | None) -> dict[str, Any]:
    told = asdict(row)
    calls = told.pop("calls")
    told |= {name: calls[name] for name in ("fresh", "cache_read", "cache_write", "output")}
    difference = None if row.usd is None or paid is None else row.usd - paid
    return told | {
        "usd": _text(row.usd),
        "pings_usd": _text(row.pings_usd),
        "difference_usd": _text(difference),
        "as_it_was": row.recomputed == 0,
    }


def _text(usd: Decimal | None) -> str | None:
    return None if usd is None else str(usd)
