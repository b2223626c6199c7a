"""`agent run`: one command in the current directory, from settings to exit code."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.bill import Bill
from agent.config import Folders, Settings
from agent.conversation import Opening, Surroundings, open_conversation
from agent.errors import FAILED, INTERRUPTED, LIMIT, USAGE, UserError
from agent.events import TurnEnd
from agent.ledger import Ledger
from agent.redact import Redactor
from context.names import show_name

EXIT_CODES: Final = {
    TurnEnd.DONE: 0,
    TurnEnd.FAILED: FAILED,
    TurnEnd.STUCK: FAILED,
    TurnEnd.LIMIT: LIMIT,
    TurnEnd.INTERRUPTED: INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Task:
    """What to do. `session`: the id to go on with; `again`: go on with the last session of the directory. `fork`: in a
    copy of it, so that it stays as it is.
    """

    command: str
    directory: Path
    again: bool = False
    session: str | None = None
    fork: bool = False


async def run_once(task: Task, settings: Settings, folders: Folders, around: Surroundings) -> int:
    """Run `task` and return the exit code. Raises UserError and BackendError for what cannot even begin."""
    if not task.command.strip():
        raise UserError('The prompt is empty. Nothing was sent. Say what to do: agent run "…"', USAGE)
    command = Redactor(around.env)(task.command)
    opening = Opening(task.directory, command, again=task.again, session=task.session, fork=task.fork)
    async with open_conversation(opening, settings, folders, around) as conversation:
        try:
            finished = await conversation.turn(command)
        except asyncio.CancelledError:
            return INTERRUPTED
        return EXIT_CODES[finished.end]


async def compact_once(
    session: str | None, directory: Path, settings: Settings, folders: Folders, around: Surroundings
) -> int:
    """Compact a session (None: the last one of `directory`) and return the exit code. Raises as `run_once` does."""
    if settings.model is None:
        with Ledger.open(folders.ledger) as ledger:
            row = ledger.session(session) if session else ledger.last_used(show_name(str(directory)))
            last = ledger.last_answered(row.id) if row else None
        if last is not None:
            settings = replace(settings, model=last.model)
    opening = Opening(directory, "", again=session is None, session=session)
    async with open_conversation(opening, replace(settings, compact="auto"), folders, around) as conversation:
        try:
            return 0 if await conversation.compact(Bill(settings.max_cost)) else FAILED
        except asyncio.CancelledError:
            return INTERRUPTED
