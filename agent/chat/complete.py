"""Completion of what is typed: `/command` and its arguments, and `@file`."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

Commands = Callable[[], Mapping[str, str]]
Arguments = Callable[[str, str], Iterable[str]]
Paths = Callable[[], Sequence[str]]


class ChatCompleter(Completer):
    """`commands()`: what each slash command does, by name. `arguments(name, so_far)`: what may follow it. `paths()`: the
    files of the repository, relative; called in a thread, and the same list as before when nothing has changed.
    """

    def __init__(self, commands: Commands, arguments: Arguments, paths: Paths) -> None:
        self._commands = commands
        self._arguments = arguments
        self._paths = paths

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()
