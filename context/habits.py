"""What is known of a person's ways of working: their pauses, how long their sessions get, how often they come back.

Pure: `agent.ledger` remembers, this says what is to be expected.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from context.pauses import Pauses

_GROWTH: Final = 4_000.0  # tokens added by a turn before any is known [guess]
_GROWTH_WORTH: Final = 2.0  # turns that this counts as
_TURNS: Final = 8.0  # of a session before any is known [guess]
_TURNS_WORTH: Final = 3.0  # sessions that this counts as


@dataclass(frozen=True, slots=True)
class Habits:
    """`turns`: how many each earlier session had. `system_gaps`, `project_gaps`: seconds between two uses of the cached
    SYSTEM (in any repository) and PROJECT (in this one).
    """

    pauses: Pauses = field(default_factory=Pauses.learned)
    turns: Sequence[int] = ()
    system_gaps: Sequence[float] = ()
    project_gaps: Sequence[float] = ()

    @property
    def expected_turns(self) -> float:
        """Turns that a session will have; and as many again, however long it has lasted."""
        return (_TURNS * _TURNS_WORTH + sum(self.turns)) / (_TURNS_WORTH + len(self.turns))


def expected_growth(seen: Sequence[int]) -> float:
    """Tokens that the next turns of a session will add each, from what its turns added so far."""
    return (_GROWTH * _GROWTH_WORTH + sum(seen)) / (_GROWTH_WORTH + len(seen))
