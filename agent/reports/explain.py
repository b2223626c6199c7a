"""`agent cache explain`: for each call what was forecast, what was billed, and why they or two requests differ."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.ledger import Ledger
from agent.ledger_rows import CallRow, SessionRow
from agent.reports.console import report_console
from agent.reports.totals import money, tokens
from backends.base import Usage
from context.block import Layer
from context.explain import Difference, first_difference, layer_read, sentence
from context.forecast import Cause


@dataclass(frozen=True, slots=True)
class Explanation:
    """One call. `baseline`: the call that it is compared with; `difference`: where their prompts part, if they do.

    `read_to`: the layer at whose end the provider stopped reading, where it missed something.
    """

    call: CallRow
    baseline: CallRow | None
    difference: Difference | None
    read_to: Layer | None = None

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/cost.md. Unknown is null."""
        call, expected, verdict = self.call, self.call.forecast, self.call.verdict
        return {
            "call": call.number,
            "model": call.model,
            "endpoint": call.endpoint,
            "effort": call.effort,
            "started": call.started,
            "status": call.status,
            "forecast": _counters(expected.usage) | {"usd": _text(expected.usd)} if expected else None,
            "billed": _counters(call.usage) | {"usd": _text(call.cost_usd)},
            "verdict": asdict(verdict) if verdict else None,
            "diagnosis": call.diagnosis,
            "baseline": {"session": self.baseline.session, "call": self.baseline.number} if self.baseline else None,
            "difference": _difference_json(self.difference) if self.difference else None,
            "read_to": self.read_to.value if self.read_to else None,
        }


def explain(ledger: Ledger, session: SessionRow, number: int | None) -> list[Explanation]:
    """The calls of a session, or the one of that number (then a list of one, or of none)."""
    calls = [call for call in ledger.calls(session.id) if number is None or call.number == number]
    return [_explain(ledger, call) for call in calls]


def _explain(ledger: Ledger, call: CallRow) -> Explanation:
    baseline = ledger.call(call.baseline) if call.baseline is not None else None
    difference = None
    if baseline is not None and call.verdict is not None and call.verdict.cause is Cause.CHANGED:
        earlier = list(ledger.prompt(baseline.session, baseline.blocks, baseline.epoch))
        later = list(ledger.prompt(call.session, call.blocks, call.epoch))
        difference = first_difference(earlier, later, call.dialect)
    read_to = None
    if call.verdict is not None and call.verdict.missed and call.usage.cache_read:
        sent = ledger.prompt(call.session, call.blocks, call.epoch)
        read_to = layer_read(sent, call.usage, call.dialect)
    return Explanation(call, baseline, difference, read_to)


def print_explanations(session: SessionRow, explanations: list[Explanation]) -> None:
    """As text on standard output."""
    console = report_console()
    console.print(f"Session {session.id} · {session.title}", markup=False)
    for explanation in explanations:
        console.print()
        _print(explanation)


def _print(explanation: Explanation) -> None:
    console, call = report_console(), explanation.call
    effort = f" · effort {call.effort}" if call.effort else ""
    status = "" if call.status == "done" else f" · {call.status}"
    console.print(
        f"call {call.number} · {call.model}{effort} · {_clock(call.started)}{status}", style="bold", markup=False
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for name in ("fresh", "read", "write", "of it long", "input cost"):
        table.add_column(name, justify="right")
    if call.forecast is not None:
        table.add_row("forecast", *_row(call.forecast.usage), money(call.forecast.usd))
    table.add_row("billed", *_row(call.usage), f"{money(call.cost_usd)} with output")
    console.print(table)
    console.print(_verdict(call), markup=False)
    if explanation.read_to is not None:
        both = "SYSTEM and PROJECT were" if explanation.read_to is Layer.PROJECT else "SYSTEM was"
        console.print(f"Only {both} read.", markup=False)
    if call.diagnosis:
        console.print(f"The provider's own diagnosis: {call.diagnosis}.", markup=False)
    if explanation.difference is not None:
        _print_difference(explanation)


def _verdict(call: CallRow) -> str:
    verdict = call.verdict
    if verdict is None and call.forecast is None:
        return "Made by a release that did not forecast."
    if verdict is None:
        return "Nothing was billed, so there is nothing to compare."
    if verdict.cause is Cause.NONE and verdict.missed is None:
        return "A local model: nothing is billed, and what was read is what the engine reused."
    if verdict.cause is Cause.NONE and not verdict.missed:
        return "As expected: everything that had been sent before was read from the cache."
    if verdict.cause is Cause.NOT_REPORTED:
        said = sentence(verdict.cause)
        return f"{said[0].upper()}{said[1:]}."
    when = f" at {_clock(verdict.since)}" if verdict.since is not None else ""
    missed = f"{tokens(verdict.missed)} tokens were not read: " if verdict.missed else ""
    foreseen = "The forecast said so." if verdict.foreseen else "The forecast did not say so."
    disputed = " The provider says something else." if verdict.disputed else ""
    said = sentence(verdict.cause)
    return f"{missed}{said if missed else said[0].upper() + said[1:]}{when}. {foreseen}{disputed}"


def _print_difference(explanation: Explanation) -> None:
    found, baseline = explanation.difference, explanation.baseline
    if found is None or baseline is None:
        return
    console = report_console()
    where = f"call {baseline.number} of {baseline.session} ({_clock(baseline.started)})"
    console.print(
        f"It parts from {where} in layer {found.layer.value.upper()}, block {found.block + 1}: {found.place}, "
        f"byte {found.byte}.",
        markup=False,
    )
    for name, data in (("before", found.before), ("after", found.after)):
        console.print(Text(f"  {name:<7}") + _marked(data, found))


def _marked(data: bytes | None, found: Difference) -> Text:
    """The neighbourhood with the first differing byte marked."""
    if data is None:
        return Text("(not there)", style="dim")
    at = min(found.byte, found.reach)
    shown = Text()
    for piece, style in ((data[:at], ""), (data[at : at + 1], "reverse"), (data[at + 1 :], "")):
        shown.append(repr(piece.decode(errors="backslashreplace"))[1:-1], style=style)
    return shown


def _row(usage: Usage) -> list[str]:
    return [tokens(count) for count in (usage.fresh, usage.cache_read, usage.cache_write, usage.cache_write_long)]


def _counters(usage: Usage) -> dict[str, int | None]:
    return {
        "fresh": usage.fresh,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "cache_write_long": usage.cache_write_long,
    }


def _difference_json(found: Difference) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode(errors="backslashreplace")

    return {
        "layer": found.layer.value,
        "block": found.block,
        "place": found.place,
        "byte": found.byte,
        "before": text(found.before),
        "after": text(found.after),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%H:%M:%S}"
