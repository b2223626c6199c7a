"""Completion of what is typed: `/command` and its arguments, and `@file`."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from agent.chat.find_paths import PathFinder
from agent.chat.typed import mention
from context.names import show_name

Commands = Callable[[], Mapping[str, str]]
Arguments = Callable[[str, str], Iterable[str]]
Paths = Callable[[], Sequence[str]]

MOST_SHOWN: Final = 50
_COMMAND: Final = re.compile(r"/(\S*)")
_ARGUMENT: Final = re.compile(r"/(\S+)[ \t]+(.*)", re.DOTALL)
# The same places where agent/chat/typed.py sees a mention, as far as it is typed.
_MENTION: Final = re.compile(r"""(?<![A-Za-z0-9_.+\-@/\\`])@(?:"([^"\n]*)|'([^'\n]*)|((?:\\.|[^\s"'@\\])*))$""")


class ChatCompleter(Completer):
    """`commands()`: what each slash command does, by name. `arguments(name, so_far)`: what may follow it.

    `paths()`: the files of the repository, relative; called in a thread, and to return the list it returned before when
    nothing has changed.
    """

    def __init__(self, commands: Commands, arguments: Arguments, paths: Paths) -> None:
        self._commands = commands
        self._arguments = arguments
        self._paths = paths
        self._listed: Sequence[str] | None = None
        self._finder = PathFinder(())
        self._finding = threading.Lock()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if (typed := _typed_path(before)) is not None:
            return self._files(*typed, lambda: False)
        return self._of_commands(before)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Files are looked for in a thread, which stops when nobody wants them any more."""
        typed = _typed_path(document.text_before_cursor)
        if typed is None:
            for completion in self._of_commands(document.text_before_cursor):
                yield completion
            return
        unwanted = threading.Event()
        try:
            for completion in await asyncio.to_thread(self._files, *typed, unwanted.is_set):
                yield completion
        finally:
            unwanted.set()

    def prepare(self) -> None:
        """List the files ahead of the first key; for a thread."""
        with self._finding:
            paths = self._paths()
            if paths is not self._listed:
                self._listed, self._finder = paths, PathFinder(paths)

    def _files(self, wanted: str, length: int, stop: Callable[[], bool]) -> list[Completion]:
        self.prepare()
        return [
            Completion(mention(path), start_position=-length, display=show_name(path))
            for path in self._finder.find(wanted, MOST_SHOWN, stop)
        ]

    def _of_commands(self, before: str) -> list[Completion]:
        if match := _COMMAND.fullmatch(before):
            begun = match[1].lower()
            return [
                Completion(f"/{name}", start_position=-len(before), display_meta=about)
                for name, about in sorted(self._commands().items())
                if name.lower().startswith(begun)
            ]
        if match := _ARGUMENT.fullmatch(before):
            name, so_far = match[1], match[2]
            return [Completion(value, start_position=-len(so_far)) for value in self._arguments(name, so_far)]
        return []


def _typed_path(before: str) -> tuple[str, int] | None:
    """What of a file's name is typed, and how many characters to put the whole mention in the place of."""
    match = _MENTION.search(before)
    if match is None:
        return None
    double, single, bare = match.groups()
    quoted = double if double is not None else single
    wanted = re.sub(r"\\(.)", r"\1", bare) if quoted is None else quoted
    return wanted, len(match[0])
