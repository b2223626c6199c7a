"""Start-up times as ratios and differences against a bare interpreter in the same run.

`python benchmarks/startup.py`
"""

import os
import shutil
import statistics
import subprocess
import sys
import time

RUNS = 15


def seconds(command: list[str]) -> float:
    """Median wall time of a command."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    agent = shutil.which("agent", path=os.path.dirname(sys.executable)) or "agent"
    bare = seconds([sys.executable, "-c", "pass"])
    print(f"{'command':<28}{'median':>9}{'over bare':>11}{'ratio':>7}   allowed over bare")
    for name, command, allowed in (
        ("python -c pass", [sys.executable, "-c", "pass"], ""),
        ("agent --version", [agent, "--version"], "60 ms"),
        ("agent --help", [agent, "--help"], "200 ms"),
        ("import anthropic", [sys.executable, "-c", "import anthropic"], "(for comparison)"),
    ):
        took = seconds(command)
        print(f"{name:<28}{took * 1000:>6.0f} ms{(took - bare) * 1000:>8.0f} ms{took / bare:>7.1f}   {allowed}")


if __name__ == "__main__":
    main()
