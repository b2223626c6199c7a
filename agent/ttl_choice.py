"""Chooses the times to live that cache markers ask for, by what the ledger teaches of this person."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from agent.bill import Pricing
from agent.config import Settings
from agent.habits import Otherwise, habits
from agent.ledger import Ledger
from agent.price_levels import prices_at
from context.block import Layer
from context.cache_rules import CacheRules, Ttl
from context.cachemodel import Scope
from context.habits import expected_growth
from context.ttl import Keeping, TailOutlook, TtlChoice, choose_layers

_LAYERS = (Layer.SYSTEM, Layer.PROJECT, Layer.HISTORY)


@dataclass(frozen=True, slots=True)
class TtlChooser:
    """For one session, of `directory`, in one cache. `settings`: cache_ttl and the limits of keepalive. `one_shot`:
    nobody will answer. `otherwise`: when the session would have sent what, if that is not what it did. Raises
    LedgerError.
    """

    ledger: Ledger
    session: str
    directory: str
    scope: Scope
    rules: CacheRules
    pricing: Pricing
    settings: Settings
    one_shot: bool
    otherwise: Callable[[], Otherwise | None] = lambda: None

    def __call__(
        self, system: int, project: int, total: int, warm: Mapping[Layer, Ttl], now: float
    ) -> dict[Layer, TtlChoice]:
        """What a request of `total` tokens, `system` and `project` of them in those layers, is to ask for at `now`.

        `warm`: the layers whose prefix is in the cache, and how long it lives there.
        """
        if self.settings.cache_ttl != "auto":
            return self._set()
        known = habits(self.ledger, self.scope, self.directory, now, self.otherwise())
        read = system + project if Layer.PROJECT in warm else system if Layer.SYSTEM in warm else 0
        outlook = TailOutlook(
            written=total - read,
            prefix=total,
            per_turn=expected_growth(self._growth(now)),
            turns=known.expected_turns,
            hour=datetime.fromtimestamp(now).astimezone().hour,
            one_shot=self.one_shot,
        )
        prices = prices_at(self.pricing, self.rules, total, now)
        return choose_layers((system, project), outlook, known, prices, self.rules, keeping(self.settings), warm)

    def _set(self) -> dict[Layer, TtlChoice]:
        """What the person has set."""
        ttl: Ttl = "long" if self.settings.cache_ttl == "long" else "short"
        choices = dict.fromkeys(_LAYERS, TtlChoice(ttl, f"set by cache_ttl = {ttl}"))
        if self.one_shot and ttl == "long":
            choices[Layer.HISTORY] = TtlChoice("short", "one task: nobody comes back to its tail")
        return choices

    def _growth(self, now: float) -> list[int]:
        """Tokens that each turn of the session had added to the input by `now`."""
        ends: dict[tuple[int, int], int] = {}
        for call in self.ledger.calls(self.session):
            if call.started >= now:
                break
            if call.purpose == "turn" and call.turn is not None and call.usage.input_total is not None:
                ends[call.epoch, call.turn] = call.usage.input_total
        return [
            max(0, after - before)
            for ((epoch, _), before), ((later, _), after) in pairwise(ends.items())
            if epoch == later
        ]


def keeping(settings: Settings) -> Keeping:
    """How the settings let the cache be kept warm."""
    minutes = 0 if settings.keepalive == "off" else settings.keepalive_minutes
    return Keeping(minutes * 60.0, float(settings.keepalive_session))
