"""What slash commands work with: the open conversation, its files and its records."""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from rich.text import Text

from agent.backend_choice import find_model, load_catalog, pricing
from agent.chat.front import Choice, Front
from agent.chat.own_commands import OwnCommand, own_commands
from agent.chat.prices import before_change, before_turn
from agent.checkpoints import AFTER, Checkpoints, Restored
from agent.config import Folders, Settings
from agent.conversation import Conversation
from agent.errors import USAGE, UserError
from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.opening import Surroundings, Task, check_price
from agent.reports.cache_status import CacheStatus, cache_status
from agent.reports.sessions import summarise
from agent.reports.totals import money
from agent.screens.diff import show_diff
from agent.screens.plain import plain
from agent.turns import Turn, message, turns
from backends.base import Usage
from context.block import Role
from context.names import show_name

GO_ON_WITH: Final = "Go on with which session?"
_SAID_LINES: Final = 6  # of what was said last, when a session goes on
_REPLY_LINES: Final = 12
_DIFF_LINES: Final = 400


@dataclass(frozen=True, slots=True)
class Opening:
    """Which conversation to open. `first`: sent at once; `edit`: put where the person types; `pick`: the person picks
    the session first.
    """

    task: Task
    settings: Settings
    first: str | None = None
    edit: str | None = None
    pick: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """The person has seen enough."""


