"""What several commands share."""

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from agent.config import Folders
from agent.errors import FAILED, INTERRUPTED, USAGE, UserError
from context.names import show_name

if TYPE_CHECKING:
    from agent.ledger import Ledger
    from agent.ledger_rows import SessionRow
    from agent.opening import Surroundings
    from agent.terminal import Terminal


def chosen_session(ledger: "Ledger", name: str | None) -> "SessionRow":
    """The session called `name`, else the last one of this directory."""
    row = ledger.session(name) if name else ledger.last_used(show_name(os.getcwd()))
    if row is None:
        where = f"called {name!r}" if name else f"in {show_name(os.getcwd())}"
        raise UserError(f"There is no session {where}. `agent sessions` lists them all.", USAGE)
    return row


def surroundings(terminal: "Terminal", env: Mapping[str, str], folders: Folders) -> "Surroundings":
    """What a conversation takes from this process and its terminal."""
    import random

    from agent.events import Notice
    from agent.keys import stored_keys
    from agent.opening import Surroundings

    keys = stored_keys(folders, env, lambda line: terminal.listener(Notice(line)))
    return Surroundings(env, terminal.clock, random.random, terminal.listener, terminal.downloads, terminal.asker, keys)


def given_text(argument: str) -> str:
    """What a person has typed, as UTF-8 whatever the locale says; what is none of it becomes U+FFFD."""
    return os.fsencode(argument).decode("utf-8", errors="replace")


def print_json(value: object) -> None:
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def errors_of_a_person() -> tuple[type[Exception], ...]:
    """The errors whose text says all: no traceback. Imported when there is one, so that `--help` need not wait."""
    from backends.base import BackendError

    return UserError, BackendError


def exit_code_of(error: Exception) -> int:
    from backends.llama.models import UnknownModelError

    if isinstance(error, UserError):
        return error.exit_code
    return USAGE if isinstance(error, UnknownModelError) else FAILED


def run_to_end(make: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run to the end; an interrupt (Ctrl-C, SIGTERM, SIGHUP) cancels the work and gives exit code 130."""
    import asyncio

    from agent.signals import run_cancellable

    try:
        return run_cancellable(make)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("agent: interrupted. What was recorded is kept.\n")
        return INTERRUPTED
    except BaseExceptionGroup as group:  # from a task group: the first error a person can read says it all
        matched = group.subgroup(errors_of_a_person())
        if matched is None:
            raise
        raise _first(matched) from group


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
