"""The environment of Python programs that we start ourselves: they must never import from the repository we work in."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]  # the folder that holds the package `backends`


def child_env(env: Mapping[str, str], root: Path = ROOT) -> dict[str, str]:
    """`env` with only those entries of PYTHONPATH that hold our own installation (`pip install --target`).

    Start the child with `-P` as well, so that its working directory is not searched either. `root` as in `ROOT`.
    """
    child = {name: value for name, value in env.items() if name != "PYTHONPATH"}
    entries = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if own := [entry for entry in entries if os.path.abspath(entry) == str(root.parent)]:
        child["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in own)
    return child
