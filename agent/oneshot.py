"""`agent run`: one command in the current directory, from settings to exit code."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

from agent.bill import Bill
from agent.config import Folders, Settings
from agent.errors import FAILED, INTERRUPTED, LIMIT, USAGE, UserError
from agent.events import TurnEnd
from agent.ledger import Ledger
from agent.opening import Surroundings, Task, open_conversation
from agent.redact import Redactor
from context.names import show_name

EXIT_CODES: Final = {
    TurnEnd.DONE: 0,
    TurnEnd.FAILED: FAILED,
    TurnEnd.STUCK: FAILED,
    TurnEnd.LIMIT: LIMIT,
    TurnEnd.INTERRUPTED: INTERRUPTED,
}


async def run_once(task: Task, settings: Settings, folders: Folders, around: Surroundings) -> int:
    """Run `task` and return the exit code. Raises UserError and BackendError for what cannot even begin."""
    if not task.command.strip():
        raise UserError('The prompt is empty. Nothing was sent. Say what to do: agent run "…"', USAGE)
    task = replace(task, command=Redactor(around.keyed_env)(task.command), one_shot=True)
    async with open_conversation(task, settings, folders, around) as conversation:
        try:
            finished = await conversation.turn(task.command)
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
    task = Task("", directory, again=session is None, session=session, one_shot=True)
    async with open_conversation(task, replace(settings, compact="auto"), folders, around) as conversation:
        try:
            return 0 if await conversation.compact(Bill(settings.max_cost)) else FAILED
        except asyncio.CancelledError:
            return INTERRUPTED
