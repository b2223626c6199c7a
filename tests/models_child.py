"""A process of its own that fetches the tiny model: `models_child.py MODELS_DIR HUB [largest file in bytes]`.

It prints each announcement, `at N` for each progress, and at the end `done PATH` or `failed MESSAGE`.
"""

import asyncio
import resource
import sys
from pathlib import Path

from models_support import tiny_spec

from backends.llama.fetch import fetch
from backends.llama.models import ModelError
from backends.llama.sources import HubSource


def main() -> None:
    folder, endpoint, *limit = sys.argv[1:]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit[0]), int(limit[0])))
    spec = tiny_spec()
    assert spec.hub is not None
    sources = [HubSource(spec, spec.hub, endpoint)]

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        path = asyncio.run(fetch(spec, Path(folder), sources, progress=lambda now: say(f"at {now.done}"), announce=say))
        say(f"done {path}")
    except ModelError as error:
        say(f"failed {error}")


main()