class Context:
    """Of one open conversation. `settings` are those in force; a change of mode changes them in place."""

    def __init__(
        self,
        conversation: Conversation,
        opening: Opening,
        front: Front,
        folders: Folders,
        around: Surroundings,
        checkpoints: Checkpoints,
    ) -> None:
        self.conversation = conversation
        self.settings = opening.settings
        self.directory = opening.task.directory
        self.front = front
        self.folders = folders
        self.checkpoints = checkpoints
        self._around = around
        self.notes: list[str] = []  # of shell lines, for the model with the next message

    @property
    def ledger(self) -> Ledger:
        return self.conversation.session.ledger

    def row(self) -> SessionRow:
        """The session's record."""
        row = self.ledger.session(self.conversation.session.id)
        assert row is not None  # it is open
        return row

    def say(self, text: str, style: str = "dim") -> None:
        self.front.write(Text(text, style=style))

    def own(self) -> Mapping[str, OwnCommand]:
        """The person's own commands, as their files are now."""
        return own_commands(self.folders, self.directory)

    # Other conversations

    def same_session(self, settings: Settings) -> Opening:
        if self.conversation.session.is_unused:
            return Opening(Task("", self.directory), settings)
        return Opening(Task("", self.directory, session=self.conversation.session.id), settings)

    def new_session(self) -> Opening:
        return Opening(Task("", self.directory), self.settings)

    def other_session(self, session: str) -> Opening:
        if self.ledger.session(session) is None:
            raise UserError(f"There is no session {session!r}. /sessions lists them.", USAGE)
        return Opening(Task("", self.directory, session=session), self.settings)

    def before(self, turn: int, *, first: str | None = None, edit: str | None = None) -> Opening:
        """A copy of this session as it was before `turn`; a new session before its first one."""
        earlier = [each.number for each in self.turns() if each.number < turn]
        if not earlier:
            return Opening(Task("", self.directory), self.settings, first, edit)
        return self.copy(earlier[-1], first=first, edit=edit)

    def copy(self, turn: int | None, *, first: str | None = None, edit: str | None = None) -> Opening:
        """A copy of this session up to the end of `turn` (None: all of it)."""
        task = Task(
            "",
            self.directory,
            session=self.conversation.session.id,
            fork=True,
            at_turn=turn,
        )
        return Opening(task, self.settings, first, edit)

    def check_model(self, name: str) -> None:
        """Raises UserError for a model that there is not."""
        find_model(name, load_catalog(self.folders))

    async def choose_session(self, *, here: bool, search: str = "") -> str | None:
        """Let the person choose one; None: none."""
        rows = self.ledger.sessions(show_name(str(self.directory)) if here else None)
        mine = self.conversation.session.id
        words = search.casefold().split()
        found = [
            row
            for row in rows
            if row.id != mine and all(word in f"{row.title} {row.directory} {row.id}".casefold() for word in words)
        ]
        if not found:
            raise UserError("There is no other session" + (f" with {search!r}." if search else "."), USAGE)
        return await self.front.choose(GO_ON_WITH, session_choices(self.ledger, found))

    # The cache

    def cache_status(self) -> CacheStatus | None:
        catalog = load_catalog(self.folders)

        def known(name: str) -> object:
            info = find_model(name, catalog)
            return info, pricing(info)

        return cache_status(self.ledger, self.row(), known, self.settings, self._around.clock.now())  # type: ignore[arg-type]

    def price_ahead(self) -> str | None:
        """What is said before a turn that reads much anew."""
        return before_turn(*self.conversation.next_turn()) if self.conversation.session.turn else None

    def check_price(self, settings: Settings) -> None:
        """Raises UserError for limits on money that cannot be kept on this model."""
        info = find_model(self.conversation.model, load_catalog(self.folders))
        check_price(info.name, pricing(info), settings, self._around.clock.now())

    def price_of_change(self, what: Literal["model", "effort"], model: str | None = None) -> str | None:
        """What is said before a change that leaves the cached history behind. `model`: whose prices count then."""
        if not self.conversation.session.turn:
            return None
        anew = _nothing_cached(self.conversation.next_turn()[0])
        name = find_model(model or self.conversation.model, load_catalog(self.folders))
        usd, _ = pricing(name)(anew, datetime.fromtimestamp(self._around.clock.now(), UTC))
        return before_change(what, anew, usd)

    # Turns and files

    def show_diff(self, diff: str) -> None:
        """A unified diff, or that there is none."""
        if diff:
            self.front.write(show_diff(diff, _DIFF_LINES))
        else:
            self.say("Nothing was changed.")

    async def turn_diff(self, turn: int | None) -> str:
        """What a turn (None: the last one) has changed in the files."""
        number = turn or self.conversation.session.turn
        return await asyncio.to_thread(self._turn_diff, number, self._session_of(number))

    def _session_of(self, turn: int) -> str:
        """Where a turn ran: a fork holds the turns of the session that it was made of."""
        return next((each.session for each in self.turns() if each.number == turn), self.conversation.session.id)

    def _turn_diff(self, turn: int, session: str) -> str:
        begin = self.checkpoints.beginning(session, turn)
        if begin is None:
            raise UserError(f"There is no checkpoint of turn {turn}, so what it changed cannot be told.", USAGE)
        ends = [each.id for each in self.checkpoints.taken(session) if each.turn == turn and each.label == AFTER]
        return self.checkpoints.diff(begin, str(ends[-1]) if ends else None)

    async def undo(self, *, force: bool) -> Restored:
        return await asyncio.to_thread(self.checkpoints.undo, self.conversation.session.id, force=force)

    async def redo(self, *, force: bool) -> Restored:
        return await asyncio.to_thread(self.checkpoints.redo, self.conversation.session.id, force=force)

    async def restore_before(self, turn: int) -> Restored:
        """Files as they were before `turn`."""
        begin = await asyncio.to_thread(self.checkpoints.beginning, self._session_of(turn), turn)
        if begin is None:
            raise UserError(f"There is no checkpoint of turn {turn}, so its files cannot be put back.", USAGE)
        return await asyncio.to_thread(self.checkpoints.restore, begin)

    def tell_restored(self, restored: Restored) -> None:
        if restored.turn is None:
            self.say("There is nothing to take back.")
            return
        for name in restored.changed:
            self.say(f"  put back: {show_name(name)}")
        for kept in restored.kept:
            self.say(f"  left as it is: {show_name(kept.path)} ({kept.why})", "yellow")
        if restored.conflicts:
            self.say("/undo force overwrites them too.", "yellow")
        if not restored.changed and not restored.kept:
            self.say("No file had to be changed.")

    def turns(self) -> list[Turn]:
        """The turns of the session so far, those of the sessions that it was forked from first."""
        return turns(self.ledger, self.row().id)

    def message(self, turn: Turn) -> str:
        """All that the person said to begin a turn."""
        return message(self.ledger, turn)

    def last_exchange(self) -> Text | None:
        """What was said in the last turn, cut short; None: there was none."""
        found = self.turns()
        if not found:
            return None
        last, prompt = found[-1], self.conversation.session.prompt
        replies = [block.text for block in prompt if block.role is Role.ASSISTANT and block.text.strip()]
        when = datetime.fromtimestamp(last.started)
        told = [f"turn {last.number}, {when:%Y-%m-%d %H:%M}", *_cut(f"> {self.message(last)}", _SAID_LINES)]
        return Text("\n".join([*told, *_cut(plain(replies[-1]), _REPLY_LINES)] if replies else told), style="dim")

    def path(self, name: str) -> Path:
        """What a person means by `name`."""
        return self.directory / os.path.expanduser(name)

    def existing_files(self, given: str) -> list[str]:
        """Paths relative to the directory. Raises UserError for what is no file."""
        try:
            names = shlex.split(given)
        except ValueError as error:
            raise UserError(f"{given!r} cannot be read ({error}). Put names with spaces in quotes.", USAGE) from error
        found = []
        for name in names:
            path = (self.directory / os.path.expanduser(name.removeprefix("@"))).resolve()
            if not path.is_file():
                raise UserError(f"There is no file {show_name(name)}. Nothing was added.", USAGE)
            found.append(os.path.relpath(path, self.directory))
        return found


def session_choices(ledger: Ledger, rows: Sequence[SessionRow]) -> list[Choice]:
    """Sessions to choose from."""
    return [
        Choice(row.id, row.title or "(no command yet)", f"{row.directory} · {money(totals.cost_usd)}")
        for row, totals in summarise(ledger, list(rows))
    ]


def _cut(text: str, most: int) -> list[str]:
    """The first lines of a text, and whether there are more."""
    lines = text.strip().splitlines()
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} more lines (/export has all)"]


def _nothing_cached(usage: Usage) -> Usage:
    """The same input, billed as when nothing of it is in the cache."""
    read = usage.cache_read or 0
    if usage.cache_write:
        return replace(usage, cache_read=0, cache_write=usage.cache_write + read)
    return replace(usage, cache_read=0, fresh=None if usage.fresh is None else usage.fresh + read)
