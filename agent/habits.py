"""What the ledger teaches of a person's ways of working."""

from itertools import pairwise
from typing import Final

from agent.ledger import Ledger
from context.cachemodel import Scope
from context.habits import Habits
from context.pauses import Pauses

_REMEMBERED_S: Final = 14 * 86_400.0  # how far back uses of a cached head are looked for


def habits(ledger: Ledger, scope: Scope, directory: str, now: float) -> Habits:
    """As they were known at `now` (seconds since the epoch), for sessions of `directory` in `scope`."""

    def gaps(of: str | None) -> tuple[float, ...]:
        uses = ledger.caches.uses(scope.endpoint, scope.model, now - _REMEMBERED_S, now, of)
        return tuple(later - earlier for earlier, later in pairwise(uses))

    pauses = Pauses.learned(ledger.pauses.seen(now))
    return Habits(pauses, tuple(ledger.pauses.turns(now)), gaps(None), gaps(directory))
