"""Notices: changes that are told at the tail, because the layers ahead of it are frozen (rules R1 and R9)."""

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Environment:
    """What the model is told of its surroundings.

    `date` as YYYY-MM-DD; `mode` a permission mode; `asks`: a person can be asked. `branch` of git, None: no repository.
    `files`: digest of the list of files; None: not looked at.
    """

    date: str
    directory: str
    mode: str
    asks: bool
    branch: str | None = None
    files: str | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Environment":
        return cls(**json.loads(text))


UNTOLD = Environment("", "", "", asks=False)
"""Where it is not known what the model was told: it is told everything."""

_MODES = {
    "plan": "Mode: plan. Read only: look, think and propose; edits and commands are refused.",
    "ask": "Mode: ask. The user confirms each edit and command.",
    "edits": "Mode: edits. Edits inside the working directory are allowed; the user confirms commands.",
    "auto": "Mode: auto. Edits and commands inside the working directory are allowed.",
}
_MODES_UNATTENDED = {
    "ask": "Mode: ask, but no one can confirm: edits and commands are refused. Read, and say what you would do.",
    "edits": "Mode: edits, but no one can confirm: edits inside the working directory are allowed, commands refused.",
}


def first_notices(now: Environment) -> list[str]:
    """What precedes the first command of a session: the mode, but nothing in mode auto, which restricts nothing."""
    return [] if now.mode == "auto" else [_mode(now)]


def changes(told: Environment, now: Environment) -> list[str]:
    """What differs from what the model was told last, one sentence each."""
    notices = []
    if told == UNTOLD:
        notices.append("Time has passed: files may have changed since you saw them. Read again what you rely on.")
    if now.date != told.date:
        notices.append(f"The date is now {now.date}.")
    if now.directory != told.directory:
        notices.append(f"The working directory is now {now.directory}.")
    if now.branch != told.branch:
        notices.append(f"Git is now {now.branch or 'gone: this is no repository any more'}.")
    if (now.mode, now.asks) != (told.mode, told.asks):
        notices.append(_mode(now))
    return notices


def _mode(now: Environment) -> str:
    return (None if now.asks else _MODES_UNATTENDED.get(now.mode)) or _MODES[now.mode]
