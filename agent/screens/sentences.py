"""What happens beside the reply, in one line each: the same words in the one-shot text and in the chat."""

from datetime import datetime
from typing import Final

from rich.markup import escape

from agent import events
from agent.budgets import WHOSE, exactly
from agent.events import TurnEnd
from agent.reports.totals import Totals, money, percent, tokens
from agent.screens.plain import plain
from context.explain import sentence
from context.forecast import Cause

BEGINS_ANEW: Final = "[dim]The reply begins anew.[/dim]"
_WORTH_TELLING: Final = 1000  # tokens of a miss


def told(event: events.Event) -> str | None:
    """The line for an event, as rich markup; None for one that needs none, or is shown otherwise."""
    line = _line(event)
    return None if line is None else plain(line)


def _line(event: events.Event) -> str | None:
    match event:
        case events.SessionOpened(session, model, mode, directory, resumed, warm, until):
            again = "continues" if resumed else "session"
            kept = f" · {warm:,} tokens warm{clock(until)}" if warm else ""
            return f"[dim]{escape(model)} · mode {mode} · {again} {session}{kept} · {escape(directory)}[/dim]"
        case events.CacheOptionRefused(_, endpoint, option):
            return f"[yellow]{escape(endpoint)} refuses the cache option {option}: it is left out from now on.[/]"
        case events.CacheRenewed("tool" | "rate_limit" | "question", "done", read, cost, until) if read and until:
            return f"[dim]cache kept warm{clock(until)}: {read:,} tokens read, {money(cost)}[/dim]"
        case events.CacheRenewed("prewarm", "done", _, cost, _):
            return f"[dim]cache written ahead of the first turn, {money(cost)}[/dim]"
        case events.KeepaliveStopped("tool" | "rate_limit" | "question", why, lost, _) if why != "off":
            return f"[dim]cache no longer kept warm ({escape(why)}): {lost:,} tokens[/dim]"
        case events.BudgetTold(scope, "warn", spent, limit):
            return f"[yellow]{money(spent)} of the {exactly(limit)} for {WHOSE[scope]} are spent.[/yellow]"
        case events.BudgetTold(scope, "forecast", spent, limit, expected):
            return (
                f"[yellow]The next call's input alone is expected to cost {money(expected)}, more than is left for "
                f"{WHOSE[scope]}: {money(spent)} of {exactly(limit)} are spent.[/yellow]"
            )
        case events.EpochStarted(number, reason, before, after, as_is, anew) if reason != "compacted":
            less = "" if as_is is None or anew is None else f", {money(as_is - anew)} less for what is to come"
            return f"[dim]epoch {number} ({escape(reason)}): {before:,} tokens became {after:,}{less}[/dim]"
        case events.CompactionStarted(before):
            return f"[dim]asking for a summary of {before:,} tokens …[/dim]"
        case events.CompactionFinished("done", _, before, after, cost):
            return f"[dim]compacted: {before:,} tokens became {tokens(after)}, {money(cost)}[/dim]"
        case events.CompactionFinished(_, detail, _, _, _):
            return f"[yellow]Not compacted: {escape(detail or '')}. Nothing was changed.[/yellow]"
        case events.CallFinished():
            return _miss(event)
        case events.Notice(text):
            return f"[yellow]{escape(text)}[/yellow]"
        case events.TurnFinished(TurnEnd.LIMIT, _, str(message)):
            return f"[yellow]{escape(message)}[/yellow]"
        case events.TurnFinished(_, _, str(message)) if message:
            return f"[red]{escape(message)}[/red]"
    return None


def bill(calls: int, totals: Totals, cost: str) -> str:
    """What a turn came to, without markup. `cost`: in words."""
    count = f"{calls} call{'s' if calls != 1 else ''}"
    return (
        f"{count} · {tokens(totals.input_total)} tokens in, {percent(totals.hit_rate)} from cache · "
        f"{tokens(totals.output)} out · {cost}"
    )


def writing(event: events.ToolWriting) -> str:
    """A tool call that is being written, without markup."""
    return f"writing a call of {plain(event.name)}, {event.characters:,} characters"


def clock(seconds: float | None) -> str:
    """ " until" and the local time; empty where there is no clock."""
    return "" if seconds is None else f" until {datetime.fromtimestamp(seconds).astimezone():%H:%M:%S}"


def _miss(event: events.CallFinished) -> str | None:
    verdict = event.verdict
    if verdict is None or verdict.cause in (Cause.NONE, Cause.FIRST, Cause.NOT_REPORTED):
        return None
    if verdict.cause in (Cause.TTL_SHORTENED, Cause.IMPLAUSIBLE) or (verdict.missed or 0) >= _WORTH_TELLING:
        missed = f"{verdict.missed:,} tokens not read: " if verdict.missed else ""
        return f"[yellow]cache: {missed}{escape(sentence(verdict.cause))}[/yellow] [dim]agent cache explain[/dim]"
    return None
