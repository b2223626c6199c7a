"""`agent` without a command: the chat, from the terminal to the exit code."""

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from agent.backend_choice import Downloads
from agent.chat.app import PromptFront
from agent.chat.complete import ChatCompleter
from agent.chat.context import Opening
from agent.chat.controller import Chat
from agent.chat.history import InputHistory
from agent.chat.input import ChatInput
from agent.clock import SystemClock
from agent.config import Folders
from agent.conversation import Surroundings
from agent.errors import USAGE, UserError
from agent.keys import stored_keys
from agent.redact import Redactor
from context.repo.files import list_files

_NO_TERMINAL: Final = (
    'The chat needs a terminal, and this is none. Nothing was sent. Give one task instead: agent run "…" '
    "(or: … | agent run -)"
)


def require_terminal() -> None:
    """Raises UserError (usage) where nobody can type or see."""
    for stream in (sys.stdin, sys.stdout):
        if stream is None or not stream.isatty():
            raise UserError(_NO_TERMINAL, USAGE)


async def run_chat(opening: Opening, folders: Folders, env: Mapping[str, str]) -> int:
    """Until the person leaves. The exit code."""
    clock, directory = SystemClock(), opening.task.directory
    warnings: list[str] = []
    keys = stored_keys(folders, env, warnings.append)
    redact = Redactor({**keys, **env})
    history = InputHistory(folders.data / "input.jsonl", directory, redact)

    def files() -> Sequence[str]:
        return list_files(directory, env).paths

    def make_input(front: PromptFront) -> ChatInput:
        completer = ChatCompleter(lambda: chat.commands(), lambda name, so_far: chat.arguments(name, so_far), files)
        return ChatInput(
            history=history,
            completer=completer,
            on_submit=lambda text: front.on.submit(text),
            on_interrupt=lambda: front.on.interrupt(),
            on_escape=lambda: front.on.escape(),
            on_leave=lambda: front.on.leave(),
        )

    front = PromptFront(make_input, clock, colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb")
    downloads = Downloads(front.download, front.announce, front.agree)
    around = Surroundings(env, clock, random.random, front.event, downloads, front.ask, keys)
    for line in warnings:
        front.announce(line)
    chat = Chat(front, opening, folders, around)
    front.on.submit, front.on.interrupt = chat.submit, chat.interrupt
    front.on.escape, front.on.leave = chat.escape, chat.leave
    terminal = asyncio.create_task(front.run())
    work = asyncio.create_task(chat.run())
    try:
        await asyncio.wait([terminal, work], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():  # the terminal is gone: what runs is stopped, and kept
            chat.leave()
        code = await work
    finally:
        work.cancel()
        await asyncio.wait([work])
        await front.close()
        with suppress(EOFError):
            await terminal
    return code
