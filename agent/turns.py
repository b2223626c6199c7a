"""The turns of a session, as a person picks one from a list or forks at it."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING

from agent.ledger_rows import CallRow
from agent.reports.totals import total_of
from context.block import Block, Text
from context.fold import is_command, is_compacted, is_notice

if TYPE_CHECKING:
    from agent.ledger import Ledger
    from agent.ledger_rows import SessionRow


@dataclass(frozen=True, slots=True)
class Turn:
    """`command`: the first line of what was said. `started`: seconds since the epoch. `cost_usd` None: unknown.

    It ran in `session` (a parent of the one that was asked for, when that was forked later), and ends with the first
    `end` blocks of the prompt of that session's `epoch`. `whole`: the prompt ends there.
    """

    number: int
    command: str
    started: float
    cost_usd: Decimal | None
    session: str
    epoch: int
    end: int
    whole: bool


def turns(ledger: "Ledger", session_id: str) -> list[Turn]:
    """All turns that the session's prompt goes back to, in order, those of its parents first.

    A turn that never came to a request is none. Raises LedgerError.
    """
    row = ledger.session(session_id)
    return [] if row is None else _turns(ledger, row)


def _turns(ledger: "Ledger", row: "SessionRow") -> list[Turn]:
    calls = [call for call in ledger.calls(row.id) if call.turn is not None]
    prompts = {epoch: tuple(ledger.prompt(row.id, epoch=epoch)) for epoch in {call.epoch for call in calls}}
    own = [
        _turn(row.id, number or 0, list(made), prompts) for number, made in groupby(calls, key=lambda call: call.turn)
    ]
    before = _inherited(ledger, row)
    if own and before and own[0].number <= before[-1].number:  # of a release that counted anew in a fork
        return own
    return before + own


def _inherited(ledger: "Ledger", row: "SessionRow") -> list[Turn]:
    parent = ledger.session(row.parent) if row.parent is not None else None
    if parent is None:
        return []
    limit = (row.forked_epoch or 0, row.forked_at or 0)
    return [turn for turn in _turns(ledger, parent) if (turn.epoch, turn.end) <= limit]


def _turn(session: str, number: int, calls: Sequence[CallRow], prompts: dict[int, tuple[Block, ...]]) -> Turn:
    first, last = calls[0], calls[-1]
    command = next((block for block in reversed(prompts[first.epoch][: first.blocks]) if is_command(block)), None)
    blocks = prompts[last.epoch]
    end = next((at for at in range(last.blocks, len(blocks)) if is_command(blocks[at])), len(blocks))
    return Turn(
        *(number, first_line(said(command)) if command else "", first.started, total_of(calls).cost_usd),
        *(session, last.epoch, end, end == len(blocks)),
    )


def message(ledger: "Ledger", turn: Turn) -> str:
    """All that was said to begin a turn. Raises LedgerError."""
    blocks = tuple(ledger.prompt(turn.session, blocks=turn.end, epoch=turn.epoch))
    return next((said(block) for block in reversed(blocks) if is_command(block)), turn.command)


def said(block: Block) -> str:
    """What a person said in a block, without the notices ahead of it."""
    parts = (part for part in block.parts if isinstance(part, Text) and not is_notice(part) and not is_compacted(part))
    return "\n".join(part.text for part in parts)


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
