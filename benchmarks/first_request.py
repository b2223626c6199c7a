"""From process start to the first byte of the first request, against `import anthropic` alone, in the same run.

A socket on loopback stands for the API; it takes the time of the first byte and hangs up. `python
benchmarks/first_request.py`
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 7
ROOT = Path(__file__).parent.parent


def seconds_to_import() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import anthropic"], check=True)
    return time.perf_counter() - started


def seconds_to_first_byte(home: str) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {
            **os.environ,
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
            "KEEPWARM_HOME": home,
        }
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "keepwarm.py"), "run", "hello"],
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                return time.perf_counter() - started
        finally:
            process.kill()
            process.wait()


def main() -> None:
    imports, requests = [], []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(RUNS):  # alternating, so that both meet the same load
            imports.append(seconds_to_import())
            requests.append(seconds_to_first_byte(home))
    one, other = statistics.median(imports), statistics.median(requests)
    print(f"import anthropic            {one * 1000:6.0f} ms")
    print(f"agent run, first byte sent  {other * 1000:6.0f} ms   {other / one:.2f} ×, {(other - one) * 1000:+.0f} ms")


if __name__ == "__main__":
    main()
