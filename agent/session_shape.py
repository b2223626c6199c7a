"""A recorded session as `context.replay` wants it: when each request was sent, and what was waited for in between."""

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import cycle, groupby, pairwise

from agent.ledger_rows import CallRow
from agent.pause_record import Wait
from context.pauses import After
from context.replay import CallShape, SessionShape, TurnShape


def session_shape(
    calls: Sequence[CallRow], waits: Sequence[Wait], head: int, gaps: Sequence[float] | None = None
) -> SessionShape:
    """The shape of a session of at least one of `calls`, in order, each with known input.

    `head`: tokens of SYSTEM and PROJECT. `gaps`: seconds between turns in place of the real ones; from the beginning
    again where there are more turns. A question that was asked within a turn counts as a tool that ran.
    """
    turns = [list(turn) for _, turn in groupby(calls, key=lambda call: call.turn)]
    ends = [turn[-1].started + (turn[-1].duration_s or 0.0) for turn in turns]
    real = [max(0.0, later[0].started - end) for end, (_, later) in zip(ends, pairwise(turns), strict=False)]
    pauses = real if gaps is None else [gap for gap, _ in zip(cycle(gaps), real, strict=False)]
    shapes = []
    begins = [*(turn[0].started for turn in turns[1:]), math.inf]
    for turn, end, pause, next_turn in zip(turns, ends, [*pauses, None], begins, strict=True):
        between = (wait.after for wait in waits if turn[-1].started <= wait.began < next_turn)
        after: After = next(between, "answer")
        shapes.append(
            TurnShape(
                tuple(
                    CallShape(call.started - turn[0].started, call.usage.input_total or 0, call.usage.output or 0)
                    for call in turn
                ),
                end - turn[0].started,
                pause,
                after,
                datetime.fromtimestamp(end).astimezone().hour,
            )
        )
    left_waiting = bool(waits) and waits[-1].ended is None
    one_shot = not waits and gaps is None
    return SessionShape(head, tuple(shapes), one_shot, closed=None if left_waiting else 0.0)
