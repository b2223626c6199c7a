"""What the ledger teaches of a person's ways of working."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from agent.ledger import Ledger
from context.cachemodel import Scope
from context.habits import Habits
from context.pauses import Pauses

_REMEMBERED_S: Final = 14 * 86_400.0  # how far back uses of a cached head are looked for


@dataclass(frozen=True, slots=True)
class Otherwise:
    """When a session would have sent requests (seconds since the epoch), in place of when it did."""

    session: str
    uses: Sequence[float]


def habits(ledger: Ledger, scope: Scope, directory: str, now: float, otherwise: Otherwise | None = None) -> Habits:
    """As they were known at `now` (seconds since the epoch), for sessions of `directory` in `scope`."""
    since, but = now - _REMEMBERED_S, None if otherwise is None else otherwise.session

    def gaps(of: str | None) -> tuple[float, ...]:
        uses = ledger.caches.uses(scope.endpoint, scope.model, since, now, of, but)
        if otherwise is not None:
            uses = sorted({*uses, *(at for at in otherwise.uses if since <= at < now)})
        return tuple(later - earlier for earlier, later in pairwise(uses))

    pauses = Pauses.learned(ledger.pauses.seen(now))
    return Habits(pauses, tuple(ledger.pauses.turns(now)), gaps(None), gaps(directory))
