"""Abstract actions, played through whatever tools a request offers, whatever API it comes by.

    emulator.play(play([Read("price.py"), [Edit("price.py", "-", "+"), Shell("make")]], answer="Done."))

After each command of the user the steps begin anew: the position in the plan is the number of replies with tool calls
since then, counted in the request itself, so a script has no state and survives a kill of the client.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .api import Offer, Recorded
from .script import Call, Reply, Say


@dataclass(frozen=True)
class Read:
    path: str


@dataclass(frozen=True)
class Edit:
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Shell:
    command: str


Action = Read | Edit | Shell | Say
Step = Action | Sequence[Action]

_PATH = ("path", "file_path", "filename", "file", "filepath", "target_file")
_OLD = ("old", "old_string", "old_text", "old_str", "search", "before")
_NEW = ("new", "new_string", "new_text", "new_str", "replace", "replacement", "after")
_COMMAND = ("command", "cmd", "script", "commands")
_READ_NAMES = ("read", "view", "open", "cat", "show")
_EDIT_NAMES = ("edit", "replace", "patch", "change", "update")
_SHELL_NAMES = ("shell", "bash", "exec", "run", "command", "terminal")


class NoToolError(Exception):
    """The request offers no tool for an action."""


def _find(offers: Sequence[Offer], names: Sequence[str], *groups: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The first offered tool with one of `names` in its name that takes a parameter of each group."""
    for word in names:
        for offer in offers:
            chosen = [next((known for known in group if known in offer.parameters), None) for group in groups]
            if word in offer.name.lower() and all(chosen):
                return offer.name, tuple(name for name in chosen if name is not None)
    return None


def call_for(action: Read | Edit | Shell, offers: Sequence[Offer]) -> Call:
    """The call that does `action` with the tools on offer. Raises NoToolError."""
    values: tuple[str, ...]
    match action:
        case Read(path):
            found, values = _find(offers, _READ_NAMES, _PATH), (path,)
        case Edit(path, old, new):
            found, values = _find(offers, _EDIT_NAMES, _PATH, _OLD, _NEW), (path, old, new)
        case Shell(command):
            found, values = _find(offers, _SHELL_NAMES, _COMMAND), (command,)
    if found is None:
        raise NoToolError(f"no tool for {action} among {[offer.name for offer in offers]}")
    name, parameters = found
    return Call(name, dict(zip(parameters, values, strict=True)))


def _parts(step: Step, offers: Sequence[Offer]) -> Iterator[Say | Call]:
    for action in step if isinstance(step, Sequence) else [step]:
        yield action if isinstance(action, Say) else call_for(action, offers)


def play(steps: Sequence[Step], answer: str = "Done.") -> Callable[[Recorded], Reply]:
    """A script: one step a reply, and `answer` when all are taken. A step of nothing but `Say` ends the plan there."""

    def reply(request: Recorded) -> Reply:
        assert request.reader is not None
        taken = request.reader.steps_taken(request.body)
        if taken >= len(steps):
            return Reply.of(answer)
        return Reply(tuple(_parts(steps[taken], request.reader.offers(request.body))))

    return reply
