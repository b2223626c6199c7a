"""Entry point of the commands `agent` and `keepwarm`.

Kept apart from the program for two reasons. It answers `--version` without importing anything, and it decides where
`import agent` looks: always in the folder beside this file (the wheel's `keepwarm/`, or a checkout), never in the
repository that the agent works in, even when that repository has packages called `agent` or `context` and is named in
PYTHONPATH.
"""

import os
import sys

__version__ = "0.1.0"


def _import_only_our_own_code() -> None:
    home = os.path.dirname(os.path.abspath(__file__))
    untrusted = {"", os.getcwd()}
    untrusted.update(os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    # A PYTHONPATH entry may be where Keepwarm and its dependencies were installed (`pip install --target`): that one
    # stays.
    untrusted.discard(os.path.dirname(home))
    sys.path[:] = [home, *(entry for entry in sys.path if entry not in untrusted and entry != home)]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 usage, 3 limit reached, 130 interrupted."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        try:
            print(f"keepwarm {__version__}", flush=True)
        except OSError:  # nobody can read it; a normal exit would try once more, and complain
            os._exit(1)
        return
    try:
        _import_only_our_own_code()
        from agent.cli import run

        run()
    except FileNotFoundError:
        sys.stderr.write("agent: the working directory no longer exists. Nothing was done. Change to one that does.\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("agent: interrupted. What was recorded is kept.\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
