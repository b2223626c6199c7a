"""One conversation: its prompt, held equal to what the ledger holds, and its repair after a kill."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from agent.database import LedgerError
from agent.errors import USAGE, UserError
from agent.ledger import Ledger, SessionBusyError
from agent.ledger_rows import EpochRow, SessionRow
from agent.tool_record import NOTHING_SEEN
from agent.turns import Turn, turns
from context.block import Block, Layer, Role, Text, ToolResult
from context.layers.history import CIRCLED, CUT_REPLY, INTERRUPTED, reply_block, results_block
from context.names import show_name
from context.notices import UNTOLD, Environment
from context.prompt import Prompt

_TITLE_LENGTH = 80
_TOLD = {"failed": [CUT_REPLY], "interrupted": [CUT_REPLY], "cut": [CIRCLED]}  # of a last call that ended like this


@dataclass(slots=True)
class Session:
    """`told` is the environment as the model knows it; `epoch` the number of the prompt's epoch,
    `turn` that of the turn that runs or ran last (0: none yet).

    Change the prompt by `append` and `begin_epoch` only: it goes to the ledger first.
    """

    id: str
    ledger: Ledger
    prompt: Prompt
    told: Environment
    resumed: bool = field(default=False)
    epoch: int = field(default=0)
    turn: int = field(default=0)

    @classmethod
    def create(
        cls, ledger: Ledger, *, now: float, directory: str, title: str, told: Environment, head: Sequence[Block]
    ) -> "Session":
        """A new session whose prompt begins with `head` (SYSTEM and PROJECT)."""
        session_id = _free_id(ledger, now)
        ledger.create_session(SessionRow(session_id, now, directory, _title(title), told.to_json()), head)
        return cls(session_id, ledger, Prompt.empty().extend(head), told)

    @classmethod
    def resume(cls, ledger: Ledger, row: SessionRow) -> "Session":
        """The stored session, block for block. Call `repair` before the next command."""
        epoch = ledger.epoch(row.id)
        prompt, told = ledger.prompt(row.id, epoch=epoch), ledger.told(row)
        return cls(row.id, ledger, prompt, told, resumed=True, epoch=epoch, turn=ledger.last_turn(row.id))

    @classmethod
    def fork(cls, ledger: Ledger, row: SessionRow, *, now: float, title: str, turn: int | None = None) -> "Session":
        """A new session that goes on from all that the stored one holds; that one stays as it is.

        `turn`: from the end of that turn, as it was sent then. What the model had been told and shown by then is not
        recorded: it is told anew, and has to read a file again before it edits it. Raises UserError for a turn that
        there is not.
        """
        at = None if turn is None else _find_turn(ledger, row, turn)
        where, epoch, told = row.id, ledger.epoch(row.id), row.told
        known = at is None or (at.session, at.epoch, at.whole) == (row.id, epoch, True)
        if at is not None and not known:
            where, epoch, told = at.session, at.epoch, UNTOLD.to_json()
        prompt = ledger.prompt(where, blocks=at.end if at else None, epoch=epoch)
        session_id, shown = _free_id(ledger, now), show_name(" ".join(title.split())[:_TITLE_LENGTH])
        forked = SessionRow(session_id, now, row.directory, shown, told, where, prompt.length, epoch)
        ledger.fork_session(forked, seen=known)
        number = ledger.last_turn(row.id) if at is None else at.number
        return cls(session_id, ledger, prompt, ledger.told(forked), resumed=True, epoch=epoch, turn=number)

    def rename(self, title: str) -> None:
        """Call it like its first command."""
        self.ledger.names.rename(self.id, _title(title))

    @property
    def is_unused(self) -> bool:
        """Whether no command was given in it yet."""
        return not self.resumed and self.prompt.length == self.prompt.head(Layer.PROJECT).length

    def append(
        self,
        blocks: Iterable[Block],
        *,
        told: Environment | None = None,
        seen: Mapping[Path, str | None] = NOTHING_SEEN,
    ) -> None:
        """Record `blocks` and make them part of the prompt. `seen`: which content of files the model knows by them.

        Raises SessionBusyError when another process went on here.
        """
        new = list(blocks)
        told_json = None if told is None else told.to_json()
        self.ledger.append(self.id, self.epoch, self.prompt.length, new, told=told_json, seen=seen)
        self.prompt = self.prompt.extend(new)
        if told is not None:
            self.told = told

    def begin_epoch(self, row: EpochRow, blocks: Iterable[Block], told: Environment) -> None:
        """Record `blocks` as the prompt of a new epoch, and make them the prompt. What was sent stays on record."""
        prompt = Prompt.empty().extend(blocks)
        self.ledger.begin_epoch(self.id, row, prompt, told.to_json())
        self.prompt, self.told, self.epoch = prompt, told, row.number

    def repair(self) -> list[str]:
        """Complete what a kill or an interrupt left open, in the ledger as well. Returns notices for the next command.

        A reply in the middle of its stream keeps its text. A tool call without a result gets one that says what is
        known: it may have taken effect when it was running, it did not when it had not been started. Repairing twice
        changes nothing.
        """
        draft = self.ledger.take_draft(self.id)
        if draft.strip():
            block = reply_block([Text(draft)])
            self.ledger.settle_draft(self.id, self.epoch, self.prompt.length, block)
            self.prompt = self.prompt.append(block)
        last = self.prompt.block
        if last is None or last.role is not Role.ASSISTANT:
            return []
        if (
            not last.tool_calls
        ):  # asked of the ledger, because a repair may itself be cut short before its notice is sent
            return _TOLD.get(self.ledger.last_status(self.id) or "", [])[:]
        runs = self.ledger.tools.runs(self.id, self.epoch, self.prompt.length - 1)
        results = {run.tool_call: run.result or _interrupted(run.tool_call) for run in runs.values()}
        self.append([results_block(last.tool_calls, results)])
        return []


def _find_turn(ledger: Ledger, row: SessionRow, number: int) -> Turn:
    found = turns(ledger, row.id)
    for turn in found:
        if turn.number == number:
            return turn
    there = f"It has {found[0].number} to {found[-1].number}" if found else "It has none yet"
    raise UserError(f"Session {row.id} has no turn {number}. {there}. Nothing was sent.", USAGE)


def _title(text: str) -> str:
    return show_name(" ".join(text.split())[:_TITLE_LENGTH])


def _interrupted(tool_call: str) -> ToolResult:
    return ToolResult(tool_call, INTERRUPTED, is_error=True)


@contextmanager
def session_lock(folder: Path, session_id: str) -> Iterator[None]:
    """Hold a session for this process; a kill releases it. Raises SessionBusyError when another process has it."""
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / f"{session_id}.lock", timeout=0)
        lock.acquire()
    except filelock.Timeout as error:
        raise SessionBusyError(
            f"Session {session_id} is in use by another process. Nothing was sent. "
            "Wait for it to end, or start a new one."
        ) from error
    except OSError as error:
        raise LedgerError(
            f"{folder} cannot be used to lock sessions ({error.strerror or error}). Nothing was sent. "
            "Make it a writable folder, or set KEEPWARM_HOME to another one."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _free_id(ledger: Ledger, now: float) -> str:
    """One that no session has: its random part is short, so that a person can type it."""
    while ledger.session(session_id := new_session_id(now)) is not None:
        pass
    return session_id


def new_session_id(now: float) -> str:
    """A name that sorts by time and is short enough to type: YYYYMMDD-HHMMSS-xxxx (UTC)."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
