"""How many threads llama.cpp should use: one per physical core that this process may use.

Prefill and decode are bound by arithmetic and memory; a second thread on the same core gains nothing, and more threads
than cores make each step wait for the slowest.
"""

import os
from collections.abc import Set
from pathlib import Path
from typing import Final

_TOPOLOGY: Final = Path("/sys/devices/system/cpu")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(
    allowed: Set[int] | None = None, topology: Path = _TOPOLOGY, quota: Path = _QUOTA, logical: int | None = None
) -> int:
    """Physical cores among the `allowed` logical CPUs (default: those of this process), at most what the container's
    CPU quota grants.

    Where the system does not tell which CPUs share a core, all `logical` ones count (Apple silicon and most Arm
    machines have one thread per core). At least 1.
    """
    if allowed is None:
        allowed = _allowed()
    cores = (logical or os.cpu_count() or 1) if allowed is None else len({_siblings(topology, cpu) for cpu in allowed})
    return max(1, min(cores, _granted(quota) or cores))


def _allowed() -> Set[int] | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return None if affinity is None else frozenset(affinity(0))


def _siblings(topology: Path, cpu: int) -> str:
    """A name for the core that `cpu` is a thread of."""
    try:
        return (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _granted(quota: Path) -> int | None:
    """CPUs of the cgroup v2 quota, rounded up; None without a limit."""
    try:
        limit, period = quota.read_text().split()
        return None if limit == "max" else -(-int(limit) // int(period))
    except (OSError, ValueError):
        return None
