"""A session is opened: from settings to the loop, all is assembled here. What is done with it then: `Conversation`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

from agent import events
from agent.backend_choice import Downloads, choose_model, find_model, load_catalog, open_backend, pricing
from agent.bill import Pricing
from agent.budgets import BudgetLimits, Budgets
from agent.call import Caller
from agent.clock import Clock
from agent.config import Folders, Settings
from agent.conversation import Conversation
from agent.counting import Counter
from agent.epochs import Epochs, Rewriting
from agent.errors import USAGE, UserError
from agent.forecaster import Forecaster
from agent.gate import Asker, ModeGate
from agent.head import Head, Look, make_head
from agent.keeper import Keeper, KeepLimits
from agent.ledger import Ledger
from agent.ledger_rows import SessionRow
from agent.loop import Limits, Loop
from agent.parts import Parts
from agent.permission_rules import Rules
from agent.permissions import Mode
from agent.project_config import project_notice
from agent.redact import Redactor
from agent.repository import Repository
from agent.sandbox import confining
from agent.savings import so_far
from agent.session import Session, session_lock
from agent.toolbox import Toolbox
from agent.tools import registry
from agent.tools.base import SMALL_OUTPUT, OutputLimits, ToolContext
from agent.ttl_choice import TtlChooser
from agent.versions import Versions
from agent.ways_on import CHAT, ONE_SHOT, WaysOn
from backends.base import Usage
from context.block import Block
from context.cachemodel import Scope
from context.economics import Policy
from context.names import show_name
from context.notices import Environment
from context.repo.files import is_ignored, unignored_folders
from context.repo.watch import Watch


@dataclass(frozen=True, slots=True)
class Task:
    """What to do, and in which session. `session`: the id to go on with; `again`: go on with the last session of the
    directory; neither: a new one, which is called like the `command`. `fork`: in a copy of it, so that it stays as it
    is; `at_turn`: as that was at the end of its turn of this number. `one_shot`: the program ends with this command.
    `files`: paths, relative to `directory`, that the model is shown from the start: in the snapshot of a new session,
    else with the command.
    """

    command: str
    directory: Path
    again: bool = False
    session: str | None = None
    fork: bool = False
    at_turn: int | None = None
    one_shot: bool = False
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a conversation takes from outside. `asker` is None when nobody can be asked. `keys`: keys that do not lie in
    the environment, by the variable that they stand for; commands do not get them.
    """

    env: Mapping[str, str]
    clock: Clock
    random: Callable[[], float]
    emit: Callable[[events.Event], None]
    downloads: Downloads
    asker: Asker | None
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def keyed_env(self) -> Mapping[str, str]:
        """The environment with these keys in it: for backends and the redactor."""
        return {**self.keys, **self.env}


@asynccontextmanager
async def open_conversation(
    task: Task, settings: Settings, folders: Folders, around: Surroundings
) -> AsyncIterator[Conversation]:
    """The session of `task` on the model of `settings`. Raises UserError and BackendError for what cannot begin."""
    info = find_model(choose_model(settings, around.keyed_env), load_catalog(folders))
    pricer = pricing(info)
    check_price(info.name, pricer, settings, around.clock.now())
    redactor = Redactor(around.keyed_env)
    async with AsyncExitStack() as stack:
        ledger = stack.enter_context(Ledger.open(folders.ledger))
        row = _earlier(ledger, task)
        if row is not None and not task.fork:
            stack.enter_context(session_lock(folders.data / "locks", row.id))
        backend = await open_backend(
            *(info, settings, folders, around.keyed_env, ledger, around.downloads),
            now=lambda: datetime.fromtimestamp(around.clock.now(), UTC),
        )
        stack.push_async_callback(backend.aclose)
        counter = Counter()
        stack.push_async_callback(counter.aclose)
        versions = Versions(folders.data / "versions")
        await asyncio.to_thread(versions.prune, around.clock.now())

        def today() -> str:
            """Where the person is."""
            return datetime.fromtimestamp(around.clock.now()).astimezone().date().isoformat()

        profile = backend.capabilities.profile
        head = make_head(task.directory, profile, settings, folders, redactor, task.files, around.env, today)
        asks = around.asker is not None
        watch = None if task.one_shot else stack.enter_context(_watch(task.directory, around))
        environment = Look(task.directory, settings.mode, asks, versions, around.env, today, watch)
        async with asyncio.TaskGroup() as tasks:  # the SDK or the model file loads while the snapshot is taken
            tasks.create_task(counter.start())
            tasks.create_task(backend.prepare())
            told = await asyncio.to_thread(environment)  # before the head: what comes meanwhile is told with a command
            blocks = None if row else await asyncio.to_thread(head)
        session = _open_session(ledger, row, blocks or [], task, told, around)
        if row is None or task.fork:
            stack.enter_context(session_lock(folders.data / "locks", session.id))
        directory = show_name(str(task.directory))
        ways = ONE_SHOT if task.one_shot else CHAT
        limits = BudgetLimits(settings.max_cost_session, settings.max_cost_day)
        free = _costs(pricer, around.clock.now()) == 0
        budgets = Budgets(ledger, session.id, limits, around.clock, around.emit, ways, free=free)
        policy = f"{settings.cache_ttl}/{settings.keepalive}"
        parts = Parts(session, backend, pricer, around.emit, around.clock, around.random, budgets, policy)
        forecaster = _forecaster(parts, task, settings)
        held = forecaster.held(around.clock.now()) if session.resumed else None
        warm = (held.tokens, held.expires) if held else (None, None)
        earlier = await so_far(parts) if session.resumed else ()
        about = (directory, session.resumed, *warm, backend.capabilities.context, *earlier)
        around.emit(events.SessionOpened(session.id, info.name, settings.mode, *about))
        if notice := project_notice(task.directory, folders):
            around.emit(events.Notice(notice))
        if not task.one_shot:  # whose first call says it
            budgets.look()
        conversation = _assemble(
            *(parts, ways, forecaster, counter, head, environment, task, settings, folders, redactor, around, versions)
        )
        stack.push_async_callback(conversation.aclose)
        yield conversation


