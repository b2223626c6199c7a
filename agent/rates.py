"""Prices per token of each counter, by which a bill is split and compared with other ones."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from agent.backend_choice import pricing
from agent.bill import Pricing
from agent.cost_record import LENGTHS
from backends.base import Usage
from backends.catalog import Catalog, CatalogError

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per token; None: not known, or nothing is charged for it."""

    fresh: Decimal | None
    cache_read: Decimal | None
    write_short: Decimal | None
    write_long: Decimal | None
    output: Decimal | None


class RateBook:
    """Looks up each model's prices once for an hour (prices may depend on it) and a band of lengths.

    `by_hour` False: once for a day, for reports over so many calls that hours would take long.
    """

    def __init__(self, catalog: Catalog, *, by_hour: bool = True) -> None:
        self._catalog = catalog
        self._step_s = 3_600 if by_hour else 86_400
        self._pricing: dict[str, Pricing | None] = {}
        self._known: dict[tuple[str, int, int], Rates | None] = {}

    def of(self, model: str, at: float, tokens: int) -> Rates | None:
        """The prices of a call on `model` that began at `at` (seconds since the epoch), `tokens` of input. None: the
        catalogue does not know the model.
        """
        key = (model, int(at // self._step_s), sum(tokens > length for length in LENGTHS))
        if key not in self._known:
            self._known[key] = self._look_up(model, at, tokens)
        return self._known[key]

    def _look_up(self, model: str, at: float, tokens: int) -> Rates | None:
        if model not in self._pricing:
            try:
                self._pricing[model] = pricing(self._catalog.find(model))
            except CatalogError:
                self._pricing[model] = None
        priced = self._pricing[model]
        if priced is None:
            return None
        when = datetime.fromtimestamp(at, UTC)
        size = max(tokens, 1)  # prices jump with the length of a request: it is one of this length that is asked about

        def each(usage: Usage) -> Decimal | None:
            usd = priced(usage, when)[0]
            return None if usd is None else (usd * _MILLION / size).quantize(Decimal("1e-9")) / _MILLION

        fresh = each(Usage(size, 0, 0, 0, 0, 0))
        both = each(Usage(size, 0, 0, 0, size, 0))
        return Rates(
            fresh=fresh,
            cache_read=each(Usage(0, size, 0, 0, 0, 0)),
            write_short=each(Usage(0, 0, size, 0, 0, 0)),
            write_long=each(Usage(0, 0, size, size, 0, 0)),
            output=None if fresh is None or both is None else both - fresh,
        )
