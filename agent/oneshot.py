"""`agent run`: one command in the current directory, from settings to exit code."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from agent import events
from agent.backend_choice import Downloads, choose_model, find_model, load_catalog, open_backend, pricing
from agent.bill import Pricing
from agent.call import Caller
from agent.clock import Clock
from agent.config import Folders, Settings
from agent.counting import Counter
from agent.errors import FAILED, INTERRUPTED, LIMIT, USAGE, UserError
from agent.events import TurnEnd
from agent.forecaster import Forecaster
from agent.gate import Asker, ModeGate
from agent.keeper import Keeper, KeepLimits
from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.loop import Limits, Loop
from agent.parts import Parts
from agent.permissions import Mode
from agent.redact import Redactor
from agent.session import Session, session_lock
from agent.toolbox import Toolbox
from agent.tools import registry, specs
from agent.tools.base import SMALL_OUTPUT, OutputLimits, ToolContext
from backends.base import Backend, Usage
from context.block import Block, Layer
from context.breakpoints import ALL_SHORT
from context.cache_rules import Ttl
from context.layers.project import project_block
from context.layers.system import system_blocks
from context.names import show_name
from context.notices import Environment
from context.repo.project import read_project

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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run takes from outside. `asker` is None when nobody can be asked."""

    env: Mapping[str, str]
    clock: Clock
    random: Callable[[], float]
    emit: Callable[[events.Event], None]
    downloads: Downloads
    asker: Asker | None


async def run_once(task: Task, settings: Settings, folders: Folders, around: Surroundings) -> int:
    """Run `task` and return the exit code. Raises UserError and BackendError for what cannot even begin."""
    if not task.command.strip():
        raise UserError('The prompt is empty. Nothing was sent. Say what to do: agent run "…"', USAGE)
    info = find_model(choose_model(settings, around.env), load_catalog(folders))
    pricer = pricing(info)
    if settings.max_cost is not None and not _has_price(pricer, around.clock.now()):
        raise UserError(
            f"The price of {info.name} is not known, so --max-cost cannot be kept. State it in models.toml.", USAGE
        )

    redactor = Redactor(around.env)
    task = replace(task, command=redactor(task.command))
    async with AsyncExitStack() as stack:
        ledger = stack.enter_context(Ledger.open(folders.ledger))
        row = _earlier(ledger, task)
        if row is not None and not task.fork:
            stack.enter_context(session_lock(folders.data / "locks", row.id))
        backend = await open_backend(
            *(info, settings, folders, around.env, ledger, around.downloads),
            now=lambda: datetime.fromtimestamp(around.clock.now(), UTC),
        )
        stack.push_async_callback(backend.aclose)
        counter = Counter()
        stack.push_async_callback(counter.aclose)
        async with asyncio.TaskGroup() as tasks:  # the SDK or the model file loads while the snapshot is taken
            tasks.create_task(counter.start())
            tasks.create_task(backend.prepare())
            head = None if row else await asyncio.to_thread(_head, task, settings, backend, redactor, around)
        session = _open_session(ledger, row, head or [], task, settings, around)
        if row is None or task.fork:
            stack.enter_context(session_lock(folders.data / "locks", session.id))
        around.emit(
            events.SessionOpened(session.id, info.name, settings.mode, show_name(str(task.directory)), session.resumed)
        )
        parts = Parts(session, backend, pricer, around.emit, around.clock, around.random)
        loop = _assemble(parts, counter, task, settings, folders, redactor, around)
        try:
            finished = await loop.turn(task.command, _environment(task, settings, around))
        except asyncio.CancelledError:
            return INTERRUPTED
        return EXIT_CODES[finished.end]


def _assemble(
    parts: Parts,
    counter: Counter,
    task: Task,
    settings: Settings,
    folders: Folders,
    redactor: Redactor,
    around: Surroundings,
) -> Loop:
    session, backend = parts.session, parts.backend
    spill = folders.output(session.id).resolve()
    small = backend.capabilities.profile == "compact"
    context = ToolContext(
        root=task.directory,
        spill=spill,
        env=around.env,
        seen=session.ledger.tools.seen(session.id),
        limits=SMALL_OUTPUT if small else OutputLimits(),
    )
    coach = None
    if small:
        from agent.coach import Coach

        coach = Coach(context)
    gate = ModeGate(Mode(settings.mode), task.directory, around.asker, readable=[spill])
    toolbox = Toolbox(session, registry(), context, gate, redactor, around.emit, around.clock, coach)
    veto = coach.veto if coach else None
    ttl: dict[Layer, Ttl] = dict(ALL_SHORT)
    if settings.cache_ttl == "long":
        ttl |= {Layer.SYSTEM: "long", Layer.PROJECT: "long"}
    forecaster = Forecaster(session, backend, settings.effort, ttl)
    keeper = Keeper(parts, forecaster, _keep_limits(settings))
    caller = Caller(parts, forecaster, counter, keeper, veto)
    return Loop(session, caller, toolbox, keeper, Limits(settings.max_turns, settings.max_cost), around.emit)


def _keep_limits(settings: Settings) -> KeepLimits:
    return KeepLimits(
        settings.keepalive != "off", settings.keepalive_minutes, settings.keepalive_session, settings.keepalive_day
    )


def _head(task: Task, settings: Settings, backend: Backend, redactor: Redactor, around: Surroundings) -> list[Block]:
    """SYSTEM and PROJECT of a new session. Reads the repository."""
    profile = backend.capabilities.profile
    facts = read_project(task.directory, _day(around), around.env)
    listing = replace(facts.listing, paths=tuple(redactor(path) for path in facts.listing.paths))
    facts = replace(facts, listing=listing, house_rules=redactor(facts.house_rules or "") or None)
    return [*system_blocks(profile, specs(profile)), project_block(facts, settings.tree_budget)]


def _open_session(
    ledger: Ledger, row: SessionRow | None, head: list[Block], task: Task, settings: Settings, around: Surroundings
) -> Session:
    if row is not None:
        if task.fork:
            return Session.fork(ledger, row, now=around.clock.now(), title=task.command)
        return Session.resume(ledger, row)
    return Session.create(
        ledger,
        now=around.clock.now(),
        directory=show_name(str(task.directory)),
        title=task.command,
        told=_environment(task, settings, around),
        head=head,
    )


def _environment(task: Task, settings: Settings, around: Surroundings) -> Environment:
    return Environment(_day(around), show_name(str(task.directory)), settings.mode, around.asker is not None)


def _day(around: Surroundings) -> str:
    """Today, where the person is."""
    return datetime.fromtimestamp(around.clock.now()).astimezone().date().isoformat()


def _has_price(pricer: Pricing, now: float) -> bool:
    nothing = Usage(fresh=0, cache_read=0, cache_write=0, cache_write_long=0, output=1, reasoning=0)
    return pricer(nothing, datetime.fromtimestamp(now, UTC))[0] is not None


def _earlier(ledger: Ledger, task: Task) -> SessionRow | None:
    """The session to go on with, if one was asked for."""
    if task.session is not None:
        row = ledger.session(task.session)
        if row is None:
            raise UserError(f"There is no session {task.session!r}. `agent sessions` lists them.", USAGE)
        return row
    if task.again:
        row = ledger.last_used(show_name(str(task.directory)))
        if row is None:
            raise UserError(f"There is no session in {task.directory} to go on with. Run without --continue.", USAGE)
        return row
    return None
