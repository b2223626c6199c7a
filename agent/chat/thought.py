"""What the model thinks: the end of it while it thinks, one line after."""

from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from context.tokens import count_tokens

_LINES: Final = 3
_LINE: Final = 400  # characters of a line that can be seen at most


@dataclass(frozen=True, slots=True)
class Thought:
    """`began`: seconds since some start."""

    text: str = ""
    began: float = 0.0

    def plus(self, text: str, now: float) -> "Thought":
        return Thought(self.text + text, self.began if self.text else now)

    def told(self, now: float, tokens: int | None) -> str:
        """The one line. `tokens` as billed; None: they are not known yet, and counted in what is shown."""
        count = f"about {count_tokens(self.text):,}" if tokens is None else f"{tokens:,}"
        return f"thought for {now - self.began:.0f} s, {count} tokens"

    def live(self, now: float) -> list[RenderableType]:
        lines = [line for line in self.text.split("\n") if line.strip()][-_LINES:]
        head = Text(f"thinking, {now - self.began:.0f} s", style="dim")
        tails = [Text(f"  {line[-_LINE:]}", style="dim italic", no_wrap=True, overflow="ellipsis") for line in lines]
        return [head, *tails]
