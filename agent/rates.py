"""Prices per token of each counter, by which a bill is split and compared with other ones."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from agent.backend_choice import pricing
from agent.bill import Pricing
from agent.cost_record import LENGTHS
from backends.base import Usage
from backends.catalog import Catalog, CatalogError

_MILLION = 1_000_000
_A_WEEKDAY = 1_796_083_200  # Tuesday, 1 December 2026


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per token; None: not known, or nothing is charged for it."""

    fresh: Decimal | None
    cache_read: Decimal | None
    write_short: Decimal | None
    write_long: Decimal | None
    output: Decimal | None


class RateBook:
    """Looks up each model's prices once for a day (an hour, where they depend on it), a band of lengths and a tier."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pricing: dict[str, Pricing | None] = {}
        self._by_hour: dict[str, bool] = {}
        self._known: dict[tuple[str, int, int, str | None], Rates | None] = {}
        self._same: dict[tuple[str, Decimal, int, str | None], Rates | None] = {}

    def of(self, model: str, at: float, tokens: int, tier: str | None = None) -> Rates | None:
        """The prices of a call on `model` that began at `at` (seconds since the epoch), `tokens` of input, served as
        `tier` (as in `Usage`). None: the catalogue does not know the model.
        """
        step_s = 3_600 if self.by_hour(model) else 86_400
        band = sum(tokens > length for length in LENGTHS)
        key = (model, int(at // step_s), band, tier)
        if key not in self._known:
            probe = self._probe(model, at, tokens and max(LENGTHS[band - 1] + 1 if band else 1, 10_000), tier)
            if probe is None:
                self._known[key] = self._look_up(model, at, tokens, tier)
            else:  # one price for a bit of everything tells whether they are those of another day
                if (model, probe, band, tier) not in self._same:
                    self._same[model, probe, band, tier] = self._look_up(model, at, tokens, tier)
                self._known[key] = self._same[model, probe, band, tier]
        return self._known[key]

    def by_hour(self, model: str) -> bool:
        """Whether its prices change within a day."""
        if model not in self._by_hour:
            self._by_hour[model] = (
                len({self._probe(model, _A_WEEKDAY + 3_600 * hour, 10_000) for hour in range(24)}) > 1
            )
        return self._by_hour[model]

    def _probe(self, model: str, at: float, tokens: int, tier: str | None = None) -> Decimal | None:
        priced = self._priced(model)
        fresh, read = tokens // 7, tokens // 5
        usage = Usage(fresh, read, tokens - fresh - read, 0, 1_009, 0, tier)
        return None if priced is None else priced(usage, datetime.fromtimestamp(at, UTC))[0]

    def _priced(self, model: str) -> Pricing | None:
        if model not in self._pricing:
            try:
                self._pricing[model] = pricing(self._catalog.find(model))
            except CatalogError:
                self._pricing[model] = None
        return self._pricing[model]

    def _look_up(self, model: str, at: float, tokens: int, tier: str | None) -> Rates | None:
        priced = self._priced(model)
        if priced is None:
            return None
        when = datetime.fromtimestamp(at, UTC)
        size = max(tokens, 1)  # prices jump with the length of a request: it is one of this length that is asked about

        def each(usage: Usage) -> Decimal | None:
            usd = priced(replace(usage, tier=tier), when)[0]
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
