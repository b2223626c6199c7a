"""Runs the tool calls of one reply: validate, ask for permission, run, record. Every call gets exactly one result."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent import events
from agent.clock import Clock
from agent.gate import by_person
from agent.house_rules import nested_rules
from agent.progress import Progress
from agent.redact import Redactor
from agent.repository import Repository
from agent.session import Session
from agent.tools.arguments import parse_arguments
from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from agent.tools.written_call import refuse_written_call
from context.block import ToolCall, ToolResult
from context.canonical import clean_text
from context.names import show_name

if TYPE_CHECKING:
    from agent.coach import Coach


class Gate(Protocol):
    """Decides whether a call may run."""

    async def refusal(self, access: Access) -> str | None:
        """None when the call may run, else the reason that the model is told."""
        ...


class Toolbox:
    """The tools of one session. `redact` takes secrets out of text before anyone sees it (rule R10)."""

    def __init__(
        self,
        session: Session,
        tools: Sequence[Tool],
        context: ToolContext,
        gate: Gate,
        redact: Redactor,
        emit: Callable[[events.Event], None],
        clock: Clock,
        coach: "Coach | None" = None,
        repository: Repository | None = None,
    ) -> None:
        self._session = session
        self._tools = {tool.spec.name: tool for tool in tools}
        self._context = context
        self._gate = gate
        self._redact = redact
        self._emit = emit
        self._clock = clock
        self._coach = coach
        self._repository = repository
        self._progress = Progress()
        self._recorded = dict(context.seen)

    async def begin(self, command: str) -> list[str]:
        """A new turn begins; notices to go with the command."""
        self._progress.begin_turn()
        notices = [] if self._coach is None else await self._coach.begin(command)
        return [clean_text(self._redact(notice)) for notice in notices]

    def unrecorded(self) -> dict[Path, str | None]:
        """Files that the model has seen and of which the ledger does not know it yet. The caller records them."""
        news, self._recorded = dict(self._context.seen.items() - self._recorded.items()), dict(self._context.seen)
        return dict(news)

    def forget(self) -> None:
        """A new epoch: the model no longer sees what it has read."""
        self._context.seen.clear()
        self._context.shown.clear()
        self._recorded.clear()

    def objection(self) -> str | None:
        """Why the model should not end the turn yet, as the coach of small models sees it; None when it may."""
        return None if self._coach is None else self._coach.objection()

    async def run(self, calls: Sequence[ToolCall]) -> dict[str, ToolResult]:
        """Results by call id. Neighbouring calls that only read run side by side, all others one after another."""
        position = self._session.prompt.length - 1
        results: dict[str, ToolResult] = {}
        self._progress.begin_reply()
        for reads, group in groupby(calls, key=self._only_reads):
            together = list(group)
            if reads and len(together) > 1:
                done = await self._side_by_side(together, position)
            else:
                done = [await self._run_one(call, position) for call in together]
            results.update((result.call_id, result) for result in done)
        self._progress.end_reply()
        return results

    async def _side_by_side(self, calls: Sequence[ToolCall], position: int) -> list[ToolResult]:
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._run_one(call, position)) for call in calls]
        except BaseExceptionGroup as group:  # what goes wrong here (the ledger, the screen) is the same for all
            raise group.exceptions[0] from group
        return [task.result() for task in running]

    def stuck(self, calls: Sequence[ToolCall]) -> str | None:
        """What the model keeps doing in vain, now that `calls` have run; None while it gets on."""
        return self._progress.stuck(calls)

    def refuse_text(self, text: str) -> str | None:
        """What to tell the model when its reply ends with a call that it only wrote; None for any other reply."""
        return refuse_written_call(text, (tool.spec for tool in self._tools.values()))

    def _only_reads(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        try:
            return tool is not None and self._access(tool, call).effect is Effect.READ
        except (ToolError, OSError):
            return False

    def _access(self, tool: Tool, call: ToolCall) -> Access:
        return tool.access(parse_arguments(tool.spec, call.arguments), self._context)

    async def _run_one(self, call: ToolCall, position: int) -> ToolResult:
        output = await self._output(call, position)
        text = clean_text(self._redact(output.text))
        failed, refused = output.is_error or output.complains, output.is_error and by_person(output.text)
        if (hint := self._progress.note(call, text, failed=failed, refused=refused)) is not None:
            text = f"{text}\n{hint}"
        result = ToolResult(call.id, text, output.is_error)
        seen = dict(self._context.seen)
        news, session = seen.items() - self._recorded.items(), self._session
        session.ledger.tools.finish(session.id, session.epoch, position, result, self._clock.now(), news)
        self._recorded = seen
        if self._repository is not None and news:
            await asyncio.to_thread(self._repository.keep, dict(news))
        summary = self._redact(output.summary)
        full = None if output.full is None else show_name(str(output.full))
        self._emit(events.ToolFinished(call.id, call.name, text, summary, output.is_error, full))
        return result

    async def _output(self, call: ToolCall, position: int) -> ToolOutput:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            return self._failure(call, f"There is no tool {call.name!r}. Tools: {known}.")
        try:
            arguments = parse_arguments(tool.spec, call.arguments)
            access = tool.access(arguments, self._context)
        except ToolError as error:
            return self._failure(call, str(error))
        except OSError as error:  # a file that is in the way of any tool's work is the model's to get around
            return self._failure(call, f"{error.strerror or error}.")
        self._emit(events.ToolStarted(call.id, call.name, self._redact(call.arguments), self._redact(access.summary)))
        refusal = await self._gate.refusal(access)
        if refusal is not None:
            return ToolOutput(refusal, f"refused: {refusal}", is_error=True)
        if self._coach is not None and (question := await self._coach.question(call.name, arguments)) is not None:
            return ToolOutput(question, question.partition(". ")[0], is_error=True)
        session = self._session
        session.ledger.tools.start(session.id, session.epoch, position, call.id, self._clock.now())
        live = replace(self._context, on_output=lambda text: self._emit(events.ToolOutputChunk(call.id, text)))
        try:
            output = await tool.run(arguments, live)
        except ToolError as error:
            return replace(self._failure(call, str(error)), summary=str(error).partition("\n")[0])
        except OSError as error:
            return self._failure(call, f"{error.strerror or error}.")
        if not output.is_error and access.effect is not Effect.EXECUTE:
            rules = await asyncio.to_thread(nested_rules, access.paths, self._context)
            output = replace(output, text=f"{output.text.rstrip(chr(10))}\n{rules}") if rules else output
        hint = "" if self._coach is None else await self._coach.hint(call.name, arguments, output)
        return replace(output, text=f"{output.text.rstrip(chr(10))}\n{hint}") if hint else output

    def _failure(self, call: ToolCall, message: str) -> ToolOutput:
        if self._coach is not None:
            self._coach.failure(call, message)
        return ToolOutput(message, f"{call.name}: {message.partition(chr(10))[0]}", is_error=True)
