"""`agent` without a command: the chat, from the terminal to the exit code.

The place to type in is there at once. What the chat is made of is loaded behind it; what is typed meanwhile waits.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.chat.app import PromptFront
from agent.chat.complete import ChatCompleter
from agent.chat.history import InputHistory
from agent.chat.input import ChatInput
from agent.clock import SystemClock
from agent.config import Folders
from agent.errors import USAGE, UserError
from agent.keys import stored_keys
from agent.redact import Redactor

if TYPE_CHECKING:
    from agent.chat.context import Opening
    from agent.chat.controller import Chat

_NO_TERMINAL: Final = (
    'The chat needs a terminal, and this is none. Nothing was sent. Give one task instead: agent run "…" '
    "(or: … | agent run -)"
)


def require_terminal() -> None:
    """Raises UserError (usage) where nobody can type or see."""
    for stream in (sys.stdin, sys.stdout):
        if stream is None or not stream.isatty():
            raise UserError(_NO_TERMINAL, USAGE)


async def run_chat(opening: "Callable[[], Opening]", directory: Path, folders: Folders, env: Mapping[str, str]) -> int:
    """Until the person leaves. The exit code. `opening` is called in a thread, and may take a while to be loaded."""
    warnings: list[str] = []
    keys = stored_keys(folders, env, warnings.append)
    history = InputHistory(folders.data / "input.jsonl", directory, Redactor({**keys, **env}))
    chat: Chat | None = None

    def make_input(front: PromptFront) -> ChatInput:
        completer = ChatCompleter(
            lambda: {} if chat is None else chat.commands(),
            lambda name, so_far: () if chat is None else chat.arguments(name, so_far),
            _files(directory, env),
        )
        return ChatInput(
            history=history,
            completer=completer,
            on_submit=lambda text: front.on.submit(text),
            on_interrupt=lambda: front.on.interrupt(),
            on_escape=lambda: front.on.escape(),
            on_leave=lambda: front.on.leave(),
        )

    front = PromptFront(make_input, SystemClock(), colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb")
    early, left, drawn = list[str](), asyncio.Event(), asyncio.Event()

    def keep(text: str) -> None:
        early.append(text)
        front.waiting(early)

    def give_up() -> bool:
        left.set()
        return True

    front.on.submit, front.on.interrupt, front.on.leave = keep, give_up, left.set
    terminal = asyncio.create_task(front.run(drawn.set))
    try:
        await _first(terminal, drawn.wait())
        loaded = asyncio.create_task(asyncio.to_thread(_load, opening))
        await _first(terminal, loaded, left.wait())
        if left.is_set() or terminal.done():
            return 0
        chat = _chat(front, loaded.result(), folders, env, keys)
        for line in warnings:
            front.announce(line)
        front.waiting(())
        for text in early:
            chat.submit(text)
        work = asyncio.create_task(chat.run())
        try:
            await _first(terminal, work)
            if not work.done():  # the terminal is gone: what runs is stopped, and kept
                chat.leave()
            return await work
        finally:
            work.cancel()
            await asyncio.wait([work])
    finally:
        await front.close()
        with suppress(EOFError):
            await terminal


def _load(opening: "Callable[[], Opening]") -> "Opening":
    """Import all that the chat needs: in a thread, so that a person can type meanwhile."""
    import agent.chat.controller
    import agent.chat.transcript  # noqa: F401

    return opening()


def _chat(
    front: PromptFront, opening: "Opening", folders: Folders, env: Mapping[str, str], keys: Mapping[str, str]
) -> "Chat":
    import random

    from agent.backend_choice import Downloads
    from agent.chat.controller import Chat
    from agent.opening import Surroundings

    downloads = Downloads(front.download, front.announce, front.agree)
    around = Surroundings(env, SystemClock(), random.random, front.event, downloads, front.ask, keys)
    chat = Chat(front, opening, folders, around)
    front.on.submit, front.on.interrupt = chat.submit, chat.interrupt
    front.on.escape, front.on.leave = chat.escape, chat.leave
    return chat


def _files(directory: Path, env: Mapping[str, str]) -> Callable[[], Sequence[str]]:
    def list_now() -> Sequence[str]:
        from context.repo.files import list_files

        return list_files(directory, env).paths

    return list_now


async def _first(*awaited: Coroutine[Any, Any, object] | asyncio.Task[Any]) -> None:
    """Until one of these is done. Those that are not tasks are given up then."""
    tasks = [one if isinstance(one, asyncio.Task) else asyncio.create_task(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, one in zip(tasks, awaited, strict=True):
            if task is not one:
                task.cancel()
