"""The sentence that names the price before a costly step. Pure."""

from decimal import Decimal
from typing import Final, Literal

from agent.reports.totals import money
from backends.base import Usage

WORTH_NAMING: Final = 4_000  # tokens that are not read from the cache; below it no price is named
_CENTS: Final = Decimal("0.10")  # from here on cents are exact enough


def before_turn(expected: Usage, usd: Decimal | None, least: int = WORTH_NAMING) -> str | None:
    """What to say before a turn whose input is `expected` to be billed like this, at `usd` (None: unknown price).

    None: fewer than `least` tokens are sent anew, or there is no saying.
    """
    if expected.fresh is None or expected.cache_write is None:
        return None
    anew, read = expected.fresh + expected.cache_write, expected.cache_read or 0
    if anew < least:
        return None
    begin = "The cache is cold: this turn" if not read else f"Only {read:,} tokens are still cached: this turn"
    return f"{begin} {_writes(expected)} {anew:,} tokens again, {_about(usd)}."


def before_change(what: Literal["model", "effort"], expected: Usage, usd: Decimal | None) -> str | None:
    """The same before another model or effort is chosen. None: it costs nothing worth naming, or there is no saying."""
    if expected.fresh is None or expected.cache_write is None:
        return None
    anew = expected.fresh + expected.cache_write
    if anew < WORTH_NAMING:
        return None
    begin = f"Another {what} has another cache: the next turn"
    return f"{begin} {_writes(expected)} {anew:,} tokens again, {_about(usd)}."


def _writes(expected: Usage) -> str:
    return "writes" if expected.cache_write else "sends"


def _about(usd: Decimal | None) -> str:
    if usd is None:
        return "at an unknown price"
    return f"about ${usd:,.2f}" if usd >= _CENTS else f"about {money(usd)}"
