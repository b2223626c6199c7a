"""Runs the tool calls of one reply: validate, ask for permission, run, record. Every call gets exactly one result."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, Protocol

from agent import events
from agent.clock import Clock
from agent.redact import Redactor
from agent.session import Session
from agent.tools.arguments import parse_arguments
from agent.tools.base import Access, Effect, Tool, ToolContext, ToolError, ToolOutput
from context.block import ToolCall, ToolResult
from context.canonical import clean_text

REPEATS_BEFORE_STOP: Final = 5
_REPEATED: Final = "(The same call gave the same result before. Do something else.)"


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
    ) -> None:
        self._session = session
        self._tools = {tool.spec.name: tool for tool in tools}
        self._context = context
        self._gate = gate
        self._redact = redact
        self._emit = emit
        self._clock = clock
        self._outcomes: Counter[tuple[str, str, str]] = Counter()
        self._recorded = dict(context.seen)

    async def run(self, calls: Sequence[ToolCall]) -> dict[str, ToolResult]:
        """Results by call id. Neighbouring calls that only read run side by side, all others one after another."""
        position = self._session.prompt.length - 1
        results: dict[str, ToolResult] = {}
        for reads, group in groupby(calls, key=self._only_reads):
            together = list(group)
            if reads and len(together) > 1:
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(self._run_one(call, position)) for call in together]
                done = [task.result() for task in running]
            else:
                done = [await self._run_one(call, position) for call in together]
            results.update((result.call_id, result) for result in done)
        return results

    def stuck_on(self, calls: Sequence[ToolCall]) -> ToolCall | None:
        """The call that gave the same result REPEATS_BEFORE_STOP times while nothing new came up, if any."""
        tired = {
            (name, arguments) for (name, arguments, _), count in self._outcomes.items() if count >= REPEATS_BEFORE_STOP
        }
        return next((call for call in calls if (call.name, call.arguments) in tired), None)

    def _only_reads(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        try:
            return tool is not None and self._access(tool, call).effect is Effect.READ
        except ToolError:
            return False

    def _access(self, tool: Tool, call: ToolCall) -> Access:
        return tool.access(parse_arguments(tool.spec, call.arguments), self._context)

    async def _run_one(self, call: ToolCall, position: int) -> ToolResult:
        output = await self._output(call, position)
        text = clean_text(self._redact(output.text))
        outcome = (call.name, call.arguments, text)
        if outcome not in self._outcomes:
            self._outcomes.clear()  # something new was learned: what came before is no loop
        self._outcomes[outcome] += 1
        if self._outcomes[outcome] > 1:
            text = f"{text}\n{_REPEATED}"
        result = ToolResult(call.id, text, output.is_error)
        seen = dict(self._context.seen)
        news = seen.items() - self._recorded.items()
        self._session.ledger.finish_tool(self._session.id, position, result, self._clock.now(), news)
        self._recorded = seen
        summary = self._redact(output.summary)
        self._emit(events.ToolFinished(call.id, call.name, text, summary, output.is_error))
        return result

    async def _output(self, call: ToolCall, position: int) -> ToolOutput:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            return _failure(call, f"There is no tool {call.name!r}. Tools: {known}.")
        try:
            arguments = parse_arguments(tool.spec, call.arguments)
            access = tool.access(arguments, self._context)
        except ToolError as error:
            return _failure(call, str(error))
        self._emit(events.ToolStarted(call.id, call.name, call.arguments, self._redact(access.summary)))
        refusal = await self._gate.refusal(access)
        if refusal is not None:
            return ToolOutput(refusal, f"refused: {refusal}", is_error=True)
        self._session.ledger.start_tool(self._session.id, position, call.id, self._clock.now())
        live = replace(self._context, on_output=lambda text: self._emit(events.ToolOutputChunk(call.id, text)))
        try:
            return await tool.run(arguments, live)
        except ToolError as error:
            return ToolOutput(str(error), str(error).partition("\n")[0], is_error=True)


def _failure(call: ToolCall, message: str) -> ToolOutput:
    return ToolOutput(message, f"{call.name}: {message.partition(chr(10))[0]}", is_error=True)
