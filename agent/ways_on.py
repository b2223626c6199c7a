"""What a person is told to do when a turn has ended early: in the chat it is something else than for a one-shot."""

from dataclasses import dataclass
from typing import Final

_KEPT: Final = "Everything so far is kept"


@dataclass(frozen=True, slots=True)
class WaysOn:
    """A sentence each. `full`: when the context window is full. `other`: when the model cannot do it. `too_small`: when
    the window cannot even hold the command. `budget`: when that of a `{scope}` (session, day) is spent.
    """

    go_on: str
    full: str
    other: str
    too_small: str
    budget: str


ONE_SHOT: Final = WaysOn(
    f'{_KEPT}: go on with `agent run --continue "…"`.',
    f"{_KEPT}: compact the session (`agent compact`), go on with a model of a larger window (--model), or start a new "
    "session for what is left.",
    f"{_KEPT}: compact the session (`agent compact`), go on with another model (--model), or ask for a smaller step.",
    "It is too small for this command with what goes ahead of it: take a model with a larger one (--model), or, for a "
    "local model, a larger --context.",
    "--max-cost-{scope} USD raises it for one command, `agent config set max_cost_{scope} USD` for good; a local model "
    "costs nothing.",
)
CHAT: Final = WaysOn(
    f"{_KEPT}.",
    f"{_KEPT}: /compact the session, go on with a model of a larger window (/model), or begin a /new session for what "
    "is left.",
    f"{_KEPT}: /compact the session, go on with another model (/model), or ask for a smaller step.",
    "It is too small for this command with what goes ahead of it: take a model with a larger one (/model), or, for a "
    "local model, start again with a larger --context.",
    "/budget {scope} USD raises it for now, `agent config set max_cost_{scope} USD` for good; a local model costs "
    "nothing.",
)
