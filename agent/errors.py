"""Errors that end a command with one clear line."""

from typing import Final

FAILED: Final = 1
USAGE: Final = 2
LIMIT: Final = 3
INTERRUPTED: Final = 130


class UserError(Exception):
    """Something that the person can put right.

    `str(error)`: what happened, what was kept, what to do. No traceback is shown.
    """

    def __init__(self, message: str, exit_code: int = FAILED):
        super().__init__(message)
        self.exit_code = exit_code