def _assemble(
    parts: Parts,
    ways: WaysOn,
    forecaster: Forecaster,
    counter: Counter,
    head: Head,
    environment: Look,
    task: Task,
    settings: Settings,
    folders: Folders,
    redactor: Redactor,
    around: Surroundings,
    versions: Versions,
) -> Conversation:
    session, backend = parts.session, parts.backend
    spill = folders.output(session.id).resolve()
    small = backend.capabilities.profile == "compact"
    context = ToolContext(
        root=task.directory,
        spill=spill,
        env=around.env,
        keys=around.keys,
        seen=session.ledger.tools.seen(session.id),
        limits=SMALL_OUTPUT if small else OutputLimits(),
    )
    coach = None
    if small:
        from agent.coach import Coach

        coach = Coach(context)
    keeper = Keeper(parts, forecaster, _keep_limits(settings))
    asker = None if around.asker is None else keeper.asking(around.asker)
    rules = Rules.parse(settings.permissions_allow, settings.permissions_ask, settings.permissions_deny)
    home = Path(around.env["HOME"]).resolve() if around.env.get("HOME") else None
    gate = ModeGate(Mode(settings.mode), task.directory, asker, [spill], rules, home)
    if settings.sandbox == "auto":
        own = (folders.config, folders.data, folders.cache)
        say = lambda text: around.emit(events.Notice(text))  # noqa: E731
        context.confine = confining(gate, task.directory, home, own, spill, say, network=settings.sandbox_network)
    repository = Repository(context, versions, redactor)
    toolbox = Toolbox(session, registry(), context, gate, redactor, around.emit, around.clock, coach, repository)
    if not session.resumed:
        repository.show_whole(head.whole)
    if session.resumed or small:  # the snapshot for a small model holds no files
        repository.show(task.files)

    def forget() -> None:  # a new epoch shows nothing of what was read, but its head
        toolbox.forget()
        repository.show_whole(head.whole)

    veto, guard = coach.veto if coach else None, settings.repetition_guard == "on"
    caller = Caller(parts, forecaster, counter, keeper, veto, guard=guard)
    epochs = Epochs(parts, forecaster, caller, Rewriting(head, spill, settings.compact == "auto", forget))
    limits = Limits(settings.max_turns, settings.max_cost)
    loop = Loop(session, caller, toolbox, keeper, epochs, limits, around.emit, repository, parts.budgets, ways)

    def price(usage: Usage) -> Decimal | None:
        return parts.pricing(usage, datetime.fromtimestamp(around.clock.now(), UTC))[0]

    return Conversation(
        *(session, backend.name, loop, keeper, epochs, forecaster, parts.budgets),
        *(around.clock, environment, head, gate, repository, price),
    )


def _watch(directory: Path, around: Surroundings) -> Watch:
    return Watch(
        directory,
        lambda: unignored_folders(directory, around.env),
        lambda folder: is_ignored(directory, folder, around.env),
        lambda warning: around.emit(events.Notice(warning)),
    )


def _forecaster(parts: Parts, task: Task, settings: Settings) -> Forecaster:
    session, backend, effort = parts.session, parts.backend, settings.effort
    chooser = TtlChooser(
        session.ledger,
        session.id,
        show_name(str(task.directory)),
        Scope(backend.endpoint, backend.name, effort or backend.capabilities.default_effort),
        backend.capabilities.cache,
        parts.pricing,
        settings,
        task.one_shot,
    )
    return Forecaster(session, backend, effort, choose=chooser)


def _keep_limits(settings: Settings) -> KeepLimits:
    return KeepLimits(
        *(cast(Policy, settings.keepalive), settings.keepalive_minutes),
        *(settings.keepalive_session, settings.keepalive_day),
    )


def _open_session(
    ledger: Ledger,
    row: SessionRow | None,
    head: list[Block],
    task: Task,
    told: Environment,
    around: Surroundings,
) -> Session:
    if row is not None:
        if task.fork:
            return Session.fork(ledger, row, now=around.clock.now(), title=task.command, turn=task.at_turn)
        return Session.resume(ledger, row)
    return Session.create(
        ledger,
        now=around.clock.now(),
        directory=show_name(str(task.directory)),
        title=task.command,
        told=told,
        head=head,
    )


def check_price(model: str, pricer: Pricing, settings: Settings, now: float) -> None:
    """Raises UserError where a limit on money cannot be kept, because nobody knows what the model costs."""
    limits = [f"max_cost{scope}" for scope in ("", "_session", "_day") if getattr(settings, f"max_cost{scope}")]
    if limits and _costs(pricer, now) is None:
        raise UserError(
            f"The price of {model} is not known, so {' and '.join(limits)} cannot be kept. Nothing was sent. State it "
            "in models.toml.",
            USAGE,
        )


def _costs(pricer: Pricing, now: float) -> Decimal | None:
    """USD of some tokens: None where the price is not known, 0 where nothing costs anything."""
    some = Usage(fresh=1, cache_read=0, cache_write=0, cache_write_long=0, output=1, reasoning=0)
    return pricer(some, datetime.fromtimestamp(now, UTC))[0]


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
            raise UserError(
                f"There is no session in {task.directory} to go on with. `agent sessions` lists all.", USAGE
            )
        return row
    return None
