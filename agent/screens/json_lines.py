"""`--json`: one event a line on standard output. The fields are documented in docs/events.md."""

import json
from typing import TextIO

from agent import events


class JsonLines:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, event: events.Event) -> None:
        self._out.write(json.dumps(events.to_json(event), ensure_ascii=True) + "\n")
        self._out.flush()

    def close(self) -> None:
        """Nothing is held back."""
