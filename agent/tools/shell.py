"""The tool `shell`: one command line in the working directory."""

import os
import re
import shutil
import signal
from collections.abc import Mapping
from typing import Any, Final

from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.command_paths import paths_in
from agent.tools.excerpt import Excerpt
from agent.tools.paths import failure
from agent.tools.process import Ended, run_group
from agent.tools.terminal import LineFolder, PlainText
from context.block import ToolSpec
from context.names import show_name

DEFAULT_TIMEOUT_S: Final = 120

# No pager may wait for a key, and no program may draw: there is no terminal.
_ENV: Final = {"PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"}

_AT_THE_FENCE: Final = re.compile(
    "read-only file system|permission denied|operation not permitted|network is unreachable|name resolution"
    "|could(?: not|n't) resolve|getaddrinfo|name or service not known|connection refused",
    re.IGNORECASE,
)

_SPEC: Final = ToolSpec(
    "shell",
    "Run a bash command in the working directory and get its output; each call is a new shell without input. "
    "Long output is cut in the middle and kept in a file. For a server: `cmd >log 2>&1 &`.",
    """{"type":"object","properties":{"command":{"type":"string"},\
"timeout":{"type":"integer","minimum":1,"maximum":3600,"description":"seconds, default 120"}},\
"required":["command"],"additionalProperties":false}""",
)
_COMPACT: Final = ToolSpec(
    "shell",
    "Run a bash command.",
    """{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}""",
)


class _Shell:
    spec = _SPEC
    compact = _COMPACT

    def access(self, arguments: Mapping[str, Any], context: ToolContext) -> Access:
        command = arguments["command"]
        if not command.strip():
            raise ToolError("The command is empty.")
        if "\0" in command:
            raise ToolError("The command holds a NUL character, which no command line can.")
        summary = f"run {show_name(command.strip())}"
        return Access(Effect.EXECUTE, summary, (context.root, *paths_in(command, context)), command)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        timeout = arguments.get("timeout", DEFAULT_TIMEOUT_S)
        output = _Output(context)
        confined = await context.confine([_shell(context), "-c", arguments["command"]], {**context.env, **_ENV})
        try:
            ended = await run_group(
                confined.argv,
                cwd=context.root,
                env=confined.env,
                time_limit=timeout,
                on_output=output.feed,
            )
        except UnicodeEncodeError:
            raise ToolError("The command holds half a surrogate pair, which no command line can.") from None
        except OSError as error:
            raise failure(error, "The command could not be started") from None
        return _result(output, ended, timeout, confined.limits)


tool: Tool = _Shell()


class _Output:
    """From bytes to the screen and to the excerpt for the model, without secrets on either way."""

    def __init__(self, context: ToolContext) -> None:
        self._plain = PlainText()
        self._redacted = context.redactor().stream(self._pass_on)
        self._show = context.on_output
        self._folder = LineFolder()
        self.excerpt = Excerpt(context.limits, context.spill, "shell")

    def feed(self, data: bytes) -> None:
        self._redacted.feed(self._plain.feed(data))

    def close(self) -> str:
        self._redacted.feed(self._plain.close())
        self._redacted.close()
        self.excerpt.feed(self._folder.close())
        return self.excerpt.close()

    def _pass_on(self, text: str) -> None:
        self._show(text)
        self.excerpt.feed(self._folder.feed(text))


def _result(output: _Output, ended: Ended, timeout: int, limits: str | None) -> ToolOutput:
    text = output.close()
    status = _status(ended, timeout)
    notes = [status] if ended.timed_out or ended.code or not text.strip() else []
    if ended.open_pipe and not ended.timed_out:
        # In the sandbox the first process holds the output open as long as anything runs, whatever that has open.
        who = "a background process holds the output open" if limits is None else "something runs on in the background"
        notes.append(f"[{who}; what it writes to the output from now on is lost]")
    if limits is not None and ended.code and _AT_THE_FENCE.search(text):
        notes.append(f"[{limits}]")
    text = text.rstrip("\n")
    complains = bool(ended.code and text.strip())  # a failure without a word may be an answer: nothing was found
    text = "\n".join([text, *notes] if text.strip() else notes)
    lines = output.excerpt.newlines
    return ToolOutput(
        text, f"{status}, {lines:,} lines", is_error=ended.timed_out, complains=complains, full=output.excerpt.path
    )


def _status(ended: Ended, timeout: int) -> str:
    if ended.timed_out:
        return f"timed out after {timeout} s; the command and its children were ended"
    if ended.code < 0:
        return f"ended by signal {signal.strsignal(-ended.code) or -ended.code}"
    return f"exit {ended.code}"


def _shell(context: ToolContext) -> str:
    path = context.env.get("PATH", os.defpath)
    found = shutil.which("bash", path=path) or shutil.which("sh", path=path)
    if found is None:
        raise ToolError("There is no `bash` and no `sh` on the PATH, so no command can be run.")
    return found
