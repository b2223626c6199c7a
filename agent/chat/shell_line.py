"""`!command`: a shell line of the person's own. It runs in the working directory, asks nobody, and its output is shown
and told to the model with the next message.
"""

import codecs
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent.tools.process import run_group

_TIME_LIMIT_S: Final = 600.0
_MOST_TOLD: Final = 4_000  # characters of output that the model is told


async def run_shell_line(command: str, directory: Path, env: Mapping[str, str], show: Callable[[str], None]) -> str:
    """Run it, `show` its output in whole lines; what the model is told of it. Raises OSError when there is no shell."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    said: list[str] = []
    open_line = ""

    def take(data: bytes) -> None:
        nonlocal open_line
        text = decoder.decode(data)
        said.append(text)
        *lines, open_line = (open_line + text).split("\n")
        if lines:
            show("\n".join(lines))

    ended = await run_group(
        ["/bin/sh", "-c", command], cwd=directory, env=env, time_limit=_TIME_LIMIT_S, on_output=take
    )
    if open_line:
        show(open_line)
    if ended.timed_out:
        show(f"Stopped after {_TIME_LIMIT_S:.0f} s.")
    elif ended.code:
        show(f"Exit code {ended.code}.")
    output = "".join(said)
    if len(output) > _MOST_TOLD:
        half = _MOST_TOLD // 2
        output = f"{output[:half]}\n… {len(output) - _MOST_TOLD:,} characters are left out …\n{output[-half:]}"
    return f"The user ran `{command}` (exit code {ended.code}). It printed:\n{output.rstrip() or '(nothing)'}"
