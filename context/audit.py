"""Audit: a forecast against the bill, and one cause for what was not read (rule R6: every miss has a reason)."""

from dataclasses import dataclass

from context.cache_rules import CacheRules
from context.forecast import Cause, Forecast, granted_short, slack
from context.usage import Usage

_CLOSE_S = 5.0  # our clock and the provider's, and the way there
_ABSURD = 3  # times the forecast: no tokenizer is so far off

# What a provider's own diagnosis means in our words. It names the earliest divergence from the request it was asked to
# compare with (anthropic 2.14.0, types/cache_miss_*.py; openai 3.57.0, types/responses/response.py).
_DIAGNOSES = {
    "model_changed": Cause.MODEL_CHANGED,
    "system_changed": Cause.CHANGED,
    "tools_changed": Cause.CHANGED,
    "messages_changed": Cause.CHANGED,
    "input_changed": Cause.CHANGED,
    "context_compacted": Cause.CHANGED,
    "text_format_changed": Cause.CHANGED,
    "verbosity_changed": Cause.CHANGED,
    "service_tier_changed": Cause.CHANGED,
    "reasoning_effort_changed": Cause.EFFORT_CHANGED,
    "prompt_cache_key_changed": Cause.CHANGED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`cause` of what was not read; NONE when everything was. `foreseen`: the forecast said so before the call.

    `missed`: tokens that were sent before and not read now; None: unknown. `since`: when that came about, seconds since
    the epoch. `disputed`: the provider's own diagnosis says something else.
    """

    cause: Cause
    foreseen: bool
    missed: int | None
    since: float | None = None
    disputed: bool = False


def audit(made: Forecast, usage: Usage, rules: CacheRules, diagnosis: str | None = None) -> Verdict:
    """Compare `made` with the bill. `diagnosis`: the provider's reason for a miss, as it spells it."""
    read, expected = usage.cache_read, made.usage.cache_read
    if rules.kind == "none":
        return Verdict(Cause.NONE, True, None)
    if read is None or expected is None:
        return Verdict(Cause.NOT_REPORTED, True, None)
    if _absurd(made, usage):
        return Verdict(Cause.IMPLAUSIBLE, False, None)
    missed = max(0, max(made.best, expected) - read)
    said = _DIAGNOSES.get(diagnosis or "")
    if read >= expected - slack(expected, rules):
        if granted_short(made, usage):
            return Verdict(Cause.TTL_SHORTENED, False, missed)
        if read > expected + slack(expected, rules):  # kept longer than was promised
            return Verdict(Cause.NONE, False, missed)
        disputed = said is not None and said is not made.cause
        return Verdict(made.cause, True, missed, made.since, disputed)
    ends = made.hit.entry.expires if made.hit else None
    if ends is not None and ends - made.now <= _CLOSE_S:
        return Verdict(Cause.EXPIRED, False, missed, ends)
    if said is not None:
        return Verdict(said, False, missed)
    return Verdict(Cause.EVICTED, False, missed)


def _absurd(made: Forecast, usage: Usage) -> bool:
    """Counters that cannot be true, whatever the tokenizer: they would poison what is learned from them."""
    total = usage.input_total
    if total is None:
        return False
    write_long = usage.cache_write_long or 0
    return (
        total > made.total * _ABSURD + 1000
        or total * _ABSURD + 1000 < made.total
        or (usage.cache_write is not None and write_long > usage.cache_write)
    )
