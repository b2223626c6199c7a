"""That a call is made again, in words: an unreachable host gives the same reason each time, and it is told once."""

from rich.markup import escape

from agent import events
from agent.retry import MAX_ATTEMPTS
from agent.screens.plain import plain


class Restarts:
    """Those of the running call. Call `over` when it has ended."""

    def __init__(self) -> None:
        self._attempt, self._reason = 1, ""

    def told(self, event: events.ReplyRestarted) -> str:
        """The line for one of them, as rich markup."""
        self._attempt += 1
        reason = "" if event.reason == self._reason else f"[yellow]{escape(plain(event.reason))}[/yellow] "
        self._reason = event.reason
        return f"{reason}[dim]Trying again in {event.wait_s:.0f} s ({self._attempt} of {MAX_ATTEMPTS}).[/dim]"

    def over(self) -> None:
        self._attempt, self._reason = 1, ""
