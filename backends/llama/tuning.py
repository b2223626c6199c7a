"""What a machine runs a model fastest with: threads, batch size, flash attention, and what guesses cost."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self, TypeVar

from backends.llama.cores import usable_cores

BATCH: Final = 128
"""Tokens per batch where nothing was measured. A prefill can be stopped between batches: 128 take under a second on two
cores with a model of 1.5B, and cost 6 % of the speed of 512 (measured 2026-12-01, docs/local-models.md).
"""

BATCHES: Final = (BATCH, 256, 512)
_MOST_THREADS: Final = 512  # llama.cpp ends the process that asks for more (GGML_MAX_N_THREADS)
_Option = TypeVar("_Option")
_SAME: Final = 0.05  # as a share: what differs by less than that is equal


@dataclass(frozen=True, slots=True)
class Tuning:
    """`threads` draw one token at a time, `batch_threads` read a prompt, `batch` tokens at once. `flash_attention`
    None: llama.cpp decides. `draft_cost`: what a token with guesses takes over one without (`drafts`), None: unknown.
    """

    threads: int
    batch_threads: int
    batch: int = BATCH
    flash_attention: bool | None = None
    draft_cost: float | None = None

    @classmethod
    def unmeasured(cls) -> Self:
        cores = usable_cores()
        return cls(cores, cores)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError for a text that is no tuning."""
        try:
            fields = json.loads(text)
            flash, cost = fields["flash_attention"], fields["draft_cost"]
            threads, batch_threads, batch = (int(fields[name]) for name in ("threads", "batch_threads", "batch"))
            cost = None if cost is None else float(cost)
            known = all(1 <= number <= _MOST_THREADS for number in (threads, batch_threads)) and batch in BATCHES
            if not known or not (cost is None or 0 < cost < math.inf):
                raise ValueError(f"{text} is nothing to run with")
            return cls(threads, batch_threads, batch, None if flash is None else bool(flash), cost)
        except (TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError(f"no tuning: {error}") from error

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def candidates(cores: int, logical: int) -> list[int]:
    """Numbers of threads worth a try: the physical cores first; half of them where memory may be the limit; all that
    the processor runs at once.
    """
    half = [cores // 2] if cores >= 4 else []
    return list(dict.fromkeys([cores, *half, *([logical] if logical <= 2 * cores else [])]))


def fastest(seconds: Mapping[_Option, float]) -> _Option:
    """The first one that is not beaten by more than what chance makes of equals."""
    best = min(seconds.values())
    return next(option for option, taken in seconds.items() if taken <= best * (1 + _SAME))
