"""The emulator for hand use: `python -m tests.emulator [--port N] [--task demo]`, from the project's root.

Prints the environment variables that send each SDK to it, and one line with the bill of each request.
"""

import argparse
import threading
from collections.abc import Callable

from .actions import Read, Shell, play
from .api import Recorded
from .bill import Bill
from .script import Answer, Reply, Say
from .server import Emulator


def _hello(request: Recorded) -> Reply:
    return Reply.of(f"This is the emulator. It has read request {request.number} and plays no task (see --task).")


_DEMO = play(
    [
        [Say("I look around."), Read("README.md"), Shell("git status --short")],
        Shell("git log --oneline | head -5"),
    ],
    answer="I have read README.md and looked at the state of the repository.",
)


def _demo(request: Recorded) -> Answer:
    """The task, for whoever offers tools; a probe offers none."""
    return _DEMO(request) if request.body.get("tools") else _hello(request)


TASKS: dict[str, Callable[[Recorded], Answer]] = {"demo": _demo, "hello": _hello}


def _show(request: Recorded, bill: Bill) -> None:
    usd = "unknown price" if bill.usd is None else f"${bill.usd:.6f}"
    print(
        f"{request.number:4} {request.method} {request.path}  fresh {bill.fresh:,}  read {bill.read:,}  "
        f"written {bill.write_short:,} + {bill.write_long:,} long  output {bill.output:,}  {usd}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="a free one if not given")
    parser.add_argument("--task", choices=sorted(TASKS), default="hello", help="what the scripted model does")
    options = parser.parse_args()
    with Emulator(TASKS[options.task], port=options.port, watch=_show) as server:
        for name, value in server.env.items():
            print(f"export {name}={value}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
