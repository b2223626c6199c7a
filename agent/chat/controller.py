"""The chat: what a person types, one thing after another, on one session at a time.

It knows no terminal: it is told what was typed (`submit`, `interrupt`, `escape`, `leave`) and shows things on a
`Front`.
Another session, model or effort is another conversation: the one that is open is closed and the next one opened.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from rich.text import Text

from agent.chat.budget import agreed
from agent.chat.commands import COMMANDS
from agent.chat.context import GO_ON_WITH, Context, Leave, Opening, session_choices
from agent.chat.front import Front
from agent.chat.own_commands import own_commands
from agent.chat.shell_line import run_shell_line
from agent.chat.typed import Message, Shell, SlashCommand, UnknownCommand, parse
from agent.checkpoints import AFTER, BEFORE, Checkpoints
from agent.config import Folders
from agent.conversation import Conversation
from agent.errors import UserError
from agent.events import TurnFinished
from agent.ledger import Ledger
from agent.opening import Surroundings, Task, open_conversation
from agent.redact import Redactor
from agent.screens.plain import plain
from agent.session import Session
from backends.base import BackendError
from context.names import show_name

T = TypeVar("T")
_PATIENCE_S: Final = 1.0  # how long nothing is said
_TWICE_S: Final = 2.0  # within which a second Ctrl-C leaves


@dataclass(slots=True)
class _Busy:
    """What runs, and can be stopped."""

    task: "asyncio.Task[Any]"


class Chat:
    """`run` is the whole of it; the other public methods may be called while it runs."""

    def __init__(
        self,
        front: Front,
        opening: Opening,
        folders: Folders,
        around: Surroundings,
    ) -> None:
        self._front = front
        self._opening = opening
        self._folders = folders
        self._around = around
        self._redact = Redactor(around.keyed_env)
        self._waiting: list[str] = []
        self._typed = asyncio.Event()
        self._busy: _Busy | None = None
        self._left = asyncio.Event()
        self._entering: asyncio.Task[Any] | None = None  # what opens a session
        self._asked_to_leave = float("-inf")
        self._rewinding: int | None = None
        self._open: Context | None = None
        self._pruned = False
        self._last_session: str | None = None

    # What the person does

    def submit(self, text: str) -> None:
        """Take what was typed. While something runs it waits for its turn."""
        if not text.strip():
            return
        self._asked_to_leave = float("-inf")
        self._waiting.append(self._redact(text))
        self._typed.set()
        if self._busy is not None:
            self._front.waiting(self._waiting)

    def interrupt(self) -> bool:
        """Ctrl-C: stop what runs; what waits goes back to where it was typed. When nothing runs, a second one within
        two seconds leaves. Whether there was something to stop.
        """
        running = self._busy is not None and not self._busy.task.done()
        if running and self._busy is not None:
            self._busy.task.cancel()
        if self._waiting:
            self._front.edit("\n".join(self._waiting))
            self._waiting.clear()
            self._front.waiting(())
            return True
        if running:
            return True
        if self._rewinding is not None:
            self._rewinding = None
            self._say("The session stays as it is.", "dim")
            return True
        now = self._around.clock.monotonic()
        if now - self._asked_to_leave <= _TWICE_S:
            self.leave()
        else:
            self._asked_to_leave = now
            self._say("Ctrl-C once more, or Ctrl-D, leaves.", "dim")
        return False

    def escape(self) -> None:
        """Esc: stop what runs; when nothing runs, take the last message back to edit it."""
        if self._busy is not None or self._rewinding is not None:
            self.interrupt()
        elif self._open is not None and (turns := self._open.turns()):
            if not self._front.edit(self._open.message(turns[-1])):
                return  # something else is being typed
            self._rewinding = turns[-1].number
            self._say("Enter sends this in place of your last message; Ctrl-C leaves all as it is.", "dim")

    def leave(self) -> None:
        """End the chat; what runs is stopped."""
        self._left.set()
        self._typed.set()
        if self._entering is not None:
            self._entering.cancel()
        if self._busy is not None:
            self._busy.task.cancel()

    # What follows from it

    async def run(self) -> int:
        """Until the person leaves. The exit code. Raises UserError and BackendError when the first session cannot be
        opened.
        """
        opening, before = self._opening, None
        while True:
            try:
                after = await self._converse_or_leave(opening)
            except* (UserError, BackendError) as errors:
                if before is None:
                    raise
                self._say(f"{_first(errors)} The session before goes on.", "red")
                after = replace(before, first=None)
            if after is None:
                return 0
            before, opening = opening, after

    async def _converse_or_leave(self, opening: Opening) -> Opening | None:
        """None as well when the person leaves while the session is being opened: a model may be fetched for it."""
        try:
            return await self._converse(opening)
        except asyncio.CancelledError:
            if self._entering is None or not self._left.is_set():
                raise
            self._entering.uncancel()
            return None

    async def _converse(self, opening: Opening) -> Opening | None:
        """One session until another one is wanted, or None."""
        task, settings = opening.task, opening.settings
        if opening.pick:
            task = await self._picked(task)
        self._entering = asyncio.current_task()
        async with open_conversation(task, settings, self._folders, self._around) as conversation:
            self._entering = None
            self._open = context = self._context(conversation, opening)
            self._tell_where_we_are(conversation.session, context, opening)
            conversation.prewarm()
            await self._prune(context.checkpoints)
            if opening.edit:
                self._front.edit(opening.edit)
            if opening.first is not None:
                self._waiting.insert(0, opening.first)
            while (text := await self._next()) is not None:
                outcome = await self._do(text, conversation, context)
                if isinstance(outcome, Leave):
                    break
                if isinstance(outcome, Opening):
                    return outcome
            self._tell_how_to_go_on(conversation)
        return None

    async def _picked(self, task: Task) -> Task:
        """The session that the person goes on with; a new one if they choose none."""
        with Ledger.open(self._folders.ledger) as ledger:
            choices = session_choices(ledger, ledger.sessions(show_name(str(task.directory))))
        if not choices:
            self._say("There is no session in this directory yet: this is a new one.", "dim")
            return task
        chosen = await self._stoppable("choosing", self._front.choose(GO_ON_WITH, choices))
        return replace(task, session=chosen if isinstance(chosen, str) else None)

    async def _prune(self, checkpoints: Checkpoints) -> None:
        """Forget what is too old to be undone: once, which takes no time when there is nothing."""
        if self._pruned:
            return
        self._pruned = True
        try:
            await asyncio.to_thread(checkpoints.prune, self._around.clock.now())
        except (UserError, OSError) as error:
            self._say(f"Old checkpoints were not removed: {error}", "yellow")

    def _tell_where_we_are(self, session: Session, context: Context, opening: Opening) -> None:
        """What was said last in a session that is come back to; in the first one of the program, where help is."""
        returns = session.resumed and not opening.task.fork and session.id != self._last_session
        if returns and (last := context.last_exchange()) is not None:
            self._front.write(last)
        elif self._last_session is None:
            self._say("/help lists the commands and the keys.", "dim")
        self._last_session = session.id

    def _tell_how_to_go_on(self, conversation: Conversation) -> None:
        if conversation.session.turn:
            self._say(f"agent -c goes on with this session · agent cost {conversation.session.id}", "dim")

    async def _next(self) -> str | None:
        """The next message; None: the person leaves."""
        while not self._waiting and not self._left.is_set():
            self._front.working(None)
            self._typed.clear()
            await self._typed.wait()
        if self._left.is_set():
            return None
        text = self._waiting.pop(0)
        self._front.waiting(self._waiting)
        return text

    async def _do(self, text: str, conversation: Conversation, context: Context) -> Opening | Leave | None:
        own = own_commands(self._folders, context.directory)
        names = {*COMMANDS, *own}
        match parse(text, names, lambda name: (context.directory / name).exists()):
            case SlashCommand(name, arguments) if name in COMMANDS:
                self._front.say_command(text)
                return await self._stoppable(f"/{name}", COMMANDS[name].run(context, arguments))
            case SlashCommand(name, arguments):
                await self._send(own[name].expand(arguments), conversation, context, shown=text)
            case UnknownCommand(name, suggestion):
                hint = f" Did you mean /{suggestion}?" if suggestion else ""
                self._say(f"There is no command /{name}.{hint} /help lists them. Nothing was sent.", "yellow")
            case Shell(command):
                self._front.say_command(text)
                await self._stoppable(f"!{command}", self._shell(command, context))
            case Message(said, paths):
                if self._rewinding is not None:
                    turn, self._rewinding = self._rewinding, None
                    return context.before(turn, first=text)
                await self._send(said, conversation, context, shown=text, paths=paths)
        return None

    async def _send(
        self, text: str, conversation: Conversation, context: Context, *, shown: str, paths: tuple[str, ...] = ()
    ) -> None:
        self._front.say_command(shown)
        if (price := context.price_ahead()) is not None:
            self._say(price, "yellow")
        if conversation.budgets.limited and await self._stoppable("asking", agreed(context)) is not True:
            self._front.edit(shown)
            return
        session, checkpoints, turn = conversation.session, context.checkpoints, conversation.session.turn + 1
        length, notes = session.prompt.length, tuple(context.notes)
        taking = asyncio.create_task(asyncio.to_thread(checkpoints.take, session.id, turn, BEFORE))
        try:
            finished = await self._stoppable("working", self._turn(text, conversation, context, paths, taking))
        finally:
            await asyncio.wait([taking])
        if session.turn < turn or (finished is None and session.prompt.length == length):  # it was not recorded
            context.notes[:0] = notes
            self._front.edit(shown)
            if finished is None and session.turn < turn:
                self._say("Interrupted before it was sent. Enter sends it.", "yellow")
        await asyncio.to_thread(checkpoints.take, session.id, turn, AFTER)
        for line in checkpoints.notices():
            self._say(line, "yellow")
        await conversation.wait(finished)

    async def _shell(self, command: str, context: Context) -> None:
        def show(lines: str) -> None:
            self._say(plain(lines), "")

        try:
            note = await run_shell_line(command, context.directory, self._around.env, show)
        except asyncio.CancelledError:
            self._say("Stopped.", "yellow")
            raise
        context.notes.append(self._redact(note))

    async def _turn(
        self,
        text: str,
        conversation: Conversation,
        context: Context,
        paths: tuple[str, ...],
        taking: "asyncio.Task[str | None]",
    ) -> TurnFinished:
        notes = tuple(context.notes)
        context.notes.clear()
        if paths:
            await conversation.show_files(paths)
        return await conversation.turn(text, notes, lambda: self._kept(taking))

    async def _kept(self, taking: "asyncio.Task[str | None]") -> None:
        """Until the checkpoint is taken: it began with the turn, so that the model is not waited for twice."""
        done, _ = await asyncio.wait([taking], timeout=_PATIENCE_S)
        if not done:
            self._say("Keeping the files as they are, for /undo. The first time takes long.", "dim")
            await asyncio.wait([taking])

    async def _stoppable(self, what: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Run it so that Ctrl-C stops it and nothing else."""
        task = asyncio.ensure_future(work)
        self._busy = _Busy(task)
        self._front.working(what)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._busy = None
        try:
            return task.result()
        except asyncio.CancelledError:
            return None
        except (UserError, BackendError) as error:
            self._say(str(error), "red")
            return None

    def _context(self, conversation: Conversation, opening: Opening) -> Context:
        checkpoints = Checkpoints(self._folders.data, opening.task.directory, self._around.env, self._around.clock.now)
        return Context(conversation, opening, self._front, self._folders, self._around, checkpoints)

    def commands(self) -> Mapping[str, str]:
        """What each slash command does, by name."""
        mine = {} if self._open is None else self._open.own()
        own = {name: command.description for name, command in mine.items()}
        return {**own, **{name: command.about for name, command in COMMANDS.items()}}

    def arguments(self, name: str, so_far: str) -> Iterable[str]:
        """What may follow a slash command."""
        return [value for value in COMMANDS[name].values if value.startswith(so_far)] if name in COMMANDS else ()

    # Odds and ends

    def _say(self, text: str, style: str) -> None:
        self._front.write(Text(text, style=style))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
