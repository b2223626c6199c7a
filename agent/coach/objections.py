"""Objections, when a model wants to end its turn while something speaks against it."""

import re
from collections.abc import Iterator
from typing import Final

from agent.coach.repository import Repository
from agent.coach.turn import Turn

_WANTS_TEST: Final = re.compile(r"\b(?:add|write)\b[^.?!]*\btests?\b", re.IGNORECASE)
_TASK_CHARS: Final = 500
_MOST_OBJECTIONS: Final = 3


def before_end(turn: Turn, repository: Repository) -> str | None:
    """Why the turn should not end yet; None when it may. With the task, which small models lose sight of.

    Each reason is given once in a turn, but that nothing was changed as long as it is so.
    """
    reason = next((reason for name, reason in _reasons(turn, repository) if turn.first(name)), None)
    turn.objections += 1
    if turn.objections > _MOST_OBJECTIONS:
        return None
    return None if reason is None else f"{reason}\nThe task was: {turn.command[:_TASK_CHARS]}"


def _reasons(turn: Turn, repository: Repository) -> Iterator[tuple[str, str]]:
    if not turn.looked:
        yield "looked", f"You have not looked at any file yet. Read {repository.readme() or 'or search'}, then answer."
    if turn.is_question:
        return
    if turn.files is not None and repository.stats() == turn.files:
        yield f"changed {turn.objections}", "Not done: no file was changed. Make the change with edit, then answer."
    if turn.failed is not None:
        yield "failed", f"Not done: {turn.failed} Read the code and make the right edit."
    if turn.untested and repository.has_tests():
        yield "tests", "The tests were not run after the last change. Run them, then answer."
    if _WANTS_TEST.search(turn.command) and not turn.added_test:
        yield "new test", "Not done: no test was added. Read a test file and add the test there with edit."
