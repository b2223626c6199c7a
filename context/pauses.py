"""Pauses of a person."""

from dataclasses import dataclass
from typing import Literal

After = Literal["answer", "question", "failed"]


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float | None
    after: After
    hour: int
